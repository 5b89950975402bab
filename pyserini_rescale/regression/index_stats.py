"""Statistics of encoded documents and of the index made from them, and whether the two agree (a stage of its own).

    python -m pyserini_rescale.regression.index_stats --embeddings DIR --index DIR --output FILE

Anserini may drop what it cannot read and still end well; it leaves out documents without a term; a term that its
analyzer splits corrupts others. So documents, postings, sum of impacts and distinct terms are counted in the vectors,
then asked of the index, and every difference is a line in "problems".
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pyserini_rescale.collections import read_lines
from pyserini_rescale.errors import DataError, RescaleError, one_line
from pyserini_rescale.files import write_json

EMPTY_IDS_LISTED = 20


def vector_files(folder: Path) -> list[Path]:
    """Return the files that ``pyserini.encode`` wrote; DataError where there is none."""
    files = sorted(folder.glob("*.jsonl")) + sorted(folder.glob("*.jsonl.gz"))
    if not files:
        raise DataError(f"{folder} holds no .jsonl file: encode the collection first")
    return files


def count_vectors(folder: Path) -> dict[str, Any]:
    """Count documents, empty vectors (with the first ids), distinct terms, postings and the sum of impacts."""
    documents = postings = impacts = longest = empty = 0
    empty_ids: list[str] = []
    terms: set[str] = set()
    for file in vector_files(folder):
        for where, line in read_lines(file):
            try:
                found = json.loads(line)
                name, vector = str(found["id"]), found["vector"]
                weights = list(vector.values())
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise DataError(f"{where} is not {{'id', 'vector': {{term: impact}}}} ({one_line(error)})") from None
            if not all(type(weight) is int and weight > 0 for weight in weights):
                raise DataError(f"{where}: an impact is not a positive integer; Anserini would cut it")
            documents += 1
            postings += len(weights)
            impacts += sum(weights)
            longest = max(longest, len(weights))
            terms.update(vector)
            if not weights:
                empty += 1
                if len(empty_ids) < EMPTY_IDS_LISTED:
                    empty_ids.append(name)
    return {
        "documents": documents,
        "empty_vectors": empty,
        "first_empty_ids": empty_ids,
        "unique_terms": len(terms),
        "postings": postings,
        "impacts": impacts,
        "most_terms_in_a_document": longest,
    }


def ask_index(folder: Path) -> dict[str, Any]:
    """Ask the index for the same numbers. Starts a JVM."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: index the vectors first")
    from pyserini_rescale.plugin import patches

    patches.activate()
    from pyserini.index.lucene import LuceneIndexReader  # noqa: I001, it starts the JVM; jnius comes after
    from jnius import JavaException, autoclass

    try:
        reader = LuceneIndexReader(str(folder))
        terms = autoclass("org.apache.lucene.index.MultiTerms").getTerms(reader.reader, "contents")
        documents = reader.reader.numDocs()
    except JavaException as error:
        raise DataError(f"{folder} cannot be opened as an index: {one_line(error)[:200]}") from None
    if terms is None:  # every vector was empty
        return {"documents": documents, "unique_terms": 0, "postings": 0, "impacts": 0}
    # Several segments do not know how many terms they have together, so they are counted.
    iterator, unique = terms.iterator(), terms.size()
    if unique < 0:
        unique = 0
        while iterator.next() is not None:
            unique += 1
    return {
        "documents": documents,
        "unique_terms": unique,
        "postings": terms.getSumDocFreq(),
        "impacts": terms.getSumTotalTermFreq(),
    }


def problems(vectors: dict[str, Any], index: dict[str, Any]) -> list[str]:
    """Return a line for each number of the index that the vectors do not explain."""
    expected = {**vectors, "documents": vectors["documents"] - vectors["empty_vectors"]}
    found = []
    for name, label in (
        ("documents", "documents"),
        ("unique_terms", "distinct terms"),
        ("postings", "postings"),
        ("impacts", "as the sum of impacts"),
    ):
        if index[name] != expected[name]:
            without = f" ({vectors['empty_vectors']} empty left out)" if name == "documents" else ""
            found.append(f"the index has {index[name]:,} {label}, the vectors have {expected[name]:,}{without}")
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyserini_rescale.regression.index_stats", description=__doc__)
    parser.add_argument("--embeddings", type=Path, required=True, help="folder that pyserini.encode wrote")
    parser.add_argument("--index", type=Path, required=True, help="folder that pyserini.index.lucene wrote")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    args = parser.parse_args(argv)
    try:
        vectors = count_vectors(args.embeddings)
        index = ask_index(args.index)
    except RescaleError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    found = problems(vectors, index)
    write_json(args.output, {"vectors": vectors, "index": index, "problems": found})
    for line in found:
        print(f"warning: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
