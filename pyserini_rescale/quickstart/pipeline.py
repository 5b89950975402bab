"""The main job from end to end: collection, backbone, rescale, then Pyserini's encode, index and search, then scores.

Everything lies in one work folder, which is marked as ours by quickstart.json; a second run repeats what has changed.
The collection is docstrings.py's, the backbone is backbone.py's.
"""

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_rescale.collections import Counts, write_pyserini_form
from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.files import write_json
from pyserini_rescale.quickstart import backbone
from pyserini_rescale.quickstart.docstrings import Passage, as_collection, read_passages
from pyserini_rescale.regression import measures, stages
from pyserini_rescale.regression.runner import encode_stage, index_stage, search_stage, statistics_stage
from pyserini_rescale.regression.stages import Stage, Workplace

MARKER = "quickstart.json"
FACTOR = 16.0
QUERIES = 300
HITS = 100
MEASURES = ("RR@10", "nDCG@10")
_BATCH = 32


@dataclasses.dataclass(frozen=True)
class Options:
    """work: the folder; k: the factor the head is divided by; documents: how many, None for all; force: redo all."""

    work: Path = Path("runs/quickstart")
    k: float = FACTOR
    documents: int | None = None
    threads: int = 1
    force: bool = False


@dataclasses.dataclass(frozen=True)
class InMemory:
    """One model scored with exact dot products, without Pyserini. Terms are means over texts."""

    k: float
    row_norm: float
    query_terms: float
    document_terms: float
    measures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Example:
    """One query with its first hits and the place of the document it was cut from (None: not among the hits)."""

    query: str
    document: str
    place: int | None
    hits: tuple[tuple[str, float, str], ...]  # id, score, text


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the quickstart found. ``measures`` are of the run that Pyserini made."""

    work: Path
    counts: Counts
    before: InMemory
    after: InMemory
    statistics: dict[str, Any]
    measures: dict[str, float]
    examples: tuple[Example, ...]
    stages: tuple[Stage, ...]
    seconds: float


def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Do everything; ``say`` gets a line before each step. Raises the steps' errors, ConfigError for the folder."""
    started = time.monotonic()
    work = _prepare(options.work)
    say("reading the docstrings of this Python's standard library")
    passages = _passages(options)
    counts = write_pyserini_form(as_collection(passages, QUERIES), work / "collection")
    texts = {passage.id: passage.text for passage in passages}
    topics = {name: entry["title"] for name, entry in json.loads((work / "collection/topics.json").read_text()).items()}
    qrels = measures.read_qrels(work / "collection" / "qrels.txt")

    say(f"making a backbone ({backbone.SUMMARY}) and rescaling its head by {options.k:g}")
    before, after = _make_model(passages, texts, topics, qrels, work / "model", options.k)

    chain = _stages(work, options.threads)
    place = Workplace(work, {"{work}": work})
    hook = stages.hook_is_active()
    for stage in chain:
        say(stages.shell_form(stage.argv))
        stages.run_stage(stage, place, force=options.force, hook=hook)

    run_file = measures.read_run(work / "run.txt")
    outcome = Outcome(
        work=work,
        counts=counts,
        before=before,
        after=after,
        statistics=json.loads((work / "statistics.json").read_text(encoding="utf-8")),
        measures=measures.evaluate(MEASURES, qrels, run_file),
        examples=tuple(_examples(topics, texts, run_file)),
        stages=tuple(chain),
        seconds=time.monotonic() - started,
    )
    _write_result(outcome)
    return outcome


def _prepare(work: Path) -> Path:
    """Return the work folder, marked as ours; raise where it holds something else."""
    work = work.expanduser()
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


def _passages(options: Options) -> list[Passage]:
    passages = read_passages()
    if options.documents is None:
        return passages
    if options.documents < 10:
        raise ConfigError(f"--documents {options.documents}: 10 or more are needed")
    step = max(1, len(passages) // options.documents)
    return passages[::step][: options.documents]


def _make_model(
    passages: list[Passage],
    texts: dict[str, str],
    topics: dict[str, str],
    qrels: measures.Qrels,
    folder: Path,
    k: float,
) -> tuple[InMemory, InMemory]:
    """Make the backbone, score it in memory, rescale, score again, save it to ``folder``; return both scores."""
    from pyserini_rescale.model.head import rescale_head, save_model

    model, tokenizer = backbone.make([f"{passage.query} {passage.text}" for passage in passages])
    before = _score(model, tokenizer, 1.0, texts, topics, qrels)
    if k == 1:
        after = before
    else:
        rescale_head(model, k)
        after = _score(model, tokenizer, k, texts, topics, qrels)
    shutil.rmtree(folder, ignore_errors=True)
    save_model(model, tokenizer, folder)
    return before, after


def _score(
    model: Any, tokenizer: Any, k: float, texts: dict[str, str], topics: dict[str, str], qrels: measures.Qrels
) -> InMemory:
    from pyserini_rescale.model.head import find_head

    documents = _impacts(model, tokenizer, list(texts.values()))  # (documents, V)
    queries = _impacts(model, tokenizer, list(topics.values()))  # (queries, V)
    scores = queries.astype(np.float32) @ documents.astype(np.float32).T  # exact below 2**24
    ids = list(texts)
    found: measures.Run = {}
    for name, row in zip(topics, scores, strict=True):
        first = np.argsort(-row, kind="stable")[:HITS]
        found[name] = [
            measures.Hit(ids[place], rank, float(row[place])) for rank, place in enumerate(first, 1) if row[place] > 0
        ]
    return InMemory(
        k=k,
        row_norm=float(find_head(model).weight.detach().norm(dim=1).mean()),
        query_terms=float((queries > 0).sum(axis=1).mean()),
        document_terms=float((documents > 0).sum(axis=1).mean()),
        measures=measures.evaluate(MEASURES, qrels, found),
    )


def _impacts(model: Any, tokenizer: Any, texts: Sequence[str]) -> np.ndarray:
    """Return the impacts (texts, V) of texts, with the rounding that the encoders have."""
    from pyserini_rescale.encode.quantize import quantize
    from pyserini_rescale.model.head import find_head
    from pyserini_rescale.model.policy import Policy
    from pyserini_rescale.model.splade import micro_batches, pad, splade_vectors

    head, policy = find_head(model), Policy()
    sequences = tokenizer(list(texts), truncation=True)["input_ids"]
    result = np.zeros((len(sequences), head.weight.shape[0]), dtype=np.int32)
    for batch in micro_batches([len(sequence) for sequence in sequences], _BATCH, 2**12):
        ids, mask = pad([sequences[number] for number in batch], tokenizer.pad_token_id)
        vectors = splade_vectors(model, head, ids, mask).numpy()
        result[batch] = quantize(vectors, policy.weight_range, policy.quant_range)
    return result


def _stages(work: Path, threads: int) -> list[Stage]:
    model, embeddings, index = work / "model", work / "embeddings", work / "index"
    return [
        encode_stage(work / "collection" / "corpus", str(model), (model,), embeddings),
        index_stage(embeddings, index, str(threads)),
        statistics_stage(embeddings, index, work / "statistics.json"),
        search_stage(index, work / "collection" / "topics.json", str(model), (model,), work / "run.txt", HITS),
    ]


def _examples(topics: dict[str, str], texts: dict[str, str], run_file: measures.Run) -> list[Example]:
    """Return the first query of each kind: answered at rank 1, at rank 2 to 10, and not in the first 10."""
    found: dict[str, Example] = {}
    for name, query in topics.items():
        hits = run_file.get(name, [])
        order = measures.ranked(hits)
        place = order.index(name) + 1 if name in order else None
        kind = "first" if place == 1 else "near" if place is not None and place <= 10 else "far"
        if kind not in found:
            scores = {hit.document: hit.score for hit in hits}
            first = tuple((document, scores[document], texts[document]) for document in order[:3])
            found[kind] = Example(query, name, place, first)
    return [found[kind] for kind in ("first", "near", "far") if kind in found]


def _write_result(outcome: Outcome) -> None:
    plain = dataclasses.asdict(outcome)
    plain["work"] = str(outcome.work)
    plain["stages"] = [stages.shell_form(stage.argv) for stage in outcome.stages]
    write_json(outcome.work / MARKER, {**plain, "backbone": backbone.SUMMARY, **stages.environment()})
