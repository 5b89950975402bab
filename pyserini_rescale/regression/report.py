"""Many results beside each other: models x measures, with the published figure, ours, the difference and the verdict.

What was found comes from result.json of each regression and is judged anew by the YAML as it is now. A result that is
older than what was run since is a FAIL that says so; a regression without a result is MISSING.
"""

import csv
import dataclasses
import io
from collections.abc import Iterable
from typing import Any

from pyserini_rescale.errors import DataError, one_line
from pyserini_rescale.regression.layout import read_object
from pyserini_rescale.regression.planning import Plan
from pyserini_rescale.regression.stages import read_record
from pyserini_rescale.regression.verify import FAIL, MISSING, OK, Findings, compare, lines

FORMATS = ("text", "markdown", "csv", "json")
COLUMNS = ("model", "collection", "measure", "published", "expected", "measured", "difference", "verdict")
_ANEW = "`regress verify` makes it anew"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measure of one model on one collection. expected: what the verdict compares with."""

    model: str
    collection: str
    measure: str
    published: float | None
    expected: float | None
    measured: float | None
    difference: float | None
    verdict: str


@dataclasses.dataclass(frozen=True)
class Report:
    """Cells, models in order, and lines about results that cannot be trusted."""

    cells: tuple[Cell, ...]
    problems: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return worst([cell.verdict for cell in self.cells], bool(self.problems))


def worst(verdicts: Iterable[str], problems: bool = False) -> str:
    """Return FAIL before MISSING before OK; MISSING for nothing at all."""
    found = set(verdicts)
    if problems or FAIL in found:
        return FAIL
    return MISSING if MISSING in found or not found else OK


def read_result(plan: Plan) -> dict[str, Any]:
    """Return the result of a plan, {} where there is none; DataError where it cannot be read or is out of date."""
    if not plan.layout.result.exists():
        return {}
    try:
        result = read_object(plan.layout.result)
    except DataError as error:
        raise DataError(f"{error}: {_ANEW}") from None
    try:
        recorded = {record["stage"]: record["fingerprint"] for record in result.get("stages") or ()}
    except (TypeError, KeyError):
        raise _changed(plan) from None
    for step in plan.steps:
        now = read_record(step.place, step.stage.name).get("fingerprint")
        if now is not None and now != recorded.get(step.stage.name):
            raise DataError(f"{plan.layout.result} is older than stage {step.stage.name}: {_ANEW}")
    return result


def gather(plans: list[Plan]) -> Report:
    """Return the report of plans; means are one entry, without their parts."""
    cells, problems = [], []
    for plan in plans:
        name = plan.regression.name
        try:
            found, of_this = _found(plan, read_result(plan))
        except DataError as error:
            found, of_this = Findings(), [one_line(error)]
        problems += [f"{name}: {line}" for line in of_this]
        figures = plan.regression.expected.measures
        for row in compare(plan.regression, found):
            if row.kind == "measure" and (row.name in figures or row.found is not None):
                cells.append(
                    Cell(
                        plan.regression.model.name, plan.regression.collection.name, row.name, row.published, row.expected,
                        row.found, row.difference, FAIL if of_this else row.verdict,
                    )
                )  # fmt: skip
    return Report(tuple(cells), tuple(problems))


def _found(plan: Plan, result: dict[str, Any]) -> tuple[Findings, list[str]]:
    """Return figures and problems of a result; DataError where somebody has changed it into something else."""
    try:
        figures: dict[str, Any] = {kind: dict(value) for kind, value in result.get("found", {}).items()}
        numbers = all(type(value) in (int, float) for values in figures.values() for value in values.values())
        found, problems = Findings(**figures), lines(result.get("problems", []))
    except (TypeError, ValueError, AttributeError):
        numbers = False
    if not numbers:
        raise _changed(plan)
    return found, problems


def _changed(plan: Plan) -> DataError:
    return DataError(f"{plan.layout.result} is not as it was written: {_ANEW}")


def markdown(report: Report) -> str:
    """Return the report as a Markdown table."""
    lines = ["| " + " | ".join(cells) + " |" for cells in pivot(report)]
    columns = lines[0].count("|") - 1
    return "\n".join([lines[0], "|---|" + "---:|" * (columns - 2) + "---|", *lines[1:]])


def as_csv(report: Report) -> str:
    """Return the report as CSV, one line a figure."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in report.cells:
        writer.writerow(["" if value is None else value for value in dataclasses.astuple(cell)])
    return stream.getvalue().rstrip("\n")


def pivot(report: Report) -> list[list[str]]:
    """Return one row a model, the header first: for each measure the published figure (where there is none, the expected
    one), the measured one and their difference; the verdict last."""
    by_place = {(cell.model, cell.collection, cell.measure): cell for cell in report.cells}
    models = list(dict.fromkeys(cell.model for cell in report.cells))
    kinds = list(dict.fromkeys((cell.collection, cell.measure) for cell in report.cells))
    rows = [["", *(part for place in kinds for part in (" ".join(place), "measured", "diff.")), "verdict"]]
    for model in models:
        row = [model]
        for kind in kinds:
            cell = by_place.get((model, *kind))
            shown = None if cell is None else cell.expected if cell.published is None else cell.published
            measured = None if cell is None else cell.measured
            off = None if shown is None or measured is None else measured - shown
            row += [""] * 3 if cell is None else [_short(shown), _short(cell.measured), _short(off, "+")]
        row.append(worst(cell.verdict for cell in report.cells if cell.model == model))
        rows.append(row)
    return rows


def _short(value: float | None, sign: str = "") -> str:
    """Return a figure between 0 and 1 as papers print it: .254."""
    if value is None:
        return "-"
    text = f"{value:{sign}.3f}"
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text
