"""BM25 on words beside the learned vectors: Anserini's index and search of a collection, as a run (a stage of its own).

    python -m pyserini_rescale.regression.bm25 --collection DIR --output run.txt

DIR is what ``python -m pyserini_rescale collection`` wrote. Title and text are joined as the encoders join them;
Anserini's defaults otherwise (k1 0.9, b 0.4, Porter stemming, stop words out).
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from pyserini_rescale.collections import open_collection
from pyserini_rescale.errors import DataError, one_line, reported
from pyserini_rescale.files import write_text
from pyserini_rescale.train import mine

TAG = "bm25"


def run(collection: Path, output: Path, hits: int, threads: int) -> int:
    """Write the run and return how many queries it answers."""
    options = mine.Options(str(collection), output, depth=hits, threads=threads)
    material = mine.read(open_collection(str(collection)))
    lines = []
    with tempfile.TemporaryDirectory(prefix="bm25-") as scratch:
        size = mine.build_index(Path(scratch), material.documents, threads, print)
        answered = 0
        for query, found in mine.search_scored(Path(scratch) / "index", size, material, options):
            answered += bool(found)
            for rank, (document, score) in enumerate(found, start=1):
                lines.append(f"{query} Q0 {document} {rank} {score:.6f} {TAG}\n")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_text(output, "".join(lines))
    except OSError as error:
        raise DataError(f"{output} cannot be written: {one_line(error)}") from None
    return answered


@reported
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyserini_rescale.regression.bm25", description=__doc__)
    parser.add_argument("--collection", type=Path, required=True, help="folder that `collection` wrote")
    parser.add_argument("--output", type=Path, required=True, help="run file to write")
    parser.add_argument("--hits", type=int, default=1000, help="documents a query (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(argv)
    from pyserini_rescale.plugin import patches

    patches.activate()
    print(f"{run(args.collection, args.output, args.hits, args.threads):,} queries answered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
