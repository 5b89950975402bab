"""What a checkpoint says about its own use: one key in config.json, read by every part of the package.

What the tokenizer's files can carry (lower-casing, prefix space) lives there, so that plain transformers obeys it too;
this key holds the rest. A checkpoint without the key is used as Pyserini's ``splade`` class would use it.
No torch here: the plug-in asks ``read_policy`` whether a checkpoint is ours before anything heavy is loaded.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from pyserini_rescale.errors import ModelError, one_line
from pyserini_rescale.model.shipped import shipped_folder

KEY = "splade_rescale"
PREFIX = "splade-rescaled:"
SCOPES = ("shared", "balanced", "untied")
OFFSET_RULES = ("constant", "auto", "per-term")
TERM_OFFSETS_FILE = "term_offsets.safetensors"
TARGET_ACTIVE = 0.015
"""Share of the vocabulary that an offset leaves active per document when nothing else is said."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """How texts become impacts with this checkpoint.

    k, scope, rescale_bias
        The rescale that was applied (arXiv 2606.18811, Eq. 6); k = 1 is none.
    tied_before
        Whether head and input embedding shared their matrix before the rescale; undo ties them again. None: no rescale.
    bias_offset, offset_rule, target_active
        The constant that was subtracted from the decoder bias after the rescale, how it was chosen ("constant": given
        by hand; "auto" and "per-term": model/offset.py) and the share of active terms it was chosen for; rule None is
        none.
    term_offsets
        SHA-256 of what was subtracted from each term's bias before the constant, a vector that ``TERM_OFFSETS_FILE``
        beside the weights holds; None is none.
    document_length, query_length
        Tokens, special ones included; None leaves it to the caller (Pyserini's defaults).
    special_tokens
        Whether terms such as [CLS] keep their weight in the vector.
    weight_range, quant_range
        Impact = round(weight * quant_range / weight_range), halves to even; 5 and 256 as in Pyserini's ``splade``.
    """

    k: float = 1.0
    scope: str | None = None
    rescale_bias: bool = False
    tied_before: bool | None = None
    bias_offset: float = 0.0
    offset_rule: str | None = None
    target_active: float | None = None
    term_offsets: str | None = None
    document_length: int | None = None
    query_length: int | None = None
    special_tokens: bool = True
    weight_range: float = 5.0
    quant_range: int = 256

    def __post_init__(self) -> None:
        def is_count(value: Any) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and value > 0

        def is_finite(value: Any) -> bool:
            return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300

        def is_number(value: Any) -> bool:
            return is_finite(value) and value > 0

        checks = {
            "k": is_number(self.k),
            "scope": self.scope is None or self.scope in SCOPES,
            "rescale_bias": isinstance(self.rescale_bias, bool),
            "tied_before": self.tied_before is None or isinstance(self.tied_before, bool),
            "bias_offset": is_finite(self.bias_offset),
            "offset_rule": self.offset_rule is None or self.offset_rule in OFFSET_RULES,
            "target_active": self.target_active is None or (is_number(self.target_active) and self.target_active < 1),
            "term_offsets": self.term_offsets is None or isinstance(self.term_offsets, str),
            "document_length": self.document_length is None or is_count(self.document_length),
            "query_length": self.query_length is None or is_count(self.query_length),
            "special_tokens": isinstance(self.special_tokens, bool),
            "weight_range": is_number(self.weight_range),
            "quant_range": is_count(self.quant_range),
        }
        wrong = [f"{name} = {getattr(self, name)!r}" for name, good in checks.items() if not good]
        if wrong:
            raise ModelError(f"the key {KEY} of config.json holds values that cannot be used: {', '.join(wrong)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the value to store under ``KEY``."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Policy | None":
        """Return the policy that a config dictionary carries, or None where it carries none.

        Raises ModelError for keys we do not know: they were written by a newer version and may change the vectors.
        """
        stored = config.get(KEY)
        if stored is None:
            return None
        if not isinstance(stored, dict):
            raise ModelError(f"the key {KEY} of config.json is not a table; was it edited by hand?")
        unknown = sorted(set(stored) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ModelError(
                f"the key {KEY} of config.json holds {', '.join(unknown)}, unknown here: upgrade pyserini-rescale"
            )
        return cls(**stored)


def split_name(name: str) -> tuple[str, bool]:
    """Split ``splade-rescaled:MODEL`` into (MODEL, True); any other name is returned as (name, False).

    The name of a model that comes with the package becomes that of its folder.
    """
    ours = name.startswith(PREFIX)
    return shipped_folder(name.removeprefix(PREFIX)), ours


def read_policy(name: str) -> Policy | None:
    """Return the policy in the config.json of a folder or Hub id; None if there is no such key, or no such config.

    A Hub id is asked for through transformers, which uses its cache and obeys HF_HUB_OFFLINE.
    """
    folder = Path(name)
    if folder.is_dir():
        path = folder / "config.json"
        if not path.is_file():
            return None
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"{path} cannot be read as JSON: {one_line(error)}") from None
        return Policy.from_config(config) if isinstance(config, dict) else None
    if folder.exists() or name.count("/") > 1 or name.startswith((".", "~", "/")):
        return None
    from transformers import PretrainedConfig

    try:
        config, _ = PretrainedConfig.get_config_dict(name)
    except (OSError, ValueError):
        return None
    return Policy.from_config(config)
