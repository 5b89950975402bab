"""Statistics of encoded documents and of the index made from them, and whether the two agree (a stage of its own).

    python -m pyserini_rescale.regression.index_stats --embeddings DIR --index DIR --output FILE

Anserini may drop what it cannot read and still end well; it leaves out documents without a term; a term that its
analyzer splits corrupts others. So documents, postings, sum of impacts and distinct terms are counted in the vectors
(encode/vectors.py), then asked of the index (indexing.py), and every difference is a line in "problems". "scale" is what
the index's marker says (encode/marker.py), null where it has none.
"""

import argparse
import sys
from pathlib import Path

from pyserini_rescale.encode.marker import index_marker
from pyserini_rescale.encode.vectors import count_vectors
from pyserini_rescale.errors import reported
from pyserini_rescale.files import write_json
from pyserini_rescale.indexing import ask_index, problems


@reported
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyserini_rescale.regression.index_stats", description=__doc__)
    parser.add_argument("--embeddings", type=Path, required=True, help="folder that pyserini.encode wrote")
    parser.add_argument("--index", type=Path, required=True, help="folder that pyserini.index.lucene wrote")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    args = parser.parse_args(argv)
    vectors = count_vectors(args.embeddings)
    index = ask_index(args.index)
    found = problems(vectors, index)
    said = index_marker(args.index)
    write_json(
        args.output, {"vectors": vectors, "index": index, "problems": found, "scale": said and said["quantizer"]}
    )
    for line in found:
        print(f"warning: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
