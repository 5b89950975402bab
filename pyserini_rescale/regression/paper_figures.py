"""Figures 1 to 4 of arXiv 2606.18811 from results, the published values as hollow marks beside the measured ones.

The paper prints values for Figure 1 and, by way of Table 2, for points of Figure 3; Figures 2 and 4 have none, so those show
measured values alone. Colours are Okabe and Ito's, and everything is told apart by marks and hatches too, so that it can
be read in black and white. matplotlib is imported where something is drawn.
"""

import dataclasses
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyserini_rescale.errors import DataError, one_line
from pyserini_rescale.regression.planning import Plan
from pyserini_rescale.regression.report import read_result
from pyserini_rescale.train import plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUITES = {1: "figure3", 2: "figure2", 3: "figure3", 4: "table2"}
"""Where the models of each figure are listed."""

LARGE = 2.0
"""Mean row norm from which the paper calls a head large."""

MEASURE = "nDCG@10"
_FIGURE_4 = ("modernbert-base", "ettin-150m")
_NAME = re.compile(r"^(?P<backbone>.+?)\.k(?P<k>\d+)(?:\.(?P<lambdas>q.+))?$")
_MARKS = "osD^vPX<>"
_SMALL_COLOUR, _LARGE_COLOUR = "#0072B2", "#D55E00"


@dataclasses.dataclass(frozen=True)
class Point:
    """One model. row_norm: published mean of its backbone; lambdas: the part of the name that says them, or None."""

    backbone: str
    k: int
    lambdas: str | None
    row_norm: float | None
    published: float | None
    measured: float | None
    flops: float | None

    @property
    def large(self) -> bool:
        return self.row_norm is not None and self.row_norm >= LARGE


def draw(number: int, plans: list[Plan]) -> tuple["Figure", list[str]]:
    """Return the figure and lines about results that are not in it. Raises DataError where there is nothing to draw."""
    if number == 4:
        return _losses(plans)
    points, notes = _points(plans)
    if number != 2:
        return (_bars(points) if number == 1 else _against_k(points)), notes
    return _against_flops(points), notes


def _points(plans: Iterable[Plan]) -> tuple[list[Point], list[str]]:
    points, notes, lacking = [], [], 0
    for plan in plans:
        parts = _NAME.match(plan.regression.model.name)
        if parts is None:
            continue
        try:
            found = read_result(plan).get("found", {})
        except DataError as error:
            notes.append(one_line(error))
            found = {}
        figure = plan.regression.expected.measures.get(MEASURE)
        norm = plan.regression.model.head.get("row_norm_mean")
        measured = found.get("measures", {}).get(MEASURE)
        lacking += measured is None
        points.append(
            Point(
                parts["backbone"], int(parts["k"]), parts["lambdas"], None if norm is None else norm.published,
                None if figure is None else figure.published, measured, found.get("sparsity", {}).get("flops"),
            )
        )  # fmt: skip
    if lacking:
        notes.append(f"{lacking} of {len(points)} models have no result yet")
    return points, notes


def _axes(width: float = 8, height: float = 5) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure  # not pyplot: no display, no global state

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _bars(points: list[Point]) -> "Figure":
    """Figure 1: each backbone at k = 1, small heads beside large ones."""
    shown = sorted((point for point in points if point.k == 1), key=lambda point: point.large)
    if not shown:
        raise DataError("Figure 1: there is no model at k = 1")
    figure, axes = _axes()
    for place, point in enumerate(shown):
        colour = _LARGE_COLOUR if point.large else _SMALL_COLOUR
        hatch = "//" if point.large else ""
        for value, offset, fill, edge in (
            (point.measured, -0.2, colour, "black"),
            (point.published, 0.2, "none", colour),
        ):
            if value is not None:
                axes.bar(place + offset, value, width=0.38, color=fill, edgecolor=edge, hatch=hatch)
                axes.annotate(f"{value:.3f}"[1:], (place + offset, value), ha="center", va="bottom", fontsize="small")
    axes.set_xticks(range(len(shown)), [point.backbone for point in shown], rotation=20, ha="right")
    axes.set_ylabel("BEIR-13, mean nDCG@10")
    axes.grid(True, axis="y", alpha=0.3)
    _legend(
        figure,
        _patch(_SMALL_COLOUR, "", f"mean row norm below {LARGE:g}"),
        _patch(_LARGE_COLOUR, "//", f"{LARGE:g} or more"),
        _patch("none", "", "published (hollow)"),
    )
    return figure


def _against_flops(points: list[Point]) -> "Figure":
    """Figure 2: effectiveness against FLOPs on NanoBEIR, one mark a backbone and k, one point a pair of lambdas."""
    shown = [point for point in points if point.measured is not None and point.flops]
    if not shown:
        raise DataError("Figure 2: the paper prints no values, and none is measured yet: `regress run --suite figure2`")
    figure, axes = _axes()
    groups = list(dict.fromkeys((point.backbone, point.k) for point in points))
    for place, (backbone, k) in enumerate(groups):
        of_this = sorted((point.flops, point.measured) for point in shown if (point.backbone, point.k) == (backbone, k))
        if of_this:
            axes.plot(
                *zip(*of_this, strict=True), color=plot.COLOURS[place % len(plot.COLOURS)], label=f"{backbone} / {k}",
                marker=_MARKS[place % len(_MARKS)], linestyle=plot.STYLES[place % len(plot.STYLES)], linewidth=1,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("FLOPs: multiplications of an average pair of query and document")
    axes.set_ylabel("NanoBEIR, mean nDCG@10")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    return figure


def _against_k(points: list[Point]) -> "Figure":
    """Figure 3: small heads as lines over k; large ones as points, the best k of each as a star."""
    figure, axes = _axes()
    for place, backbone in enumerate(dict.fromkeys(point.backbone for point in points)):
        of_this = sorted((point for point in points if point.backbone == backbone), key=lambda point: point.k)
        colour, mark = plot.COLOURS[place % len(plot.COLOURS)], _MARKS[place % len(_MARKS)]
        large = of_this[0].large
        style: dict[str, Any] = {"color": colour, "marker": mark, "linewidth": 1.4, "markersize": 7}
        for kind in ("measured", "published"):
            known = [(point.k, getattr(point, kind)) for point in of_this if getattr(point, kind) is not None]
            if not known:
                continue
            hollow: dict[str, Any] = {"markerfacecolor": "none"} if kind == "published" else {}
            line = "none" if large or kind == "published" else plot.STYLES[place % len(plot.STYLES)]
            axes.plot(*zip(*known, strict=True), linestyle=line, **style, **hollow)
            if large:
                best = max(known, key=lambda pair: pair[1])
                axes.plot(*best, linestyle="none", **{**style, "marker": "*", "markersize": 18}, **hollow)
        axes.plot([], [], linestyle="none", label=f"{backbone}{' (large)' if large else ''}", **style)
    axes.plot([], [], linestyle="none", marker="o", color="black", markerfacecolor="none", label="published (hollow)")
    axes.plot([], [], linestyle="none", marker="*", color="black", markersize=12, label="best k of a large head")
    axes.set_xscale("log", base=2)
    ticks = sorted({point.k for point in points})
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.set_xlabel("k")
    axes.set_ylabel("BEIR-13, mean nDCG@10")
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def _losses(plans: list[Plan]) -> tuple["Figure", list[str]]:
    """Figure 4: contrastive loss against epoch, from the logs of training."""
    folders = {
        plan.regression.model.name: plan.layout.training
        for plan in plans
        if plan.regression.model.name.rpartition(".")[0] in _FIGURE_4
    }
    there = {name: folder for name, folder in folders.items() if folder.is_dir()}
    if not there:
        raise DataError("Figure 4: the paper prints no values, and no model of it has been trained yet")
    curves = [plot.curve(run, "contrastive") for run in plot.load_runs(list(there.values()), list(there))]
    notes = [note for one in curves if (note := one.note())]
    absent = [name for name in folders if name not in there]
    if absent:
        notes.append(f"not trained yet: {', '.join(absent)}")
    return plot.draw(curves, "contrastive"), notes


def _patch(colour: str, hatch: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor=colour, edgecolor="black", hatch=hatch, label=label)


def _legend(figure: "Figure", *handles: Any) -> None:
    figure.legend(handles=list(handles), loc="outside upper center", ncols=len(handles))
