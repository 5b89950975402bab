"""Verdicts: what lies in the folders of a regression, measured and compared with what is expected.

OK: within the tolerance. FAIL: outside it, on either side, or above an upper bound. MISSING: nothing to compare, or
nothing to compare with. Beside the figures there are problems, each of them a FAIL: files that contradict each other or
their records. Notes say what a reader should know and change no verdict.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyserini_rescale.collections import read_lines
from pyserini_rescale.errors import DataError, one_line
from pyserini_rescale.regression import measures
from pyserini_rescale.regression.layout import read_object
from pyserini_rescale.regression.planning import Plan, Step
from pyserini_rescale.regression.query_stats import CLAUSES
from pyserini_rescale.regression.spec import SPARSITY, Figure, Regression
from pyserini_rescale.regression.stages import broken, other_versions, read_record

OK, FAIL, MISSING = "OK", "FAIL", "MISSING"
EXIT_CODES = {OK: 0, FAIL: 1, MISSING: 4}
_NAMED = 5  # how many ids a message lists


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure: what was published, expected and found."""

    kind: str  # "measure", "count", "sparsity", "training" or "head"
    name: str
    published: float | None
    expected: float | None
    tolerance: float | None
    at_most: float | None
    found: float | None
    verdict: str

    @property
    def difference(self) -> float | None:
        return None if self.found is None or self.expected is None else self.found - self.expected


def verdict(figure: Figure | None, found: float | None) -> str:
    """Return OK, FAIL or MISSING for one figure."""
    if figure is None or figure.reference is None or found is None:
        return MISSING
    # Bounds are decimals and so are the figures; 1e-9 keeps 0.643 within 0.642 +- 0.001.
    if figure.tolerance is not None:
        return OK if abs(found - figure.reference) <= figure.tolerance + 1e-9 else FAIL
    return OK if figure.at_most is not None and found <= figure.at_most + 1e-9 else FAIL


def overall(rows: list[Row], problems: list[str]) -> str:
    """FAIL if anything fails, else MISSING if anything is missing, else OK."""
    verdicts = {row.verdict for row in rows}
    if problems or FAIL in verdicts:
        return FAIL
    return MISSING if MISSING in verdicts or not verdicts else OK


@dataclasses.dataclass
class Findings:
    """What was found, before it is compared: figures by name, problems, notes.

    other_data: a line for what is not the data that the expected figures were measured on; then nothing is compared.
    """

    measures: dict[str, float] = dataclasses.field(default_factory=dict)
    by_rank: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, float] = dataclasses.field(default_factory=dict)
    sparsity: dict[str, float] = dataclasses.field(default_factory=dict)
    training: dict[str, float] = dataclasses.field(default_factory=dict)
    head: dict[str, float] = dataclasses.field(default_factory=dict)
    statistics: dict[str, Any] = dataclasses.field(default_factory=dict)
    other_data: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def examine(plan: Plan) -> Findings:
    """Measure what is there; raises nothing for what is absent."""
    found = Findings()
    for step in plan.steps:
        stage, place = step.stage, step.place
        found.problems += [f"stage {stage.name}: {reason}" for reason in broken(stage, place)]
        if read_record(place, stage.name):
            found.notes += [f"stage {stage.name}: {line}" for line in other_versions(place, stage.name)]
        elif stage.output.exists():
            found.notes.append(f"stage {stage.name}: {stage.output.name} has no record, it was made by hand")
    found.problems += _disagreements(plan.steps)
    for part in (_examine_collection, _examine_training, _examine_index, _examine_queries, _examine_run):
        try:
            part(plan, found)
        except DataError as error:
            found.problems.append(one_line(error))
    return found


@contextlib.contextmanager
def _as_written(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file of ours; what shows, while its content is used, that it was changed by hand is a DataError."""
    content = read_object(path)
    try:
        yield content
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: unexpected content ({type(error).__name__} {one_line(error)})") from None


def _figure(value: Any) -> int | float:
    """Return a figure; raise TypeError for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.40} is no number")
    float(value)  # an integer of 400 digits is none either
    return value


def lines(value: Any) -> list[str]:
    """Return lines of text, as "problems" holds them; raise TypeError for anything else."""
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise TypeError(f"{value!r:.40} is no list of lines")
    return [one_line(line) for line in value]


def mean_of(plan: Plan, results: Sequence[Mapping[str, Any]]) -> Findings:
    """Return the findings of a mean from its parts' results, which ``runner.verify`` returned."""
    found = Findings()
    values = [result.get("found", {}) for result in results]
    for kind, names in (("measures", plan.regression.collection.measures), ("sparsity", SPARSITY)):
        for name in names:
            known = [each[kind][name] for each in values if name in each.get(kind, {})]
            if len(known) == len(results):
                getattr(found, kind)[name] = sum(known) / len(known)
    lacking = [result["name"] for result in results if not result.get("found", {}).get("measures")]
    if lacking:
        found.notes.append(f"no mean without {_listed(lacking)}")
    for result in results:
        found.problems += [f"{result['name']}: {line}" for line in result.get("problems", ())]
        # A mean does not hide a part that fails by itself.
        failed = [row["name"] for row in result.get("rows", ()) if row["verdict"] == FAIL]
        if failed:
            found.problems.append(f"{result['name']}: FAIL ({_listed(failed)})")
    if results:
        found.head, found.training = (values[0].get(kind, {}) for kind in ("head", "training"))
    return found


def _disagreements(steps: tuple[Step, ...]) -> list[str]:
    """Return a line for each input that two stages read in different states, such as a model whose quantiser changed
    between the encoding of documents and of queries."""
    first: dict[Path, tuple[str, Mapping[str, Any]]] = {}
    lines = []
    for step in steps:
        recorded = read_record(step.place, step.stage.name).get("inputs", {})
        for path, label in step.labels().items():
            now = recorded.get(label)
            if not isinstance(now, dict):
                continue
            name, before = first.setdefault(path, (step.stage.name, now))
            if before.get("sha256") != now.get("sha256"):
                files = {**before.get("files", {}), **now.get("files", {})}
                other = [one for one in files if _content(before, one) != _content(now, one)]
                lines.append(
                    f"stage {step.stage.name}: {label} is not the one that stage {name} used ({_listed(other)})"
                )
    return lines


def _content(entry: Mapping[str, Any], file: str) -> Any:
    """Return the checksum of a file in a record's entry; None where it has none."""
    return (entry.get("files", {}).get(file) or [None])[-1]


def _examine_collection(plan: Plan, found: Findings) -> None:
    path = plan.layout.counts
    if not path.exists():
        return
    with _as_written(path) as counts:
        _compare_counts(plan, counts, found)


def _compare_counts(plan: Plan, counts: Mapping[str, Any], found: Findings) -> None:
    spec = plan.regression.collection
    for name, expected, written in (
        ("documents", spec.documents, counts.get("documents")),
        ("judged queries", spec.queries, counts.get("judged_queries")),
        ("judgements", spec.judgements, counts.get("judgements")),
    ):
        if expected is not None and written != expected:
            found.problems.append(f"the collection has {written} {name}, {expected} are expected")
    if counts.get("queries_without_text"):
        found.notes.append(f"judged queries without a text score 0: {_listed(lines(counts['queries_without_text']))}")
    if counts.get("judgements_outside"):
        found.notes.append(f"{counts['judgements_outside']} judgement(s) name a document that the corpus lacks")
    _compare_data("the collection", plan.regression.expected.collection, counts.get("sha256"), found)


def _compare_data(what: str, expected: str | None, written: str | None, found: Findings) -> None:
    """Note where data is not what the expected figures were measured on."""
    if expected is not None and written != expected:
        found.other_data.append(
            f"{what} made here has SHA-256 {written}, the figures were measured on {expected}: they are not compared"
        )


def _examine_training(plan: Plan, found: Findings) -> None:
    layout, expected = plan.layout, plan.regression.expected
    if layout.head.exists():
        with _as_written(layout.head) as head:
            found.head = {name: float(_figure(value)) for name, value in head.items()}
    if expected.triples is not None and layout.triples.exists():
        with open(layout.triples, "rb") as stream:
            _compare_data(
                "the file of triples", expected.triples, hashlib.file_digest(stream, "sha256").hexdigest(), found
            )
    path = layout.training / "run.json"
    if not path.exists():
        return
    last = read_object(path).get("last")
    if not isinstance(last, dict):
        raise DataError(f"{path} holds no figures of a last step")
    found.training = {name: value for name, value in last.items() if isinstance(value, (int, float))}


def _examine_index(plan: Plan, found: Findings) -> None:
    if not plan.layout.statistics.exists():
        return
    with _as_written(plan.layout.statistics) as statistics:
        _compare_statistics(plan, statistics, found)


def _compare_statistics(plan: Plan, statistics: dict[str, Any], found: Findings) -> None:
    vectors, index = statistics["vectors"], statistics["index"]
    names = ("documents", "unique_terms", "postings", "impacts")
    counts = {name: _figure(index[name]) for name in names}
    counts["empty_vectors"] = _figure(vectors["empty_vectors"])
    found.statistics = statistics
    found.problems += lines(statistics["problems"])
    documents, encoded = _documents(plan), _figure(vectors["documents"])
    if documents not in (None, encoded):
        found.problems.append(f"{encoded} documents were encoded, the collection has {documents}")
    if index["postings"] == 0 and encoded:
        found.notes.append("every vector is empty: there was nothing to search, every query scores 0")
    found.counts |= counts


def _documents(plan: Plan) -> int | None:
    """Return how many documents the collection has: what its YAML says, else what was written of it."""
    if plan.regression.collection.documents is not None or not plan.layout.counts.exists():
        return plan.regression.collection.documents
    return read_object(plan.layout.counts).get("documents")


def _examine_queries(plan: Plan, found: Findings) -> None:
    if not plan.layout.queries.exists():
        return
    with _as_written(plan.layout.queries) as queries:
        _note_queries(queries, found)


def _note_queries(queries: dict[str, Any], found: Findings) -> None:
    found.sparsity = {name: _figure(queries[name]) for name in SPARSITY}
    found.statistics["queries"] = queries
    found.problems += lines(queries["problems"])
    if queries["most_terms_in_a_query"] > CLAUSES:
        found.notes.append(
            f"queries have up to {queries['most_terms_in_a_query']:,} terms: Lucene's limit of {CLAUSES:,} was raised for the "
            f"search, none was left out"
        )
    if queries["empty_queries"]:
        found.notes.append(f"{queries['empty_queries']} of {queries['queries']} queries have an empty vector")


def _examine_run(plan: Plan, found: Findings) -> None:
    layout = plan.layout
    if not layout.run.exists() or not layout.qrels.exists():
        return
    qrels, run = measures.read_qrels(layout.qrels), measures.read_run(layout.run)
    names = plan.regression.collection.measures
    found.measures = measures.evaluate(names, qrels, run)
    by_rank = measures.by_rank(names, qrels, run)
    found.by_rank = {name: value for name, value in by_rank.items() if abs(value - found.measures[name]) >= 5e-5}
    absent = [query for query in qrels if query not in run]
    found.counts["unretrieved_queries"] = len(absent)
    found.counts["run_lines"] = sum(map(len, run.values()))
    if absent:
        found.notes.append(f"judged queries without any hit score 0: {_listed(absent)}")
    strangers = [query for query in run if query not in qrels]
    if strangers:
        found.problems.append(
            f"{layout.run} answers queries that {layout.qrels.name} does not judge: {_listed(strangers)}"
        )
    most = plan.regression.collection.hits
    crowded = [query for query, hits in run.items() if len(hits) > most]
    if crowded:
        found.problems.append(f"{layout.run} has more than {most} hits for {_listed(crowded)}")
    corpus = layout.corpus / "corpus.jsonl"
    if corpus.exists():
        unknown = {hit.document for hits in run.values() for hit in hits} - document_ids(corpus)
        if unknown:
            found.problems.append(f"{layout.run} names documents that the corpus lacks: {_listed(sorted(unknown))}")


def document_ids(corpus: Path) -> set[str]:
    """Return the ids of a corpus that ``write_pyserini_form`` wrote."""
    ids = set()
    for where, line in read_lines(corpus):
        try:
            ids.add(json.loads(line)["id"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DataError(f"{where} is not one of ours: {one_line(error)}") from None
    return ids


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def compare(regression: Regression, found: Findings) -> list[Row]:
    """Return a row for every measure of the collection and every other figure that is expected.

    Where the data is not what the figures were measured on, every verdict is MISSING.
    """
    expected = regression.expected
    rows = []
    kinds: tuple[tuple[str, Iterable[str], Mapping[Any, Figure], Mapping[str, float]], ...] = (
        ("measure", regression.collection.measures, expected.measures, found.measures),
        ("count", expected.counts, expected.counts, found.counts),
        ("sparsity", expected.sparsity, expected.sparsity, found.sparsity),
        ("training", expected.training, expected.training, found.training),
        ("head", regression.model.head, regression.model.head, found.head),
    )
    for kind, names, figures, values in kinds:
        for name in names:
            figure, value = figures.get(name), values.get(name)
            rows.append(
                Row(
                    kind,
                    name,
                    None if figure is None else figure.published,
                    None if figure is None else figure.reference,
                    None if figure is None else figure.tolerance,
                    None if figure is None else figure.at_most,
                    value,
                    MISSING if found.other_data else verdict(figure, value),
                )
            )
    return rows
