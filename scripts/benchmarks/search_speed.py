"""How long a query takes through Pyserini's impact search, encoding included: our query encoder beside Pyserini's own.

    python scripts/benchmarks/search_speed.py --model MODEL --index INDEX --queries queries.jsonl

INDEX is an impact index of MODEL's own vectors (runs/scifact.splade-tiny/index after `regress run scifact.splade-tiny`).
Both go through LuceneImpactSearcher, the class behind `python -m pyserini.search.lucene --impact`: single queries, and
batches of them with threads. The hits are compared first: the share of queries with the same documents and scores.
Then they take turns, and medians are printed, with the part of the time that is Lucene's alone (the encoded query
given), which no encoder can shorten.
"""

import argparse
import functools
import importlib.metadata
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from encode_speed import cpu_name, finish, folder_for_pyserini, in_turns, read_lines

from pyserini_rescale.cli.tables import aligned
from pyserini_rescale.plugin import hook


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a SPLADE model")
    parser.add_argument("--index", required=True, help="impact index of its vectors")
    parser.add_argument("--queries", required=True, type=Path, help="queries.jsonl in BEIR layout")
    parser.add_argument("--query-count", type=int, default=200, help="queries (default 200)")
    parser.add_argument("--hits", type=int, default=1000, help="hits a query (default 1000)")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch and of batch search (default 2)")
    parser.add_argument("--runs", type=int, default=3, help="counted runs of each (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


class Known:
    """A query encoder that has seen every query: what remains is Lucene's time."""

    def __init__(self, encoder: Any, texts: list[str]) -> None:
        self.vectors = {text: encoder.encode(text) for text in texts}

    def encode(self, text: str, **options: Any) -> dict[str, int]:
        return self.vectors[text]


def measure(args: argparse.Namespace) -> dict[str, Any]:
    hook.install()
    import torch

    torch.set_num_threads(args.threads)
    from pyserini.encode import SpladeQueryEncoder
    from pyserini.search.lucene import LuceneImpactSearcher

    from pyserini_rescale.encode.encoder import SpladeRescaledQueryEncoder

    texts = [line["text"] for line in read_lines(args.queries, args.query_count)]
    names = [f"q{number}" for number in range(len(texts))]
    version = importlib.metadata.version("pyserini")
    with tempfile.TemporaryDirectory() as scratch:
        copied = tuple(int(part) for part in version.split(".")[:2]) >= (2, 3)
        theirs = SpladeQueryEncoder(folder_for_pyserini(args.model, scratch) if copied else args.model, device="cpu")
    ours = SpladeRescaledQueryEncoder(args.model, device="cpu")
    encoders = {"pyserini": theirs, "ours": ours, "Lucene alone": Known(ours, texts)}
    searchers = {name: LuceneImpactSearcher(args.index, encoder) for name, encoder in encoders.items()}

    def single(name: str) -> list[Any]:
        return [searchers[name].search(text, k=args.hits) for text in texts]

    def batched(name: str) -> dict[str, Any]:
        return searchers[name].batch_search(texts, names, k=args.hits, threads=args.threads)

    found = {name: single(name) for name in searchers}
    same = sum(
        [(hit.docid, hit.score) for hit in one] == [(hit.docid, hit.score) for hit in other]
        for one, other in zip(found["pyserini"], found["ours"], strict=True)
    )
    result: dict[str, Any] = {"queries": len(texts), "same_hits": same}
    for what, work in (("single", single), ("batched", batched)):
        seconds = in_turns({name: functools.partial(work, name) for name in searchers}, args.runs)
        result[what] = {"seconds": seconds, "times_as_fast": seconds["pyserini"] / seconds["ours"]}
    result["set_up"] = {
        "pyserini": version, "torch": torch.__version__, "python": platform.python_version(), "cpu": cpu_name(),
        "threads": args.threads, "runs": args.runs, "hits": args.hits,
    }  # fmt: skip
    return result


def report(result: dict[str, Any]) -> str:
    rows = [["", "pyserini", "ours", "Lucene alone", "times as fast"]]
    count = result["queries"]
    for what, unit, figure in (
        ("single", "ms a query", lambda seconds: seconds / count * 1000),
        ("batched", "queries a second", lambda seconds: count / seconds),
    ):
        seconds = result[what]["seconds"]
        row = [f"{what}, {unit}", *(f"{figure(seconds[name]):.1f}" for name in rows[0][1:4])]
        rows.append([*row, f"{result[what]['times_as_fast']:.1f}"])
    same = f"same hits and scores for {result['same_hits']} of {count} queries"
    return "\n".join([aligned(rows), "", same, *(f"{name:<9} {value}" for name, value in result["set_up"].items())])


if __name__ == "__main__":
    sys.exit(finish(arguments(), measure, report))
