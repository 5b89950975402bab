"""Verdicts: what lies in a work folder, measured and compared with what a regression expects.

OK: within the tolerance. FAIL: outside it, on either side. MISSING: nothing to compare, or nothing to compare with.
Beside the figures there are problems, each of them a FAIL: files that contradict each other or their records. Notes say
what a reader should know and change no verdict.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from pyserini_rescale.collections import read_lines
from pyserini_rescale.errors import DataError, one_line
from pyserini_rescale.regression import measures
from pyserini_rescale.regression.spec import Figure, Regression
from pyserini_rescale.regression.stages import Stage, Workplace, broken, other_versions, read_record

OK, FAIL, MISSING = "OK", "FAIL", "MISSING"
EXIT_CODES = {OK: 0, FAIL: 1, MISSING: 4}
_NAMED = 5  # how many ids a message lists


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files of one regression's work folder."""

    work: Path

    @property
    def collection(self) -> Path:
        return self.work / "collection"

    @property
    def qrels(self) -> Path:
        return self.collection / "qrels.txt"

    @property
    def topics(self) -> Path:
        return self.collection / "topics.json"

    @property
    def embeddings(self) -> Path:
        return self.work / "embeddings"

    @property
    def index(self) -> Path:
        return self.work / "index"

    @property
    def statistics(self) -> Path:
        return self.work / "statistics.json"

    @property
    def triples(self) -> Path:
        return self.work / "triples" / "triples.jsonl"

    @property
    def training(self) -> Path:
        return self.work / "training"

    @property
    def trained_model(self) -> Path:
        return self.training / "model"

    @property
    def run(self) -> Path:
        return self.work / "run.txt"

    @property
    def result(self) -> Path:
        return self.work / "result.json"


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure: what was published, expected and found."""

    kind: str  # "measure", "count" or "training"
    name: str
    published: float | None
    expected: float | None
    tolerance: float | None
    found: float | None
    verdict: str

    @property
    def difference(self) -> float | None:
        return None if self.found is None or self.expected is None else self.found - self.expected


def verdict(figure: Figure | None, found: float | None) -> str:
    """Return OK, FAIL or MISSING for one figure."""
    if figure is None or figure.reference is None or found is None:
        return MISSING
    # The tolerance is a decimal and so are the figures; 1e-9 keeps 0.643 within 0.642 +- 0.001.
    return OK if abs(found - figure.reference) <= figure.tolerance + 1e-9 else FAIL


def overall(rows: list[Row], problems: list[str]) -> str:
    """FAIL if anything fails, else MISSING if anything is missing, else OK."""
    verdicts = {row.verdict for row in rows}
    if problems or FAIL in verdicts:
        return FAIL
    return MISSING if MISSING in verdicts or not verdicts else OK


@dataclasses.dataclass
class Findings:
    """What a work folder holds, before it is compared: figures by name, problems, notes.

    other_data: a line for what is not the data that the expected figures were measured on; then nothing is compared.
    """

    measures: dict[str, float] = dataclasses.field(default_factory=dict)
    by_rank: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, float] = dataclasses.field(default_factory=dict)
    training: dict[str, float] = dataclasses.field(default_factory=dict)
    statistics: dict[str, Any] = dataclasses.field(default_factory=dict)
    other_data: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def examine(regression: Regression, place: Workplace, stages: list[Stage]) -> Findings:
    """Measure what lies in the work folder; raises nothing for what is absent."""
    layout = Layout(place.work)
    found = Findings()
    for stage in stages:
        found.problems += [f"stage {stage.name}: {reason}" for reason in broken(stage, place)]
        if read_record(place, stage.name):
            found.notes += [f"stage {stage.name}: {line}" for line in other_versions(place, stage.name)]
        elif stage.output.exists():
            found.notes.append(f"stage {stage.name}: {stage.output.name} has no record, it was made by hand")
    for part in (_examine_collection, _examine_training, _examine_index, _examine_run):
        try:
            part(regression, layout, found)
        except DataError as error:
            found.problems.append(one_line(error))
        except (KeyError, TypeError, AttributeError, ValueError) as error:  # a file of ours, changed by hand
            what = f"{type(error).__name__} {one_line(error)}"
            found.problems.append(
                f"{layout.work}: {part.__name__.strip('_').replace('_', ' ')}: unexpected content ({what})"
            )
    return found


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a JSON object")
    return content


def _examine_collection(regression: Regression, layout: Layout, found: Findings) -> None:
    path = layout.collection / "counts.json"
    if not path.exists():
        return
    counts = _read_json(path)
    spec = regression.collection
    for name, expected, written in (
        ("documents", spec.documents, counts.get("documents")),
        ("judged queries", spec.queries, counts.get("judged_queries")),
        ("judgements", spec.judgements, counts.get("judgements")),
    ):
        if expected is not None and written != expected:
            found.problems.append(f"the collection has {written} {name}, {expected} are expected")
    if counts.get("queries_without_text"):
        found.notes.append(f"judged queries without a text score 0: {_listed(counts['queries_without_text'])}")
    if counts.get("judgements_outside"):
        found.notes.append(f"{counts['judgements_outside']} judgement(s) name a document that the corpus lacks")

    _compare_data("the collection", regression.expected.collection, counts.get("sha256"), found)


def _compare_data(what: str, expected: str | None, written: str | None, found: Findings) -> None:
    """Note where data is not what the expected figures were measured on."""
    if expected is not None and written != expected:
        found.other_data.append(
            f"{what} made here has SHA-256 {written}, the figures were measured on {expected}: they are not compared"
        )


def _examine_training(regression: Regression, layout: Layout, found: Findings) -> None:
    if regression.expected.triples is not None and layout.triples.exists():
        with open(layout.triples, "rb") as stream:
            written = hashlib.file_digest(stream, "sha256").hexdigest()
        _compare_data("the file of triples", regression.expected.triples, written, found)
    path = layout.training / "run.json"
    if not path.exists():
        return
    last = _read_json(path).get("last")
    if not isinstance(last, dict):
        raise DataError(f"{path} holds no figures of a last step")
    found.training = {name: value for name, value in last.items() if isinstance(value, (int, float))}


def _examine_index(regression: Regression, layout: Layout, found: Findings) -> None:
    if not layout.statistics.exists():
        return
    found.statistics = _read_json(layout.statistics)
    vectors, index = found.statistics["vectors"], found.statistics["index"]
    found.problems += found.statistics["problems"]
    documents = _documents(regression, layout)
    if documents not in (None, vectors["documents"]):
        found.problems.append(f"{vectors['documents']} documents were encoded, the collection has {documents}")
    found.counts |= {name: index[name] for name in ("documents", "unique_terms", "postings", "impacts")}
    found.counts["empty_vectors"] = vectors["empty_vectors"]


def _documents(regression: Regression, layout: Layout) -> int | None:
    """Return how many documents the collection has: what its YAML says, else what was written of it."""
    counts = layout.collection / "counts.json"
    if regression.collection.documents is not None or not counts.exists():
        return regression.collection.documents
    return _read_json(counts).get("documents")


def _examine_run(regression: Regression, layout: Layout, found: Findings) -> None:
    if not layout.run.exists() or not layout.qrels.exists():
        return
    qrels, run = measures.read_qrels(layout.qrels), measures.read_run(layout.run)
    names = regression.collection.measures
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
        found.problems.append(f"{layout.run} answers queries that are not judged: {_listed(strangers)}")
    crowded = [query for query, hits in run.items() if len(hits) > regression.collection.hits]
    if crowded:
        found.problems.append(f"{layout.run} has more than {regression.collection.hits} hits for {_listed(crowded)}")
    corpus = layout.collection / "corpus" / "corpus.jsonl"
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
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{where} is not one of ours: {one_line(error)}") from None
    return ids


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def compare(regression: Regression, found: Findings) -> list[Row]:
    """Return a row for every measure of the collection and every count and training figure that is expected.

    Where the data is not what the figures were measured on, every verdict is MISSING.
    """
    expected = regression.expected
    rows = []
    for kind, names, figures, values in (
        ("measure", regression.collection.measures, expected.measures, found.measures),
        ("count", expected.counts, expected.counts, found.counts),
        ("training", expected.training, expected.training, found.training),
    ):
        for name in names:
            figure, value = figures.get(name), values.get(name)
            rows.append(
                Row(
                    kind,
                    name,
                    figure and figure.published,
                    figure and figure.reference,
                    figure and figure.tolerance,
                    value,
                    MISSING if found.other_data else verdict(figure, value),
                )
            )
    return rows
