"""Statistics of encoded queries, and whether a run is what queries and documents give (a stage of its own).

    python -m pyserini_rescale.regression.query_stats --embeddings DIR --topics FILE --run RUN --encoder MODEL --output FILE

The queries are encoded again as search encodes them. FLOPs (arXiv 2004.05665; the activated FLOPs of arXiv 2606.18811,
Figure 2) are the multiplications of an average pair of query and document: the sum over terms of the share of queries
times the share of documents in which the term is active.

A run is a pure function of vectors, so what does not follow from them is a line in "problems": a score that is no dot
product (another quantiser or model on one side, a run of an earlier index), a query left out though a document has a
term of it, a query with fewer hits than documents that hold one of its terms. Scores are checked on a sample.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyserini_rescale.collections import read_topics
from pyserini_rescale.encode.vectors import read_vectors
from pyserini_rescale.errors import reported
from pyserini_rescale.files import write_json
from pyserini_rescale.regression.measures import Run, read_run

CLAUSES = 1024
"""More query terms than this Lucene refuses by default; plugin/patches.py raises its limit for our encoders."""

_SAMPLE = 20  # queries whose first and last hit are checked
_TOLERANCE = 1e-5  # Lucene adds in float32
_NAMED = 5

Vector = Mapping[str, int]


def query_stats(
    embeddings: Path, topics: Path, run: Path, encode: Callable[[str], Vector], hits: int, removed: bool = False
) -> dict[str, Any]:
    """Return figures and problems. encode: text -> vector. removed: a query's own document is left out of its hits."""
    queries = {topic.id: encode(topic.text) for topic in read_topics(topics)}
    found = read_run(run)
    wanted = _sample(found)
    needed = {document for documents in wanted.values() for document in documents}
    frequency: Counter[str] = Counter()
    vectors: dict[str, Vector] = {}
    documents = 0
    for _, name, vector in read_vectors(embeddings):
        documents += 1
        frequency.update(vector.keys())
        if name in needed:
            vectors[name] = vector
    active = Counter(term for vector in queries.values() for term in vector)
    pairs = max(1, len(queries)) * max(1, documents)
    return {
        "queries": len(queries),
        "empty_queries": sum(not vector for vector in queries.values()),
        "most_terms_in_a_query": max(map(len, queries.values()), default=0),
        "query_terms": active.total() / max(1, len(queries)),
        "document_terms": frequency.total() / max(1, documents),
        "flops": sum(count * frequency[term] for term, count in active.items()) / pairs,
        "scores_checked": sum(map(len, wanted.values())),
        "problems": [
            *_missing(queries, found, frequency, hits, removed),
            *_wrong_scores(queries, found, wanted, vectors),
        ],
    }


def _sample(run: Run) -> dict[str, list[str]]:
    """Return query -> documents whose scores are checked: the first and last hit of queries spread over the run."""
    names = list(run)
    step = max(1, len(names) // _SAMPLE)
    return {name: list(dict.fromkeys((run[name][0].document, run[name][-1].document))) for name in names[::step]}


def _missing(
    queries: Mapping[str, Vector], run: Run, frequency: Mapping[str, int], hits: int, removed: bool
) -> list[str]:
    """Return lines about queries that the run lacks or cuts short; a term in n documents makes n hits at least."""
    absent, short = [], []
    for name, vector in queries.items():
        least = min(hits, max((frequency[term] for term in vector), default=0)) - removed
        given = len(run.get(name, ()))
        if least > 0 and given == 0:
            absent.append(name)
        elif given < least:
            short.append(f"{name} ({given} of {least} or more)")
    lines = []
    if absent:
        lines.append(f"the run lacks queries that have hits: {_listed(absent)}")
    if short:
        lines.append(f"the run has too few hits: {_listed(short)}")
    return lines


def _wrong_scores(
    queries: Mapping[str, Vector], run: Run, wanted: Mapping[str, list[str]], vectors: Mapping[str, Vector]
) -> list[str]:
    """Return a line about scores that are not the dot product of the query's and the document's vector."""
    wrong = []
    for name, documents in wanted.items():
        scores = {hit.document: hit.score for hit in run[name]}
        for document in documents:
            if name not in queries or document not in vectors:
                continue  # verify.py names strangers
            other = vectors[document]
            score = sum(weight * other.get(term, 0) for term, weight in queries[name].items())
            if abs(score - scores[document]) > _TOLERANCE * max(1.0, abs(score)):
                wrong.append(
                    f"query {name}, document {document}: {scores[document]:g} in the run, {score:,} by the vectors"
                )
    if not wrong:
        return []
    return [
        f"scores are not those of the vectors, so another quantiser, model or index was searched with: {_listed(wrong, 2)}"
    ]


def _listed(names: list[str], most: int = _NAMED) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _encoder(model: str) -> Callable[[str], Vector]:
    from pyserini_rescale.plugin import patches

    patches.activate()
    from pyserini_rescale.encode.encoder import SpladeRescaledQueryEncoder  # it starts the JVM

    return SpladeRescaledQueryEncoder(model).encode


@reported
def main(argv: list[str] | None = None, encoder: Callable[[str], Callable[[str], Vector]] = _encoder) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyserini_rescale.regression.query_stats", description=__doc__)
    parser.add_argument("--embeddings", type=Path, required=True, help="folder that pyserini.encode wrote")
    parser.add_argument("--topics", type=Path, required=True, help="topics.json of the collection")
    parser.add_argument("--run", type=Path, required=True, help="run that pyserini.search.lucene wrote")
    parser.add_argument("--encoder", required=True, metavar="MODEL", help="model that the queries are encoded with")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--hits", type=int, default=1000, help="hits asked for a query (default: %(default)s)")
    parser.add_argument("--remove-query", action="store_true", help="a query's own document was removed from its hits")
    args = parser.parse_args(argv)
    encode = encoder(args.encoder)
    found = query_stats(args.embeddings, args.topics, args.run, encode, args.hits, args.remove_query)
    write_json(args.output, found)
    for line in found["problems"]:
        print(f"warning: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
