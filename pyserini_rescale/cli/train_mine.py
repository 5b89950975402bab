"""``train mine``: triples with BM25 negatives out of a judged collection."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from pyserini_rescale.train.mine import FIELDS, Options, manifest_of, mine

HELP = (
    "Write training triples (JSONL: query, positive, negative, and their ids) for every pair of a query and a document "
    "judged relevant, with negatives drawn from BM25's hits. The texts of the corpus are held in memory."
)
EXAMPLES = """\
  python -m pyserini_rescale train mine docstrings --split train --output triples.jsonl
  python -m pyserini_rescale train mine data/scifact --split train --output triples.jsonl
  python -m pyserini_rescale train mine beir/scifact/train --output triples.jsonl --negatives 4 --depth 200 --seed 1
  python -m pyserini_rescale train mine data/msmarco --output triples.jsonl --skip-top 5 --work msmarco-bm25 --threads 16
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source", metavar="COLLECTION",
        help="a BEIR folder, a folder that `collection` wrote (which has one split), an id of ir_datasets, or docstrings",
    )  # fmt: skip
    add("--split", default=Options.split, help="which qrels/SPLIT.tsv of a BEIR folder (default: %(default)s)")
    add(
        "--output",
        type=Path,
        required=True,
        help="the .jsonl file to write; OUTPUT.json beside it says how it was made",
    )
    add(
        "--fields", nargs="+", choices=FIELDS, default=list(Options.fields),
        help="what a document's text is made of (default: title text)",
    )  # fmt: skip
    add("--depth", type=int, default=Options.depth, help="hits looked at for each query (default: %(default)s)")
    add(
        "--skip-top", type=int, default=Options.skip_top,
        help="hits left out at the top, where relevant documents that nobody judged are likely (default: %(default)s)",
    )  # fmt: skip
    add(
        "--negatives", type=int, default=Options.negatives,
        help="negatives, and so rows, for each pair of query and relevant document (default: %(default)s)",
    )  # fmt: skip
    add("--seed", type=int, default=Options.seed, help="decides which hits are drawn (default: %(default)s)")
    add("--k1", type=float, default=Options.k1, help="BM25's k1 (default: %(default)s)")
    add("--b", type=float, default=Options.b, help="BM25's b (default: %(default)s)")
    add(
        "--threads", type=int, default=os.cpu_count() or 1,
        help="threads of indexing and search; they do not change the result (default: %(default)s)",
    )  # fmt: skip
    add(
        "--work", type=Path,
        help="folder of the BM25 index, used again while the corpus is the same (default: a temporary one)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from pyserini_rescale.plugin import patches

    patches.activate()  # Java, and Pyserini without internet, also where the start-up hook is off
    names = ("source", "output", "split", "depth", "skip_top", "negatives", "seed", "k1", "b", "threads", "work")
    options = Options(fields=tuple(args.fields), **{name: getattr(args, name) for name in names})
    counts = mine(options, lambda text: print(text, file=sys.stderr, flush=True))["counts"]
    print(
        f"{counts['triples']:,} triples of {counts['pairs']:,} pairs and {counts['queries']:,} queries written to "
        f"{options.output}, and how to {manifest_of(options.output).name}"
    )
    print(
        "Next, MODEL being a masked language model:\n"
        f"  python -m pyserini_rescale train --config smoke --backbone MODEL --triples {shlex.quote(str(options.output))}"
    )
    return 0
