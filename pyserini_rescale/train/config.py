"""What a training run is, read from YAML: backbone, rescale, data, loss, regulariser, optimiser, places.

A file may extend another (``extends: paper.yaml``, beside it or among the shipped ones in regressions/training) and may
hold ``variants``, named sets of changes; FILE:VARIANT names one. ``--set a.b=value`` changes come last. What remains is
checked as a whole against the classes below: a key that is not declared here is a fault, and all faults are reported
together. No number stands here that the paper's recipe states: regressions/training/paper.yaml holds those.
"""

import copy
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.files import at_home
from pyserini_rescale.model.policy import TARGET_ACTIVE
from pyserini_rescale.yaml_files import default_folder, fault_line, parse_yaml, read_table

DEEPSPEED_FILE = "zero1.yaml"

Positive = Annotated[int, pydantic.Field(gt=0)]
Count = Annotated[int, pydantic.Field(ge=0)]
Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
NotNegative = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, pydantic.Field(ge=0, le=1)]
PositiveNumber = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Over = Literal["rank", "global"]
Word = Annotated[str, pydantic.StringConstraints(min_length=1, pattern=r"\S")]
# A part of a path: the default output folder is named so.
RunName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+=-]*$")]


class _Section(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class BackboneConfig(_Section):
    """The masked language model to start from.

    name: folder or Hub id. inflate: its untied decoder multiplied by this beforehand, an artificial large head for
    experiments (the tie is broken). trust_remote_code: whether code that comes with the model may run.
    """

    name: Word
    inflate: PositiveNumber | None = None
    trust_remote_code: bool = False


class RescaleConfig(_Section):
    """What is done to the head before training (model/calibrate.py).

    factor: k of arXiv 2606.18811, Eq. 6, "auto", or null: leave the head as it is. scope: shared (the paper's),
    balanced, untied; null takes the safest that the model allows. bias: whether the decoder's bias is divided too.
    shift: what is subtracted from the logits, by way of the bias: a number, "auto", "per-term", or null.
    target_active: share of the vocabulary active per document that a shift of auto or per-term aims at.
    """

    factor: PositiveNumber | Literal["auto"] | None = None
    scope: Literal["shared", "balanced", "untied"] | None = None
    bias: bool = False
    shift: Finite | Literal["auto", "per-term"] | None = None
    target_active: Annotated[float, pydantic.Field(gt=0, lt=1)] = TARGET_ACTIVE


class DataConfig(_Section):
    """Triples of query, positive and hard negative: a data set of the Hub, or local files.

    hub, subset, split: as ``datasets.load_dataset`` takes them. files: .jsonl, .tsv, .csv or .parquet, also gzipped;
    patterns allowed. columns: the source's names of query, positive and negative. rows: how many there are, for a dry
    run without the data; another number is warned about. limit: only the first so many. skip_bad: count bad rows
    instead of stopping at the first.
    """

    hub: Word | None = None
    subset: Word | None = None
    split: Word = "train"
    files: list[Word] = []
    columns: Annotated[dict[Literal["query", "positive", "negative"], Word], pydantic.Field(validate_default=True)] = {}
    rows: Positive | None = None
    limit: Positive | None = None
    skip_bad: bool = False

    @pydantic.field_validator("columns")
    @classmethod
    def _all_columns(cls, given: dict[str, str]) -> dict[str, str]:
        names = {name: given.get(name, name) for name in ("query", "positive", "negative")}
        if len(set(names.values())) < len(names):
            raise ValueError(f"one column is named twice ({', '.join(names.values())})")
        return names

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> "DataConfig":
        if (self.hub is None) == (not self.files):
            raise ValueError("exactly one of hub and files is needed")
        return self


class TextConfig(_Section):
    """How texts become tokens; travels with the checkpoint (its tokenizer's files, and our key in config.json).

    query_length, document_length: tokens, special ones included. lowercase, prefix_space: put into the tokenizer where
    true (a cased byte-level tokenizer has another token for a word at the start of a text than later). special_tokens:
    whether terms such as [CLS] keep their weight in a vector.
    """

    query_length: Positive
    document_length: Positive
    lowercase: bool = False
    prefix_space: bool = False
    special_tokens: bool = True


class LossConfig(_Section):
    """In-batch contrastive loss (arXiv 2606.18811, Eq. 4).

    temperature: tau. candidates: "rank" (the 2B of the query's own process, as plain DDP does) or "global" (those of
    all processes).
    """

    temperature: PositiveNumber
    candidates: Over


class RegularizerConfig(_Section):
    """FLOPS regularisation (arXiv 2606.18811, Eq. 5; Paria et al., arXiv 2004.05665).

    query, document: the two lambdas at full strength. ramp: share of all optimiser steps in which they rise from 0,
    quadratically. batch: whether the mean activation of a term is taken per process ("rank") or over all ("global").
    """

    query: NotNegative
    document: NotNegative
    ramp: Share
    batch: Over


class OptimizerConfig(_Section):
    """AdamW, linear decay after a linear warm-up.

    learning_rate: its peak, where the warm-up ends. weight_decay: AdamW's. warmup_ratio: share of all optimiser steps.
    max_grad_norm: L2 norm that gradients are cut to, 0 for none.

    head_rate: the head's matrix (tied: the word embeddings) learns at this multiple of the learning rate; "1/k" for the
    reciprocal of the rescale factor. Adam's step does not depend on the size of a weight, so a matrix divided by k moves
    k times as fast in proportion; 1/k gives what dividing the logits, and not the matrix, would give.
    """

    learning_rate: PositiveNumber
    head_rate: PositiveNumber | Literal["1/k"] = 1.0
    weight_decay: NotNegative
    warmup_ratio: Share
    max_grad_norm: NotNegative


class BatchConfig(_Section):
    """How many triples make one optimiser step: the product of the three.

    per_device: triples a process takes at once. world_size: processes. accumulation: micro-batches one after another.
    """

    per_device: Annotated[int, pydantic.Field(gt=0, le=1_000_000)]
    world_size: Annotated[int, pydantic.Field(gt=0, le=100_000)]
    accumulation: Annotated[int, pydantic.Field(gt=0, le=1_000_000)] = 1


class ComputeConfig(_Section):
    """What computes, and how. device: cuda or cpu. precision: bf16 or fp32. deepspeed: a file (YAML or JSON), or null for plain PyTorch.

    Under DeepSpeed bf16 means bf16 parameters with float32 master weights; without it, float32 parameters and autocast.
    fused_head: never hold the logits (model/fused.py); false takes the plain form. gradient_checkpointing: recompute
    activations in the backward pass. workers: data-loading processes. threads: of PyTorch on a CPU, null for its own
    choice; with another number, sums are rounded otherwise and a run ends with slightly other weights.
    """

    device: Literal["cuda", "cpu"]
    precision: Literal["bf16", "fp32"]
    deepspeed: Word | None
    fused_head: bool = True
    gradient_checkpointing: bool = False
    workers: Count = 0
    threads: Positive | None = None


class CollapseConfig(_Section):
    """When training is given up as collapsed (monitors.py).

    action: stop or warn. dense: share of the vocabulary that is active in the mean query or document. empty: share of
    queries or documents without a term. patience: logging steps in a row. after: share of all steps before which dense
    is not counted, since large heads start dense.
    """

    action: Literal["stop", "warn"] = "stop"
    dense: Share = 0.5
    empty: Share = 0.5
    patience: Positive = 10
    after: Share = 0.1


class MonitorConfig(_Section):
    """What is written down on the way. every: optimiser steps between two log lines. tensorboard: whether event files are written too."""

    every: Positive = 10
    tensorboard: bool = True
    collapse: CollapseConfig = CollapseConfig()


class CheckpointConfig(_Section):
    """What a killed run goes on from. every: optimiser steps between two checkpoints, null for none. keep: how many of the newest stay."""

    every: Positive | None = 200
    keep: Positive = 2


class TrainConfig(_Section):
    """A training run.

    name: left out, that of the variant or the file. output: its folder, which receives config.yaml, log.jsonl,
    checkpoints, and model/ at the end; left out, runs/train/ and the name. epochs: over the data. max_steps: optimiser steps
    after which it ends earlier. seed: of the shuffling and of dropout.
    """

    name: RunName
    backbone: BackboneConfig
    rescale: RescaleConfig
    data: DataConfig
    text: TextConfig
    loss: LossConfig
    regularizer: RegularizerConfig
    optimizer: OptimizerConfig
    batch: BatchConfig
    compute: ComputeConfig
    epochs: Annotated[float, pydantic.Field(gt=0, le=1e6)]
    max_steps: Positive | None = None
    seed: Annotated[int, pydantic.Field(ge=0, lt=2**32)]
    output: Word
    checkpoints: CheckpointConfig = CheckpointConfig()
    monitors: MonitorConfig = MonitorConfig()

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> "TrainConfig":
        faults = []
        if self.rescale.bias and self.rescale.factor is None:
            faults.append("rescale.bias: the bias is divided by the factor, and there is none")
        if self.rescale.factor == "auto" and isinstance(self.rescale.shift, float):
            faults.append("rescale.shift: a number belongs to one factor; with factor auto use auto or per-term")
        if self.backbone.inflate is not None and self.rescale.scope in ("shared", "balanced"):
            faults.append("rescale.scope: an inflated decoder is untied: use untied")
        if self.monitors.collapse.action == "stop" and self.monitors.collapse.dense == 0:
            faults.append("monitors.collapse.dense: 0 stops every run")
        if faults:
            raise ValueError("; ".join(faults))
        return self


def training_folder() -> Path:
    """Return the folder of the shipped configurations."""
    return default_folder() / "training"


def resolve(name: str, changes: Sequence[str] = ()) -> TrainConfig:
    """Return the configuration FILE or FILE:VARIANT with ``changes`` ("a.b=value", the value as YAML).

    FILE is a path, or the name of a shipped file with or without .yaml. Raises ConfigError with every fault.
    """
    raw, label = read_raw(name)
    for change in changes:
        raw = _changed(raw, change)
    raw.setdefault("name", label)
    raw.setdefault("output", f"runs/train/{raw['name']}")
    try:
        return TrainConfig.model_validate(raw)
    except pydantic.ValidationError as error:
        faults = _faults(error)
        raise ConfigError(f"{len(faults)} fault(s) in {name}: {'; '.join(faults)}") from None


def _faults(error: pydantic.ValidationError) -> list[str]:
    """Return pydantic's errors, one line a key: the branches of a union are one fault."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for detail in error.errors():
        keys = tuple(part for part in detail["loc"] if not _is_branch(part))
        if keys in found and found[keys]["msg"] != detail["msg"]:
            found[keys]["msg"] += f", or: {detail['msg']}"
        else:
            found.setdefault(keys, {**detail, "loc": keys})
    return sorted(fault_line(detail).replace("Value error, ", "") for detail in found.values())


def _is_branch(part: Any) -> bool:
    return isinstance(part, str) and (
        part in ("float", "int", "str") or part.startswith(("literal[", "constrained", "function-", "list["))
    )


def read_raw(name: str) -> tuple[dict[str, Any], str]:
    """Return (the merged content, a name for it) of FILE or FILE:VARIANT, before any check of keys."""
    path, variant = find_file(name)
    raw = _merged(path, ())
    variants = raw.pop("variants")
    if variant is None:
        if variants:
            shown = ", ".join(list(variants)[:4])
            raise ConfigError(
                f"{name} holds {len(variants)} variants ({shown}, ...): name one, as in {name}:{next(iter(variants))}"
            )
        return raw, path.stem
    if variant not in variants:
        near = difflib.get_close_matches(variant, variants, n=3, cutoff=0.3) or list(variants)[:3]
        raise ConfigError(f"{path.name} has no variant {variant!r} (near: {', '.join(near) or 'it has none'})")
    return _merge(raw, variants[variant], f"{path.name}: variants.{variant}"), variant


def find_file(name: str) -> tuple[Path, str | None]:
    """Return (path, variant or None) that ``name`` means; ConfigError where there is no such file."""
    file, _, variant = name.partition(":")
    try:
        if at_home(name).is_file():
            return at_home(name), None
        if at_home(file).is_file():
            return at_home(file), variant or None
    except (OSError, ValueError) as error:  # names that no file system takes
        raise ConfigError(f"--config {name[:80]!r} cannot be a file: {one_line(error)}") from None
    if "/" not in file:
        for candidate in (training_folder() / file, training_folder() / f"{file}.yaml"):
            if candidate.name != DEEPSPEED_FILE and candidate.is_file():
                return candidate, variant or None
    known = ", ".join(sorted(path.stem for path in training_folder().glob("*.yaml") if path.name != DEEPSPEED_FILE))
    near = [one for one in shipped() if one.partition(":")[2] == name]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ConfigError(
        f"there is no configuration {file}: neither a file nor a shipped one ({known}); {hint}`train list` names all"
    )


def config_files(name: str) -> list[Path]:
    """Return the files that a configuration is read from, itself first and what it extends after it."""
    path, _ = find_file(name)
    files = [path]
    while (parent := read_table(path).get("extends")) is not None:
        path = _extended(path, parent)
        files.append(path)
    return files


def shipped() -> list[str]:
    """Return the names of all shipped configurations, FILE or FILE:VARIANT, those of files with few variants first."""
    files = {}
    for path in sorted(training_folder().glob("*.yaml")):
        if path.name != DEEPSPEED_FILE:
            files[path.stem] = _merged(path, ())["variants"]
    order = sorted(files, key=lambda stem: (len(files[stem]), stem))
    return [name for stem in order for name in [f"{stem}:{variant}" for variant in files[stem]] or [stem]]


def _merged(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in above:
        raise ConfigError(f"{path} extends itself")
    raw = read_table(path)
    parent = raw.pop("extends", None)
    if parent is None:
        return {**raw, "variants": _variants(raw.pop("variants", None), None, path)}
    base = _merged(_extended(path, parent), (*above, path.resolve()))
    variants = _variants(raw.pop("variants", None), base.pop("variants", None), path)
    return {**_merge(base, raw, str(path)), "variants": variants}


def _extended(path: Path, parent: Any) -> Path:
    if not isinstance(parent, str):
        raise ConfigError(f"{path}: extends: the name of a file is needed")
    for place in (path.parent / parent, training_folder() / parent):
        if place.is_file():
            return place
    raise ConfigError(f"{path}: extends: there is no {parent} beside it or among the shipped ones")


def _variants(axes: Any, inherited: dict[str, Any] | None, path: Path) -> dict[str, Any]:
    """Return name -> changes: a table as it is, a list of tables crossed, names joined by dots.

    An item of the list may also be a list of names of the extended file's variants.
    """
    result: dict[str, Any] = {}
    inherited = inherited or {}
    axes = [axes] if isinstance(axes, dict) else axes or []
    for axis in axes if isinstance(axes, list) else [axes]:
        if isinstance(axis, list):
            unknown = [name for name in axis if not isinstance(name, str) or name not in inherited]
            if unknown:
                raise ConfigError(f"{path}: variants: the extended file has no {', '.join(map(str, unknown))}")
            axis = {name: inherited[name] for name in axis}
        if not isinstance(axis, dict):
            raise ConfigError(f"{path}: variants: a table of named changes is needed, or a list of such tables")
        if wrong := [name for name, changes in axis.items() if not isinstance(changes, dict)]:
            raise ConfigError(f"{path}: variants.{wrong[0]} is not a table of keys")
        axis = {str(name): changes for name, changes in axis.items()}
        pairs = [
            (f"{first}.{second}", _merge(one, other, f"{path}: variants.{second}"))
            for first, one in result.items()
            for second, other in axis.items()
        ]
        crossed = dict(pairs) if result else axis
        if len(crossed) < len(pairs):
            raise ConfigError(f"{path}: variants: two of them would have one name")
        result = crossed
    return result


def _merge(base: dict[str, Any], changes: Any, where: str) -> dict[str, Any]:
    """Return ``base`` with ``changes`` laid over it, table by table."""
    if not isinstance(changes, dict):
        raise ConfigError(f"{where} is not a table of keys")
    result = copy.deepcopy(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merge(result[key], value, f"{where}: {key}") if both else copy.deepcopy(value)
    # One source of data replaces the other, and what was known of it.
    lost = set()
    if "files" in changes and "hub" not in changes:
        lost = {"hub", "subset", "rows"}
    elif "hub" in changes and changes["hub"] != base.get("hub"):
        lost = {"files", "subset", "rows"}
    elif "subset" in changes and changes["subset"] != base.get("subset"):
        lost = {"rows"}
    for key in lost - set(changes):
        result.pop(key, None)
    return result


def _changed(raw: dict[str, Any], change: str) -> dict[str, Any]:
    key, equals, text = change.partition("=")
    parts = key.split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {change}: KEY=VALUE is needed, as in --set optimizer.learning_rate=5e-4")
    try:
        value = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(f"--set {change}: the value is not YAML: {one_line(error)}") from None
    nested: Any = value
    for part in reversed(parts):
        nested = {part: nested}
    return _merge(raw, nested, f"--set {key}")
