"""``index``: vectors to a Lucene index that holds what they hold, and says its scale."""

import argparse
import sys
from pathlib import Path

from pyserini_rescale.encode.vectors import MOST_TERMS
from pyserini_rescale.indexing import build

HELP = (
    "Check vectors, index them through Pyserini, compare the counts, and mark the index with the scale of its impacts."
)
EXAMPLES = """\
  python -m pyserini_rescale index scifact-encoded --index scifact-index
  python -m pyserini_rescale index scifact-embeddings --encoder MODEL --index scifact-index --threads 8

exit status: 0 done, 2 vectors that cannot be indexed, or an index that does not hold what they do, 3 Anserini failed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vectors", type=Path, help="what `encode` or `pyserini.encode` wrote")
    parser.add_argument("--index", type=Path, required=True, metavar="FOLDER", help="the index to write")
    parser.add_argument(
        "--encoder", metavar="MODEL", help="the model that made the vectors, where no manifest says the scale"
    )
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--force",
        action="store_true",
        help=f"index documents of more than {MOST_TERMS:,} terms; replace an index of ours",
    )


def run(args: argparse.Namespace) -> int:
    made = build(
        args.vectors,
        args.index,
        lambda text: print(text, file=sys.stderr, flush=True),
        encoder=args.encoder,
        threads=args.threads,
        force=args.force,
    )
    counts = made["counts"]
    print(
        f"{counts['documents'] - counts['empty_vectors']:,} documents, {counts['unique_terms']:,} terms, "
        f"{counts['postings']:,} postings: as in the vectors"
    )
    if counts["empty_vectors"]:
        print(
            f"{counts['empty_vectors']:,} documents without a term are not indexed: {', '.join(counts['first_empty_ids'])}"
        )
    return 0
