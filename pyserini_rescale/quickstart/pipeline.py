"""What a rescale, or an offset, of a trained head does: one backbone trained several times, searched with Pyserini, scored.

The backbone is one that comes with the package (model/shipped.py), the collection the docstrings that every machine has
(docstrings.py), the recipe regressions/training/mini.yaml. Per setting: train, then Pyserini's encode, index and search,
with the commands that anybody types; BM25 is beside them. All stages are recorded (regression/stages.py), so that a second
run repeats only what has changed. The chains of the settings run side by side, one thread each.
"""

import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

from pyserini_rescale.collections import DOCSTRINGS
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import at_home, write_json
from pyserini_rescale.regression import measures, stages
from pyserini_rescale.regression.layout import read_object
from pyserini_rescale.regression.planning import encode_stage, index_stage, search_stage, statistics_stage
from pyserini_rescale.regression.stages import Stage, Workplace
from pyserini_rescale.train.config import config_files, resolve
from pyserini_rescale.train.folder import LOG, MODEL, RECORD, locked

MARKER = "quickstart.json"
RECIPE = "mini"
BACKBONES = {"mini-modernbert": "modernbert", "mini-bert": "bert"}
"""Those that come with the package, and their variants of the recipe."""
SETTINGS = {
    "k1": "k = 1, standard SPLADE",
    "auto-k": "k as suggested",
    "auto-offset": "offset as suggested",
    "auto-k-offset": "both as suggested",
}
MEASURES = ("RR@10", "nDCG@10")
_WORK = "{work}"


@dataclasses.dataclass(frozen=True)
class Options:
    """work: the folder. backbone: one of ``BACKBONES``. changes: KEY=VALUE of the training configuration. workers: how
    many settings at a time. force: do again what is up to date."""

    work: Path = Path("runs/quickstart")
    backbone: str = next(iter(BACKBONES))
    changes: tuple[str, ...] = ()
    workers: int = 1
    force: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """One setting, before and after training. query_terms, document_terms: active ones, (first, last) logging step."""

    name: str
    k: float
    offset: float | None
    row_norm: float
    loss: tuple[float, float]
    query_terms: tuple[float, float]
    document_terms: tuple[float, float]
    measures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the quickstart found."""

    work: Path
    backbone: str
    counts: Mapping[str, Any]
    rows: tuple[Row, ...]
    bm25: dict[str, float]
    logs: tuple[Path, ...]
    stages: tuple[Stage, ...]
    seconds: float


def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Do everything; ``say`` gets a line before each part. Raises the stages' errors, ConfigError for the folder."""
    for name in SETTINGS:  # what cannot be trained is refused before minutes of other work
        resolve(_config(name, options), options.changes)
    work = _prepare(options.work)
    with locked(work, "--work", "running the quickstart"):
        return _run(work, options, say)


def _run(work: Path, options: Options, say: Callable[[str], None]) -> Outcome:
    started = time.monotonic()
    # Chains run side by side: two threads that share a core are many times slower than one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    place = Workplace(work, {_WORK: work})
    hook = stages.hook_is_active()
    lines = _Lines(sys.stderr)

    ending = threading.Event()

    def execute(chain: Sequence[Stage]) -> None:
        for stage in chain:
            if ending.is_set():
                return
            stages.run_stage(stage, place, force=options.force, hook=hook, show=lines)

    first, chains = _first_stages(work), {name: _chain(work, name, options) for name in SETTINGS}
    say("collecting docstrings: the standard library's to search, those of installed packages to train on; BM25")
    execute(first)
    say(f"training {options.backbone} {len(chains)} times, encoding, indexing and searching with each")
    with ThreadPoolExecutor(options.workers) as pool:
        try:
            for done in [pool.submit(execute, chain) for chain in chains.values()]:
                done.result()
        except (KeyboardInterrupt, SystemExit):
            ending.set()
            stages.end_running()
            raise

    qrels = measures.read_qrels(work / "collection" / "qrels.txt")
    outcome = Outcome(
        work=work,
        backbone=options.backbone,
        counts=read_object(work / "collection" / "counts.json"),
        rows=tuple(_row(work / name, name, qrels) for name in SETTINGS),
        bm25=measures.evaluate(MEASURES, qrels, measures.read_run(work / "bm25.txt")),
        logs=tuple(work / name / "training" / LOG for name in SETTINGS),
        stages=tuple(stage for chain in (first, *chains.values()) for stage in chain),
        seconds=time.monotonic() - started,
    )
    _write_result(outcome)
    return outcome


def _prepare(work: Path) -> Path:
    """Return the work folder, marked as ours; raise where it holds something else."""
    work = at_home(work)
    work = work if len(work.parts) > 1 else work.absolute()
    try:
        work.mkdir(parents=True, exist_ok=True)
        if any(work.iterdir()) and not (work / MARKER).exists():
            raise ConfigError(f"{work} holds other things: choose a new folder by --work")
        if not (work / MARKER).exists():
            write_json(work / MARKER, {})
    except OSError as error:
        raise ConfigError(f"{work} cannot be written: {one_line(error)}") from None
    return work


class _Lines:
    """A stream for the stages' progress: whole lines, since several chains write at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def _first_stages(work: Path) -> list[Stage]:
    python = ("python", "-m", "pyserini_rescale")
    collection, triples = work / "collection", work / "triples"
    return [
        Stage("collection", (*python, "collection", DOCSTRINGS, "--output", str(collection)), (), collection),
        Stage(
            "triples",
            (*python, "train", "mine", DOCSTRINGS, "--split", "train", "--output", str(triples / "triples.jsonl")),
            (),
            triples,
        ),
        Stage(
            "bm25",
            ("python", "-m", "pyserini_rescale.regression.bm25", "--collection", str(collection),
             "--output", str(work / "bm25.txt")),
            (collection,),
            work / "bm25.txt",
        ),
    ]  # fmt: skip


def _config(name: str, options: Options) -> str:
    return f"{RECIPE}:{BACKBONES[options.backbone]}.{name}"


def _chain(work: Path, name: str, options: Options) -> list[Stage]:
    """Return the stages of one setting, named NAME.STAGE."""
    folder, triples = work / name, work / "triples" / "triples.jsonl"
    model, embeddings, index = folder / "training" / MODEL, folder / "embeddings", folder / "index"
    changes = [part for change in options.changes for part in ("--set", change)]
    train = (
        "python", "-m", "pyserini_rescale", "train", "--config", _config(name, options), "--backbone", options.backbone,
        "--triples", str(triples), "--output", str(folder / "training"), *changes,
    )  # fmt: skip
    chain = [
        Stage("train", train, (triples, *config_files(_config(name, options))), folder / "training"),
        encode_stage(work / "collection" / "corpus", str(model), (model,), embeddings),
        index_stage(embeddings, index),
        statistics_stage(embeddings, index, folder / "statistics.json"),
        search_stage(index, work / "collection" / "topics.json", str(model), (model,), folder / "run.txt"),
    ]
    return [dataclasses.replace(stage, name=f"{name}.{stage.name}") for stage in chain]


def _row(folder: Path, name: str, qrels: measures.Qrels) -> Row:
    path = folder / "training" / RECORD
    record = read_object(path)

    def both(key: str) -> tuple[float, float]:
        return float(record["first"][key]), float(record["last"][key])

    try:
        start = record["start"]
        policy = start["policy"]
        row = Row(
            name=name,
            k=float(policy["k"]),
            offset=None if policy["offset_rule"] is None else float(policy["bias_offset"]),
            row_norm=float(start["row_norm"]["mean"]),
            loss=both("contrastive"),
            query_terms=both("query_active"),
            document_terms=both("document_active"),
            measures={},
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path} is not as the training wrote it ({one_line(error)}): remove {folder}") from None
    run = measures.read_run(folder / "run.txt")
    return dataclasses.replace(row, measures=measures.evaluate(MEASURES, qrels, run))


def _write_result(outcome: Outcome) -> None:
    plain = dataclasses.asdict(outcome)
    plain |= {"work": str(outcome.work), "logs": [str(path) for path in outcome.logs]}
    plain["stages"] = [stages.shell_form(stage.argv) for stage in outcome.stages]
    write_json(outcome.work / MARKER, {**plain, **stages.environment()})
