"""Figure 4 of arXiv 2606.18811 from the logs of runs: loss against epoch, and what a table says beside it.

A log scale, one line per run, an inset on the last 40 %. Logs are those of log.py; the command line, which prints
the table, is in cli/plot.py. matplotlib is imported where something is drawn, without a display or global state; no torch.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.train.folder import LOG
from pyserini_rescale.train.log import read_log
from pyserini_rescale.yaml_files import read_yaml

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

INSET_SHARE = 0.4  # of the epochs, from the end
LAST_SHARE = 0.1  # of the logging steps, for the mean in the table

# What matplotlib's scales and layout can take; training in float32 stays far within.
_LARGEST, _SMALLEST, _MOST_EPOCHS = 1e100, 1e-100, 1e9
_LONGEST = 100  # characters of a label or title in the figure

# Okabe and Ito's colours, which colour-blind readers can tell apart, without yellow, which white paper swallows. Styles
# tell lines apart in black and white; seven colours and five styles repeat after 35 runs.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("solid", "dashed", "dotted", "dashdot", (0, (7, 1.5, 1, 1.5, 1, 1.5)))

# The inset in fractions of the axes: left, bottom, width, height. A falling loss leaves the upper right free.
_INSET = (0.5, 0.52, 0.48, 0.41)
_FREE_BELOW = 0.42  # the tick labels of the inset, too, keep off the lines


@dataclasses.dataclass(frozen=True)
class Run:
    """The log of a run: the file it was read from, its records (record n is line n + 1), and a label for readers."""

    label: str
    path: Path
    records: tuple[dict[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Curve:
    """The points of a run that can be drawn, and how many cannot: not finite, not positive on a log scale, or beyond any
    scale."""

    label: str
    epochs: tuple[float, ...]
    values: tuple[float, ...]
    not_finite: int
    not_positive: int
    extreme: int = 0

    def note(self) -> str | None:
        """Return a line about the points left out, None if there are none."""
        left_out = self.not_finite + self.not_positive + self.extreme
        if not left_out:
            return None
        counts = (
            (self.not_finite, "not finite"),
            (self.not_positive, "zero or negative, without a place on a log scale"),
            (self.extreme, "too large or too small to draw"),
        )
        reasons = ", ".join(f"{count:,} {what}" for count, what in counts if count)
        return f"{self.label}: {left_out:,} of {left_out + len(self.values):,} points left out ({reasons})"


_Line = tuple[Curve, Sequence[float], dict[str, Any]]  # what is drawn: a curve, its values smoothed, its style


@dataclasses.dataclass(frozen=True)
class Summary:
    """A run in figures, of the values as they were logged (not smoothed).

    steps: the last one logged. first: the first value. last: mean over the last tenth of the logging steps. lowest: of
    the finite values. active: terms of a document on average at the last logging step that says it. NaN where a value is
    not finite, None where there is none.
    """

    label: str
    steps: int | None
    first: float | None
    last: float | None
    lowest: float | None
    active: float | None


def load_runs(paths: Sequence[Path], labels: Sequence[str] | None = None) -> list[Run]:
    """Read the logs of run folders or log files.

    A label is the one given, else the name in the folder's config.json or config.yaml, else the folder's name; where two
    would be the same, their paths. Raises ConfigError for a path without a log, labels that do not fit or tell apart, and
    a configuration that cannot be read for its name; DataError for a log that cannot be read.
    """
    if labels is not None and len(labels) != len(paths):
        raise ConfigError(f"--labels: {len(labels)} labels for {len(paths)} runs")
    logs = [_log_of(path) for path in paths]
    names = [shown(label) for label in labels] if labels is not None else [shown(_name_of(log)) for log in logs]
    if labels is None:
        names = [name if names.count(name) == 1 else shown(str(path)) for name, path in zip(names, paths, strict=True)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two runs are called {name}: give --labels that tell them apart")
    return [Run(name, log, tuple(read_log(log))) for name, log in zip(names, logs, strict=True)]


def curve(run: Run, measure: str, *, linear: bool = False) -> Curve:
    """Return the points of a run for any logged key.

    Raises ConfigError for a key that the log does not have, DataError with the line for a value that is no number or an
    epoch that cannot be.
    """
    if run.records and not any(measure in record for record in run.records):
        known = sorted({shown(name) for record in run.records for name in record} - {"not_finite"})
        raise ConfigError(f"{run.path} has no {measure}; it has {', '.join(known)}")
    epochs, values = [], []
    not_finite = not_positive = extreme = 0
    for number, record in enumerate(run.records, start=1):
        if measure not in record:  # logged now and then only
            continue
        value = _number(record, measure, run.path, number)
        epoch = _number(record, "epoch", run.path, number)
        if epoch is None or not 0 <= epoch <= _MOST_EPOCHS:
            raise DataError(f"{run.path}, line {number}: no epoch to draw at")
        if value is None or not math.isfinite(value):
            not_finite += 1
        elif value <= 0 and not linear:
            not_positive += 1
        elif abs(value) > _LARGEST or (0 < value < _SMALLEST and not linear):
            extreme += 1
        else:
            epochs.append(epoch)
            values.append(value)
    return Curve(run.label, tuple(epochs), tuple(values), not_finite, not_positive, extreme)


def summary(run: Run, measure: str) -> Summary:
    """Return the figures of a run for the table; raises DataError for a value that is no number."""
    lines = list(enumerate(run.records, start=1))
    logged = [_number(record, measure, run.path, number) for number, record in lines if measure in record]
    values = [math.nan if value is None or not math.isfinite(value) else value for value in logged]
    finite = [value for value in values if not math.isnan(value)]
    tail = values[-max(1, round(LAST_SHARE * len(values))) :]
    terms = [_number(record, "document_active", run.path, number) for number, record in lines]
    active = [value for value in terms if value is not None]
    return Summary(
        label=run.label,
        steps=run.records[-1]["step"] if run.records else None,
        first=values[0] if values else None,
        last=_mean(tail) if tail else None,
        lowest=min(finite) if finite else math.nan if values else None,
        active=active[-1] if active else None,
    )


def running_mean(values: Sequence[float], size: int) -> list[float]:
    """Return the mean of each value and those before it, ``size`` in all; of as many as there are at the start."""
    means = []
    for end in range(1, len(values) + 1):
        window = values[max(0, end - size) : end]
        means.append(_mean(window))
    return means


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum, not the mean
        return sum(value / len(values) for value in values)


def shown(text: str) -> str:
    """Return a text as one line that can be printed and drawn: without line ends, "?" for what has no letter."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def draw(
    curves: Sequence[Curve], measure: str, *, smooth: int = 1, title: str | None = None, linear: bool = False
) -> "Figure":
    """Return the figure: a line per run that has points, a legend for all of them, the inset, if it has a line to show.

    smooth: points of the running mean. Raises ConfigError for less than 1, DataError if no run has a point.
    """
    from matplotlib.figure import Figure  # not pyplot: no display, no global state

    if smooth < 1:
        raise ConfigError(f"--smooth {smooth}: 1 or more points are needed")
    if not any(one.values for one in curves):
        notes = "; ".join(one.note() or f"{one.label}: nothing logged" for one in curves)
        hint = "; try --linear" if any(one.not_positive for one in curves) else ""
        raise DataError(f"there is no point of {shown(measure)} to draw: {notes}{hint}")
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    # Styles go by the place among all runs, so that a run keeps its own when another has nothing to draw.
    lines: list[_Line] = [
        (one, tuple(running_mean(one.values, smooth)), {
            "color": COLOURS[place % len(COLOURS)], "linestyle": STYLES[place % len(STYLES)],
            # One point makes no line.
            "marker": "o" if len(one.values) == 1 else "", "linewidth": 1.6,
        })
        for place, one in enumerate(curves) if one.values
    ]  # fmt: skip
    drawn = [axes.plot(one.epochs, values, **style)[0] for one, values, style in lines]
    axes.set_yscale("linear" if linear else "log")
    axes.set_xlabel("epoch")
    axes.set_ylabel(_short(_words(measure)) + (f", mean of {smooth} points" if smooth > 1 else ""), parse_math=False)
    axes.grid(True, alpha=0.3)
    if title is not None:
        axes.set_title(_short(title), parse_math=False)
    _add_inset(axes, lines, linear)
    bottom, top = axes.get_ylim()
    if not linear and top < 100 * bottom:
        _plain_ticks(axes)
    legend = figure.legend(
        drawn, [str(number) for number in range(len(drawn))], loc="outside lower center", ncols=_columns(lines)
    )
    _write_labels(legend, [one.label for one, _, _ in lines])
    return figure


def _log_of(path: Path) -> Path:
    log = path / LOG
    try:
        if path.is_file():
            return path
        if not path.is_dir():
            raise ConfigError(f"there is no run {path}: name a run's folder, or its {LOG}")
        if not log.is_file():
            raise ConfigError(f"{path} has no {LOG}: is it a run's folder, and has it logged a step yet?")
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise ConfigError(f"the run {path} cannot be read: {one_line(error)}") from None
    return log


def _name_of(log: Path) -> str:
    if log.name != LOG:
        return log.stem
    folder = log.parent
    for path in (folder / "config.json", folder / "config.yaml"):
        if path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else read_yaml(path)
            except (OSError, ValueError, RecursionError, ConfigError) as error:
                raise ConfigError(
                    f"{path} cannot be read for the run's name: {one_line(error)}; give --labels"
                ) from None
            name = found.get("name") if isinstance(found, dict) else None
            if isinstance(name, str) and name.strip():
                return name
    return folder.resolve().name


def _number(record: dict[str, Any], name: str, path: Path, line: int) -> float | None:
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{path}, line {line}: {name} is {value!r:.40}, not a number")
    try:
        return float(value)
    except OverflowError:  # an integer of 400 digits
        return math.inf


def _words(measure: str) -> str:
    words = measure.replace("_", " ")
    return f"{words} loss" if measure == "contrastive" else words


def _add_inset(axes: "Axes", lines: Sequence[_Line], linear: bool) -> None:
    """Draw the last 40 % of the epochs once more, in the upper right; the axes grow upwards where lines would be there."""
    end = max(max(one.epochs) for one, _, _ in lines)
    start = (1 - INSET_SHARE) * end
    shown: list[tuple[list[float], list[float], dict[str, Any]]] = []
    for one, values, style in lines:
        kept = [(epoch, value) for epoch, value in zip(one.epochs, values, strict=True) if epoch >= start]
        if len(kept) > 1:
            shown.append(([epoch for epoch, _ in kept], [value for _, value in kept], style))
    if not shown or end <= start:  # no line
        return
    _make_room(axes, lines, linear)
    inset = axes.inset_axes(_INSET)
    for epochs, late, style in shown:
        inset.plot(epochs, late, **style)
    inset.set_yscale("linear" if linear else "log")
    if not linear:
        _plain_ticks(inset)
    inset.set_xlim(start, end)
    inset.set_title(f"last {INSET_SHARE:.0%}", fontsize="small")
    inset.tick_params(which="both", labelsize="x-small")
    inset.grid(True, alpha=0.3)


def _make_room(axes: "Axes", lines: Sequence[_Line], linear: bool) -> None:
    left, right = axes.get_xlim()
    covered = left + (_INSET[0] - 0.06) * (right - left)  # the tick labels of the inset stand to its left
    below = [
        value for one, values, _ in lines for epoch, value in zip(one.epochs, values, strict=True) if epoch >= covered
    ]
    bottom, top = axes.get_ylim()
    if linear:
        axes.set_ylim(bottom, max(top, bottom + (max(below) - bottom) / _FREE_BELOW))
    else:
        decades = (math.log10(max(below)) - math.log10(bottom)) / _FREE_BELOW
        axes.set_ylim(bottom, max(top, 10.0 ** min(math.log10(bottom) + decades, 200.0)))


def _plain_ticks(axes: "Axes") -> None:
    """Write 2 and 0.6 at the ticks of a log scale, in place of 2 x 10^0 and 6 x 10^-1: a few decades need no powers."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Plain(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""  # matplotlib chooses the ticks that have room

    axes.yaxis.set_major_formatter(Plain())
    axes.yaxis.set_minor_formatter(Plain(minor_thresholds=(1.5, 0.5)))


def _columns(lines: Sequence[Any]) -> int:
    longest = max(len(_short(one.label)) for one, _, _ in lines)
    return max(1, min(len(lines), 5, 90 // (longest + 8)))


def _write_labels(legend: "Legend", labels: Sequence[str]) -> None:
    """Write labels as they are: matplotlib leaves out those that start with "_", and takes "$" for formulas."""
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_parse_math(False)
        text.set_text(_short(label))


def _short(text: str) -> str:
    """Return a text as one line, without its middle where it is too long for the figure."""
    text = shown(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
