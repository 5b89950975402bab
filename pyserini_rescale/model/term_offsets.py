"""The per-term offsets of a calibrated head, kept beside its weights so that they can be undone.

They are part of the decoder bias already; nothing but ``head undo`` reads them. config.json is no place for a number
per term, so they lie in a file of their own, whose checksum is in our key (``Policy.term_offsets``). In memory they
hang on the model as a plain attribute, which travels with it from ``load_masked_lm`` through training to
``save_model``.

Letters: V vocabulary.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyserini_rescale.errors import ModelError
from pyserini_rescale.model.policy import TERM_OFFSETS_FILE, Policy
from pyserini_rescale.model.weights_file import stored_tensors

if TYPE_CHECKING:
    from torch import nn

_ATTRIBUTE = "splade_term_offsets"
_TENSOR = "term_offsets"


def checksum(offsets: np.ndarray) -> str:
    """Return the SHA-256 of offsets (V,), taken over their float32 bytes."""
    return hashlib.sha256(np.ascontiguousarray(offsets, dtype="<f4").tobytes()).hexdigest()


def attach(model: "nn.Module", offsets: np.ndarray | None) -> None:
    """Hang offsets (V,) on ``model``; None takes them off."""
    setattr(model, _ATTRIBUTE, offsets)


def attached(model: "nn.Module") -> np.ndarray | None:
    """Return the offsets (V,) that hang on ``model``, or None."""
    return getattr(model, _ATTRIBUTE, None)


def write(model: "nn.Module", folder: Path) -> None:
    """Write the offsets of ``model`` into ``folder``; nothing where there are none."""
    offsets = attached(model)
    if offsets is not None:
        from safetensors.numpy import save_file

        save_file({_TENSOR: np.ascontiguousarray(offsets, dtype=np.float32)}, folder / TERM_OFFSETS_FILE)


def read(name: str, policy: Policy | None) -> np.ndarray | None:
    """Return the offsets (V,) of a folder or Hub id whose policy speaks of some; None where it does not, or they are
    lost.

    Lost is no error here: the model is whole without the file, and only undo needs it. Raises ModelError if the file is
    damaged or belongs to another model.
    """
    if policy is None or policy.term_offsets is None:
        return None
    path = _find(name)
    if path is None:
        return None
    tensor = (stored_tensors(path) or {}).get(_TENSOR)
    offsets = None if tensor is None else np.concatenate(list(tensor.blocks())).ravel().astype(np.float32)
    if offsets is None or checksum(offsets) != policy.term_offsets:
        raise ModelError(f"{path} is not what config.json says it is (checksum): take both from the same checkpoint")
    return offsets


def _find(name: str) -> Path | None:
    if Path(name).is_dir():
        path = Path(name) / TERM_OFFSETS_FILE
        return path if path.is_file() else None
    from transformers.utils import cached_file

    found = cached_file(
        name,
        TERM_OFFSETS_FILE,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)
