"""Measures of a run against qrels, as trec_eval computes them (with -c), for any name that ir_measures knows.

Two conventions, applied once and for every measure alike:

* Every judged query counts; one that the run does not hold scores 0 (trec_eval -c).
* Documents are ranked by score as a 32-bit float, descending; ties by document id as a string, descending. That is
  trec_eval's rule, whatever the rank column says. ir_measures leaves ties to the tool behind each measure, and the one
  behind RR@k resolves them the other way round; so ties are resolved here, before ir_measures sees the run.

Pyserini breaks ties by document id ascending, and impacts are integers that tie often: a reader of the rank column
gets other figures than trec_eval. ``by_rank`` gives those, to be shown beside the first where they differ.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_rescale.collections import checked_grade, read_lines
from pyserini_rescale.errors import ConfigError, DataError

Qrels = dict[str, dict[str, int]]  # query id -> document id -> grade


class Hit(NamedTuple):
    """One line of a run, beside its query."""

    document: str
    rank: int
    score: float


Run = dict[str, list[Hit]]  # query id -> hits in the order of the file


def read_qrels(path: Path) -> Qrels:
    """Read TREC qrels: query id, unused, document id, grade, separated by white space."""
    qrels: Qrels = {}
    for where, line in _lines(path):
        columns = line.split()
        if len(columns) != 4 or not re.fullmatch(r"[+-]?[0-9]+", columns[3]):
            raise DataError(f"{where} is not `query 0 document grade`: {line[:80]!r}")
        query, _, document, grade = columns
        if document in qrels.setdefault(query, {}):
            raise DataError(f"{where} judges query {query}, document {document} for a second time")
        qrels[query][document] = checked_grade(grade, where)
    if not qrels:
        raise DataError(f"{path} holds no judgement")
    return qrels


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for where, line in read_lines(path):
        if "\0" in line:
            raise DataError(f"{where} holds a NUL, at which trec_eval ends an id")
        yield where, line


def read_run(path: Path) -> Run:
    """Read a TREC run: query id, Q0, document id, rank, score, tag. An empty file is a run without hits."""
    run: Run = {}
    seen: set[tuple[str, str]] = set()
    for where, line in _lines(path):
        columns = line.split()
        try:
            query, _, document, rank, score, _ = columns
            hit = Hit(document, int(rank), float(score))
        except ValueError:
            raise DataError(f"{where} is not `query Q0 document rank score tag`: {line[:80]!r}") from None
        if hit.score != hit.score:
            raise DataError(f"{where}: the score is not a number")
        if (query, document) in seen:
            raise DataError(f"{where} names document {document} for a second time for query {query}")
        seen.add((query, document))
        run.setdefault(query, []).append(hit)
    return run


def ranked(hits: Iterable[Hit]) -> list[str]:
    """Return the document ids in trec_eval's order."""

    def as_float32(score: float) -> float:
        try:
            return struct.unpack("f", struct.pack("f", score))[0]
        except OverflowError:
            return float("inf") if score > 0 else float("-inf")

    by_id = sorted(hits, key=lambda hit: hit.document, reverse=True)
    return [hit.document for hit in sorted(by_id, key=lambda hit: -as_float32(hit.score))]


def ranked_by_rank(hits: Iterable[Hit]) -> list[str]:
    """Return the document ids in the order of the rank column."""
    return [hit.document for hit in sorted(hits, key=lambda hit: hit.rank)]


def evaluate(names: Iterable[str], qrels: Qrels, run: Run) -> dict[str, float]:
    """Return name -> mean over all judged queries, for measures named as in ir_measures (nDCG@10, RR@10, R@100)."""
    return _evaluate(names, qrels, {query: ranked(hits) for query, hits in run.items()})


def by_rank(names: Iterable[str], qrels: Qrels, run: Run) -> dict[str, float]:
    """Return what ``evaluate`` does, for a reader that trusts the rank column."""
    return _evaluate(names, qrels, {query: ranked_by_rank(hits) for query, hits in run.items()})


def per_query(names: Iterable[str], qrels: Qrels, run: Run) -> dict[str, dict[str, float]]:
    """Return name -> query -> value for all judged queries, by the conventions of ``evaluate``: its values are the means."""
    import ir_measures

    parsed = _parsed(names)
    judged, scored = _inputs(qrels, {query: ranked(hits) for query, hits in run.items()})
    values: dict[str, dict[str, float]] = {name: dict.fromkeys(judged, 0.0) for name in parsed}
    by_measure = {str(measure): name for name, measure in parsed.items()}
    for one in ir_measures.iter_calc(list(parsed.values()), judged, scored):
        values[by_measure[str(one.measure)]][one.query_id] = float(one.value)
    return values


def _evaluate(names: Iterable[str], qrels: Qrels, rankings: Mapping[str, list[str]]) -> dict[str, float]:
    import ir_measures

    parsed = _parsed(names)
    values = ir_measures.calc_aggregate(list(parsed.values()), *_inputs(qrels, rankings))
    return {name: float(values[measure]) for name, measure in parsed.items()}


def _parsed(names: Iterable[str]) -> dict[str, Any]:
    return {name: parse(name) for name in names}


def parse(name: str) -> Any:
    """Return the measure of ir_measures called ``name``; raises ConfigError for what is none."""
    import ir_measures

    try:
        measure = ir_measures.parse_measure(name)
    except (NameError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{name} is not a measure of ir_measures: {error}") from None
    cutoff = measure.params.get("cutoff", 1)
    if not isinstance(cutoff, int) or cutoff < 1:  # trec_eval would end the process
        raise ConfigError(f"{name} is not a measure: its cutoff is below 1")
    return measure


def _inputs(qrels: Qrels, rankings: Mapping[str, list[str]]) -> tuple[Qrels, dict[str, dict[str, float]]]:
    """Return judgements and scores as ir_measures takes them."""
    # Grades below 0 are not relevant, and libraries differ on them; 0 is the same to trec_eval.
    judged = {query: {name: max(grade, 0) for name, grade in lines.items()} for query, lines in qrels.items()}
    # Scores that cannot tie: minus the position.
    scored = {
        query: {document: -float(position) for position, document in enumerate(ranking)}
        for query, ranking in rankings.items()
        if query in judged
    }
    return judged, scored
