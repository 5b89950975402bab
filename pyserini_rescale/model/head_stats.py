"""What Table 1 of arXiv 2606.18811 says about a checkpoint: row norms of the MLM head, anisotropy, and a few facts.

For a safetensors checkpoint of a backbone with a row in the table, the head is read from the file, without torch; the
memory needed does not grow with the vocabulary. Anything else (other formats, other model types, names on the Hub that
are not fetched yet) is loaded with transformers, and a head without a row has to pass the probe of head.py.

Anisotropy. The paper gives numbers but no estimator. Here: the mean cosine of all pairs of two different rows, exactly,
by

    sum over i != j of u_i . u_j  =  |sum_i u_i|^2 - n        (u_i: the rows divided by their norms)

which costs one pass over the rows where the pairs would cost n^2 products. Rows of zeros have no direction: they are
left out of it, and counted.

Letters: V vocabulary, d width.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyserini_rescale.errors import ModelError
from pyserini_rescale.model.backbones import Backbone, backbone_for
from pyserini_rescale.model.policy import Policy, split_name
from pyserini_rescale.model.weights_file import INDEX, SINGLE, StoredTensor, read_json, shard_names, stored_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclasses.dataclass(frozen=True)
class HeadStats:
    """The head of one checkpoint.

    vocabulary, width: V and d. row_norm_*: of the rows of W_head, L2; std is the population's. zero_rows: rows of
    zeros. anisotropy: mean cosine of two different rows, None below two rows that are not zero. tied: head and input
    embedding are one matrix. bias_*: of the decoder bias, None where there is none. normalised_at_once: the word
    embedding meets its first LayerNorm with nothing added; None where only the model's code would tell. dtype: of the
    numbers in the file. policy: what config.json carries under our key, or None. norms: the row norms themselves, (V,)
    float64.
    """

    name: str
    model_type: str
    vocabulary: int
    width: int
    dtype: str
    tied: bool
    bias: bool
    bias_mean: float | None
    bias_min: float | None
    bias_max: float | None
    normalised_at_once: bool | None
    row_norm_mean: float
    row_norm_max: float
    row_norm_min: float
    row_norm_std: float
    zero_rows: int
    anisotropy: float | None
    policy: Policy | None
    norms: np.ndarray = dataclasses.field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the norms themselves, as values for JSON."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("norms", "policy")]
        return {name: getattr(self, name) for name in names} | {"policy": self.policy and self.policy.to_dict()}


def read_head_stats(name: str, *, trust_remote_code: bool = False) -> HeadStats:
    """Return the statistics of a folder, a .safetensors file beside its config.json, or a Hub id.

    Raises ModelError, in one line, for whatever is no masked language model with its head (see ``load_masked_lm``).
    """
    name, _ = split_name(str(name))
    folder, weights = _locate(name)
    stats = _from_files(name, folder, weights) if folder is not None else None
    if stats is not None:
        return stats
    if Path(name).is_file():
        raise ModelError(f"{name} holds no MLM head of a known backbone: name the folder, and transformers loads it")
    from pyserini_rescale.model.head import load_masked_lm

    return model_head_stats(name, load_masked_lm(name, trust_remote_code=trust_remote_code))


def model_head_stats(name: str, model: "PreTrainedModel") -> HeadStats:
    """Return the statistics of a loaded model; ``name`` is what it shall be called."""
    from pyserini_rescale.model.head import find_head, stored_policy

    head = find_head(model)
    weight = head.weight.detach()
    blocks = (part.double().cpu().numpy() for part in weight.split(4096))
    at_once = None
    if head.backbone is not None:
        summed = [name for name, _ in model.named_parameters() if name.removesuffix(".weight") in head.backbone.summed]
        at_once = not summed
    return _assemble(
        name=name,
        model_type=model.config.model_type,
        shape=tuple(weight.shape),
        dtype=str(weight.dtype).removeprefix("torch."),
        tied=head.tied,
        bias=None if head.bias is None else head.bias.detach().double().cpu().numpy(),
        normalised_at_once=at_once,
        policy=stored_policy(model),
        blocks=blocks,
    )


def row_norms_and_anisotropy(blocks: Iterable[np.ndarray], width: int) -> tuple[np.ndarray, float | None]:
    """Return the norms (V,) of the rows in ``blocks`` ((v, d) each, float64) and the mean cosine of two different rows.

    The cosine is None where fewer than two rows have a direction.
    """
    norms: list[np.ndarray] = []
    total = np.zeros(width)
    for block in blocks:
        lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
        with np.errstate(invalid="ignore"):  # of damaged numbers; the caller sees them in the norms
            total += np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0) @ block
        norms.append(lengths)
    joined = np.concatenate(norms)
    count = int(np.count_nonzero(joined))
    anisotropy = (float(total @ total) - count) / (count * (count - 1)) if count > 1 else None
    return joined, anisotropy


def _assemble(
    *, name: str, model_type: str, shape: tuple[int, ...], dtype: str, tied: bool, bias: np.ndarray | None,
    normalised_at_once: bool | None, policy: Policy | None, blocks: Iterator[np.ndarray],
) -> HeadStats:  # fmt: skip
    norms, anisotropy = row_norms_and_anisotropy(blocks, shape[1])
    if not np.isfinite(norms).all():
        raise ModelError(f"the head of {name} holds numbers that are NaN or infinite: the checkpoint is damaged")
    return HeadStats(
        name=name,
        model_type=model_type,
        vocabulary=shape[0],
        width=shape[1],
        dtype=dtype,
        tied=tied,
        bias=bias is not None,
        bias_mean=None if bias is None else float(bias.mean()),
        bias_min=None if bias is None else float(bias.min()),
        bias_max=None if bias is None else float(bias.max()),
        normalised_at_once=normalised_at_once,
        row_norm_mean=float(norms.mean()),
        row_norm_max=float(norms.max()),
        row_norm_min=float(norms.min()),
        row_norm_std=float(norms.std()),
        zero_rows=int((norms == 0).sum()),
        anisotropy=anisotropy,
        policy=policy,
        norms=norms,
    )


def _locate(name: str) -> tuple[Path | None, Path]:
    """Return (folder with config.json, folder or file with the weights); (None, ...) where transformers has to look."""
    path = Path(name)
    if path.is_file():
        if path.suffix != ".safetensors":
            raise ModelError(f"{name} is not a .safetensors file: name one, or the folder that holds config.json")
        if not (path.parent / "config.json").is_file():
            raise ModelError(f"there is no config.json beside {name}, which says how to read the head")
        return path.parent, path
    if path.is_dir():
        return (path if (path / "config.json").is_file() else None), path
    if not name or name.count("/") > 1 or name.startswith((".", "~", "/")) or name.endswith("/"):
        return None, path
    fetched = _fetch(name)
    return fetched, fetched or path


def _fetch(name: str) -> Path | None:
    """Return the cache folder of a Hub id, with its config and safetensors; None if they cannot be had that way."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    try:
        config = Path(hf_hub_download(name, "config.json"))
        try:
            hf_hub_download(name, SINGLE)
        except EntryNotFoundError:
            for shard in shard_names(Path(hf_hub_download(name, INDEX))):
                hf_hub_download(name, shard)
    except (OSError, ValueError, HfHubHTTPError, HFValidationError, EntryNotFoundError):
        return None  # transformers tries again, and its reason is the one that is shown
    return config.parent


def _from_files(name: str, folder: Path, weights: Path) -> HeadStats | None:
    """Return the statistics from safetensors alone, or None where it takes the model's code to be sure of the head."""
    config = read_json(folder / "config.json")
    row = backbone_for(str(config.get("model_type")))
    tensors = stored_tensors(weights)
    if row is None or tensors is None:
        return None
    head = next((tensors[key] for key in row.weight_keys() if key in tensors), None)
    bias = next((tensors[key] for key in row.bias_keys() if key in tensors), None)
    # Without a bias the file may be one of a bare encoder, whose word embedding is no head.
    if head is None or bias is None or len(head.shape) != 2 or head.shape[0] != config.get("vocab_size"):
        return None
    tied = _is_tied(row, config, tensors)
    if tied is None:
        return None
    return _assemble(
        name=name,
        model_type=row.model_type,
        shape=head.shape,
        dtype={"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(head.dtype, head.dtype),
        tied=tied,
        bias=np.concatenate(list(bias.blocks())).ravel(),
        normalised_at_once=not any(f"{path}.weight" in tensors for path in row.summed),
        policy=Policy.from_config(config),
        blocks=head.blocks(),
    )


def _is_tied(row: Backbone, config: dict[str, Any], tensors: dict[str, StoredTensor]) -> bool | None:
    """Return whether transformers would tie the head; None where the file lacks a matrix that it would need.

    All rows of the table are tied by default. A file may hold both matrices: they are tied then only if they are equal.
    """
    own, word = (tensors.get(key) for key in row.weight_keys())
    if not config.get("tie_word_embeddings", True):
        return False if own is not None and word is not None else None
    if own is None or word is None:
        return True
    if (own.shape, own.dtype) != (word.shape, word.dtype):
        return False
    return all(np.array_equal(a, b) for a, b in zip(own.blocks(), word.blocks(), strict=True))
