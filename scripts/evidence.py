"""Scale against offset on the mini backbones: a grid of trainings, measured with exact dot products. Offline.

    python scripts/evidence.py run --work runs/evidence --workers 2             # about two minutes a training and core
    python scripts/evidence.py run --work runs/evidence --only core             # three seeds of the main settings
    python scripts/evidence.py report --work runs/evidence --output docs/evidence
    python scripts/evidence.py expected --work runs/evidence --output regressions/models/mini.yaml

Every cell is one training by regressions/training/mini.yaml on the training split of its collection (docstrings of
installed packages; SciFact's training claims, below PYSERINI_RESCALE_DATA), with negatives mined by BM25, then the whole
collection encoded and searched. Scores are dot products of the integers that our encoders give, which is what Lucene
adds up; measures are trec_eval's. `regress run docstrings.mini-modernbert.k16` does the same through Pyserini. Results are one JSON
file a cell; what is there is not done again, and a cell belongs to the worker that made its folder first.
"""

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

BACKBONES = ("modernbert", "bert")
COLLECTIONS = ("docstrings", "scifact")
CORE = ("k1", "k4", "k16", "auto-offset", "per-term-offset", "auto-k-offset")
GRID = (
    "auto-k", "k2", "k8", "k32", "k64", "k2-offset", "k4-offset", "k8-offset", "k16-offset", "auto-k-offset-shared",
    "offset-5", "offset-15", "k16-head-rate", "k4-offset-head-rate", "k16-offset-head-rate", "k16-balanced", "k16-untied",
    "k1-paper-rate", "k16-paper-rate", "auto-offset-paper-rate", "k16-long", "auto-offset-long", "auto-k-offset-long",
)  # fmt: skip
SEEDS = (1, 2, 3)
MEASURES = ("RR@10", "nDCG@10", "R@100", "R@1000")
HITS = 1000
RESULT_KEYS = frozenset({"collection", "backbone", "setting", "seed", "measures", "flops", "date", "versions"})
_BATCH = 64
_CURVE_POINTS = 60


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """One training and its evaluation."""

    collection: str
    backbone: str
    setting: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.collection}.{self.backbone}.{self.setting}.s{self.seed}"


def cells(only: str | None = None) -> list[Cell]:
    """Return all cells in the order in which they are worth having: first seeds of the main settings, then the rest."""
    core = [
        Cell(collection, backbone, setting, seed)
        for seed in SEEDS
        for collection in COLLECTIONS
        for backbone in BACKBONES
        for setting in CORE
    ]
    grid = [
        Cell(collection, backbone, setting, SEEDS[0])
        for collection in COLLECTIONS
        for backbone in BACKBONES
        for setting in GRID
    ]
    first = len(core) // len(SEEDS)
    return core if only == "core" else [*core[:first], *grid, *core[first:]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="train and measure what is not there yet")
    run.add_argument("--only", choices=("core",), help="only the main settings")
    run.add_argument("--match", help="only cells whose name has this in it")
    run.add_argument("--workers", type=int, default=1, help="processes, one thread each (default 1)")
    run.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    report = actions.add_parser("report", help="tables and figures of what is there")
    report.add_argument("--output", type=Path, required=True, metavar="DIR", help="receives tables.md and figures")
    expected = actions.add_parser("expected", help="the regressions' expected values out of what is there")
    expected.add_argument("--output", type=Path, required=True, metavar="FILE", help="regressions/models/mini.yaml")
    for action in (run, report, expected):
        action.add_argument("--work", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    if args.action == "report":
        import evidence_report

        return evidence_report.write(args.work / "results", args.output)
    if args.action == "expected":
        import evidence_expected

        args.output.write_text(evidence_expected.expected(args.work / "results"), encoding="utf-8")
        return 0
    todo = [cell for cell in cells(args.only) if not args.match or args.match in cell.name]
    if args.worker:
        return work_on(todo, args.work)
    prepare_data(args.work, {cell.collection for cell in todo})
    os.environ["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, *sys.argv, "--worker"]
    workers = [subprocess.Popen(command) for _ in range(args.workers)]
    return max(worker.wait() for worker in workers)


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results in WORK/results; leave with one line where there is none, or one is not ours."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise SystemExit(f"error: {folder} holds no results: `evidence.py run --work {folder.parent}` makes them")
    found = []
    for path in paths:
        try:
            one = json.loads(path.read_text(encoding="utf-8"))
            missing = RESULT_KEYS - one.keys()
        except (OSError, ValueError, AttributeError) as error:
            raise SystemExit(f"error: {path} cannot be read ({error}): remove it and measure the cell again") from None
        if missing:
            raise SystemExit(f"error: {path} lacks {sorted(missing)[0]}: remove it and measure the cell again")
        found.append(one)
    return found


def source_of(collection: str) -> str:
    """Return what `collection` and `train mine` take."""
    from pyserini_rescale.collections import DATA_VARIABLE

    if collection == "docstrings":
        return collection
    return str(Path(os.environ.get(DATA_VARIABLE, "data")) / collection)


def prepare_data(work: Path, collections: set[str]) -> None:
    """Write WORK/data/COLLECTION/{test/,triples.jsonl} with the commands that anybody would type."""
    for name in sorted(collections):
        folder = work / "data" / name
        command = [sys.executable, "-m", "pyserini_rescale"]
        if not (folder / "test").is_dir():
            subprocess.run([*command, "collection", source_of(name), "--output", str(folder / "test")], check=True)
        if not (folder / "triples.jsonl").is_file():
            mine = ["train", "mine", source_of(name), "--split", "train", "--output", str(folder / "triples.jsonl")]
            subprocess.run([*command, *mine], check=True)


def work_on(todo: Sequence[Cell], work: Path) -> int:
    """Do the cells that nobody has begun, one after another; a cell that fails leaves FAILED in its folder."""
    failed = 0
    for cell in todo:
        folder = work / "cells" / cell.name
        if (work / "results" / f"{cell.name}.json").exists():
            continue
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        try:
            do(cell, work, folder)
        except Exception as error:  # whatever it is, the other cells go on
            failed = 1
            (folder / "FAILED").write_text(f"{type(error).__name__}: {error}\n")
            print(f"{cell.name} failed: {error}", flush=True)
    return failed


def do(cell: Cell, work: Path, folder: Path) -> None:
    """Train and measure one cell; write its result, keep its log, drop its weights."""
    from pyserini_rescale.environment import describe, installed
    from pyserini_rescale.files import write_json
    from pyserini_rescale.train.config import resolve
    from pyserini_rescale.train.folder import FACTS, LOG, MODEL, RECORD, START
    from pyserini_rescale.train.run import train

    data = work / "data" / cell.collection
    changes = [
        f"seed={cell.seed}", f"data.files=[{data / 'triples.jsonl'}]", f"output={folder / 'training'}",
    ]  # fmt: skip
    started = time.monotonic()
    train(resolve(f"mini:{cell.backbone}.{cell.setting}", changes), resume=False, say=lambda text: None)
    trained = time.monotonic()
    training = folder / "training"
    record = json.loads((training / RECORD).read_text())
    measured = measure(training / MODEL, data / "test")
    facts = json.loads((training / FACTS).read_text())
    result = {
        **dataclasses.asdict(cell),
        "k": facts["policy"]["k"],
        "scope": facts["policy"]["scope"],
        "offset": facts["policy"]["bias_offset"],
        "offset_rule": facts["policy"]["offset_rule"],
        "row_norm": facts["row_norm"]["mean"],
        "first": record["first"],
        "last": record["last"],
        **measured,
        "before_training": activity(training / START, data / "test") if cell.seed == SEEDS[0] else None,
        "seconds": {"training": round(trained - started), "measuring": round(time.monotonic() - trained)},
        "collection_sha256": json.loads((data / "test" / "counts.json").read_text())["sha256"],
        "triples_sha256": json.loads((data / "triples.jsonl.json").read_text())["sha256"],
        "date": date.today().isoformat(),
        **describe(installed(("pyserini-rescale", "pyserini", "torch", "transformers", "tokenizers"))),
    }
    logs = work / "logs"
    logs.mkdir(exist_ok=True)
    shutil.copy(training / LOG, logs / f"{cell.name}.jsonl")
    (work / "results").mkdir(exist_ok=True)
    write_json(work / "results" / f"{cell.name}.json", result)
    shutil.rmtree(folder)
    found = result["measures"]
    print(
        f"{cell.name}: RR@10 {found['RR@10']:.4f}, FLOPs {result['flops']:.2f}, "
        f"{result['seconds']['training']} + {result['seconds']['measuring']} s",
        flush=True,
    )


def measure(model: Path, collection: Path) -> dict[str, Any]:
    """Encode collection and topics, score all pairs exactly; return measures, FLOPs and activity."""
    from pyserini_rescale.encode.encoder import SpladeRescaledDocumentEncoder, SpladeRescaledQueryEncoder
    from pyserini_rescale.regression import measures

    corpus = [json.loads(line) for line in (collection / "corpus" / "corpus.jsonl").open(encoding="utf-8")]
    topics = {name: entry["title"] for name, entry in json.loads((collection / "topics.json").read_text()).items()}
    qrels = measures.read_qrels(collection / "qrels.txt")
    encoder = SpladeRescaledDocumentEncoder(str(model), device="cpu")
    documents = vectors_of(encoder, corpus)
    query_encoder = SpladeRescaledQueryEncoder(str(model), device="cpu")
    queries = as_matrix(query_encoder, (query_encoder.encode(text) for text in topics.values()), len(topics))
    names = np.array([document["id"] for document in corpus])
    run: measures.Run = {}
    for number, topic in enumerate(topics):
        scores = np.asarray((documents @ queries[number].T).todense()).ravel()  # integers: exact
        # The order of trec_eval: ties by id, descending.
        order = np.lexsort((names, scores))[::-1][:HITS]
        run[topic] = [
            measures.Hit(str(names[place]), rank, float(scores[place]))
            for rank, place in enumerate(order, 1)
            if scores[place] > 0
        ]
    query_share, document_share = shares(queries), shares(documents)
    return {
        "measures": measures.evaluate(MEASURES, qrels, run),
        # Expected number of products per pair of query and document: sum_j P(q_j > 0) P(d_j > 0) (arXiv 2004.05665).
        "flops": float(query_share @ document_share),
        "query_terms": float(query_share.sum()),
        "document_terms": float(document_share.sum()),
        "empty_documents": int((documents.getnnz(axis=1) == 0).sum()),
        "empty_queries": int((queries.getnnz(axis=1) == 0).sum()),
        "document_activity": curve(document_share),
    }


def activity(model: Path, collection: Path, most: int = 500) -> dict[str, Any]:
    """Return what the documents' terms are like before training, from the first ``most`` documents."""
    from pyserini_rescale.encode.encoder import SpladeRescaledDocumentEncoder

    corpus = [json.loads(line) for line in (collection / "corpus" / "corpus.jsonl").open(encoding="utf-8")][:most]
    share = shares(vectors_of(SpladeRescaledDocumentEncoder(str(model), device="cpu"), corpus))
    return {"document_terms": float(share.sum()), "document_activity": curve(share)}


def vectors_of(encoder: Any, corpus: Sequence[dict[str, str]]) -> Any:
    """Return the impacts of documents as a sparse matrix (documents, V)."""

    def parts() -> Iterator[dict[str, int]]:
        for start in range(0, len(corpus), _BATCH):
            batch = corpus[start : start + _BATCH]
            yield from encoder.encode(texts=[one["text"] for one in batch], titles=[one["title"] for one in batch])

    return as_matrix(encoder, parts(), len(corpus))


def as_matrix(encoder: Any, vectors: Iterator[dict[str, int]], rows: int) -> Any:
    from scipy.sparse import csr_matrix

    numbers = {term: number for number, term in enumerate(encoder.terms.tolist())}
    columns: list[int] = []
    values: list[int] = []
    ends = [0]
    for vector in vectors:
        columns += [numbers[term] for term in vector]
        values += vector.values()
        ends.append(len(columns))
    return csr_matrix((np.array(values, np.int64), np.array(columns), np.array(ends)), (rows, encoder.vocabulary_size))


def shares(matrix: Any) -> np.ndarray:
    """Return the share of texts in which each term is active (V)."""
    return np.asarray((matrix > 0).sum(axis=0)).ravel() / matrix.shape[0]


def curve(share: np.ndarray) -> dict[str, Any]:
    """Return shares of documents by rank of the term, at ranks evenly spaced on a log scale, and three counts."""
    ordered = np.sort(share)[::-1]
    ranks = sorted({round(rank) for rank in np.geomspace(1, len(ordered), _CURVE_POINTS)})
    return {
        "ranks": ranks,
        "shares": [round(float(ordered[rank - 1]), 5) for rank in ranks],
        "terms": len(ordered),
        "in_no_document": int((share == 0).sum()),
        "in_half_of_all": int((share >= 0.5).sum()),
    }


if __name__ == "__main__":
    sys.exit(main())
