"""Files of vectors, one {"id", "vector": {term: impact}} a line: read, checked for what Anserini would spoil, counted.

Anserini reads weights as integers (0.9 vanishes, 2.7 becomes 2), and at NaN, a missing vector or a line that was cut it drops the
rest of the file and still ends well. A vector is indexed as text, each term repeated impact times and split at white space
(terms.py). So none of these gets past ``read_vectors``. Needs no torch, no Java.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyserini_rescale.collections import checked_id, read_lines
from pyserini_rescale.corpora import Ids
from pyserini_rescale.encode.quantize import MOST
from pyserini_rescale.encode.terms import survives
from pyserini_rescale.errors import DataError, one_line

EMPTY_IDS_LISTED = 20
MOST_TERMS = 5_000
"""Terms in a document beyond which an index is refused unless forced: trained models have some hundred."""


def vector_files(folder: Path) -> list[Path]:
    """Return the files of vectors in a folder, in order of name; raise DataError where there are none."""
    files = sorted(folder.glob("*.jsonl")) + sorted(folder.glob("*.jsonl.gz"))
    if not files:
        raise DataError(f"{folder} holds no .jsonl file: encode the collection first")
    return files


def read_vectors(folder: Path) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Yield (where, id, term -> impact) of all vectors; raise DataError for one that Anserini would not index as it is."""
    good: set[str] = set()
    for file in vector_files(folder):
        yield from read_vector_file(file, good)


def read_distinct(folder: Path) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Yield the same; raise DataError after the last one where an id came twice."""
    ids = Ids()
    for where, name, vector in read_vectors(folder):
        ids.add(name)
        yield where, name, vector
    ids.check(lambda: ((where, name) for where, name, _ in read_vectors(folder)))


def read_vector_file(file: Path, good: set[str]) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Yield (where, id, term -> impact) of one file. good: terms that have been looked at; more are added."""
    for where, line in read_lines(file):
        try:
            found = json.loads(line, object_pairs_hook=_once)
            name, vector = found["id"], found["vector"]
            weights = list(vector.values())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(f"{where} is not {{'id', 'vector': {{term: impact}}}} ({one_line(error)})") from None
        if not all(type(weight) is int and weight > 0 for weight in weights):
            raise DataError(f"{where}: an impact is not a positive integer; Anserini would cut it")
        if weights and max(weights) > MOST:
            raise DataError(f"{where}: an impact is above {MOST:,}, more than an index can hold: take a coarser scale")
        if not good.issuperset(vector):
            for term in vector:
                if not survives(term):
                    what = "is empty" if not term else "holds white space, or is too long"
                    raise DataError(f"{where}: the term {term!r:.80} {what}; Anserini would index other terms for it")
            good.update(vector)
        yield where, checked_id(name, where), vector


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON; readers differ in which value they take of a key that comes twice, so it may not."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r:.80} comes twice")
    return found


def count_vectors(folder: Path, most_terms: int | None = None) -> dict[str, Any]:
    """Count documents, empty vectors (with the first ids), distinct terms, postings and the sum of impacts.

    most_terms: how many terms a document may have. Raises DataError for more, for what ``read_vectors`` refuses, and for an
    id that comes twice.
    """
    documents = postings = impacts = longest = empty = 0
    empty_ids: list[str] = []
    terms: set[str] = set()
    for where, name, vector in read_distinct(folder):
        if most_terms is not None and len(vector) > most_terms:
            raise DataError(
                f"{where}: {name} has {len(vector):,} terms, more than {most_terms:,}: an index of such vectors is slow and "
                "large, and the model was hardly trained to be sparse; --force indexes it all the same"
            )
        documents += 1
        postings += len(vector)
        impacts += sum(vector.values())
        longest = max(longest, len(vector))
        terms.update(vector)
        if not vector:
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
