"""Write a run without hits for an index without a term (a stage of its own).

    python -m pyserini_rescale.regression.empty_run --statistics FILE --output RUN

A model whose vectors are all empty is a result too: every query finds nothing and scores 0. Lucene's readers fail on such
an index, so this stands in the search's place, and only where statistics.json says that there is no posting.
"""

import argparse
import sys
from pathlib import Path

from pyserini_rescale.errors import DataError, reported
from pyserini_rescale.files import write_text
from pyserini_rescale.regression.layout import read_object


def has_no_terms(statistics: Path) -> bool:
    """Whether the index is known to hold no posting."""
    if not statistics.exists():
        return False
    index = read_object(statistics).get("index")
    return isinstance(index, dict) and index.get("postings") == 0


@reported
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyserini_rescale.regression.empty_run", description=__doc__)
    parser.add_argument("--statistics", type=Path, required=True, help="JSON file of index_stats")
    parser.add_argument("--output", type=Path, required=True, help="run file to write")
    args = parser.parse_args(argv)
    if not has_no_terms(args.statistics):
        raise DataError(f"{args.statistics} does not say that the index is empty: search it")
    write_text(args.output, "")
    print("every vector is empty: the run has no hits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
