"""Tables and figures out of the results that evidence.py left: see there. Not a command of its own."""

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from evidence import BACKBONES, COLLECTIONS, CORE, GRID, read_results

from pyserini_rescale.figures import save_figure
from pyserini_rescale.train.plot import COLOURS

K_SWEEP = ("k1", "k2", "k4", "k8", "k16", "k32", "k64")
OFFSETS = ("auto-offset", "per-term-offset", "auto-k-offset")
AUTOMATIC = ("auto-k", "auto-offset", "auto-k-offset")
K_OFFSET = ("k2-offset", "k4-offset", "k8-offset", "k16-offset")
BOTH = (
    *K_OFFSET, "auto-k-offset", "auto-k-offset-shared",
    "k4-offset-head-rate", "k16-offset-head-rate", "auto-k-offset-long",
)  # fmt: skip
KINDS = {"k": ("scale (k)", COLOURS[2], "o"), "offset": ("offset", COLOURS[1], "^"), "both": ("both", COLOURS[3], "s")}
SETTINGS = (
    *K_SWEEP, "auto-k", "k16-head-rate", "k16-balanced", "k16-untied", "k16-long", "auto-offset", "per-term-offset",
    "offset-5", "offset-15", "auto-offset-long", *BOTH, "k1-paper-rate", "k16-paper-rate", "auto-offset-paper-rate",
)  # fmt: skip
assert set(SETTINGS) == {*CORE, *GRID}


def write(results: Path, output: Path) -> int:
    """Write OUTPUT/tables.md and the figures; return the exit status."""
    found = read_results(results)
    groups: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        groups[one["collection"], one["backbone"]][one["setting"]].append(one)
    output.mkdir(parents=True, exist_ok=True)
    parts = [
        f"{len(found)} trainings.\n",
        f"### Automatic settings beside the best k of the sweep\n\n{automatic(groups)}\n",
    ]
    for collection in COLLECTIONS:
        for backbone in BACKBONES:
            if groups[collection, backbone]:
                parts.append(f"### {backbone} on {collection}\n\n{table(groups[collection, backbone])}\n")
    (output / "tables.md").write_text("\n".join(parts), encoding="utf-8")
    for name, draw in (("flops", draw_flops), ("k", draw_k), ("activity", draw_activity)):
        save_figure(draw(groups), output / f"{name}.png")
    print("\n".join(parts))
    return 0


def table(settings: dict[str, list[dict[str, Any]]]) -> str:
    """Return a Markdown table, one line a setting; mean and standard deviation over seeds."""
    rows = [
        "| setting | k | offset | row norm | loss, first and last | terms q / d before | after | FLOPs | RR@10 | nDCG@10 | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in SETTINGS:
        if name not in settings:
            continue
        runs = sorted(settings[name], key=lambda one: one["seed"])
        one = runs[0]
        first, last = one["first"], one["last"]
        rows.append(
            f"| {name} | {one['k']:g} | {one['offset']:.2f} | {one['row_norm']:.3f} "
            f"| {first['contrastive']:,.3g}, {last['contrastive']:.3g} "
            f"| {first['query_active']:,.0f} / {first['document_active']:,.0f} "
            f"| {mean(runs, 'query_terms'):,.0f} / {mean(runs, 'document_terms'):,.0f} "
            f"| {mean(runs, 'flops'):.3g} | {spread(runs, 'RR@10')} | {spread(runs, 'nDCG@10')} | {len(runs)} |"
        )
    return "\n".join(rows)


def automatic(groups: Any) -> str:
    """Return a Markdown table: RR@10 of the automatic settings, and in percent of the best k and of the best of all."""
    rows = ["| | best k | " + " | ".join(AUTOMATIC) + " | best of all |", "|---" * (len(AUTOMATIC) + 3) + "|"]
    for place in ((collection, backbone) for collection in COLLECTIONS for backbone in BACKBONES):
        settings = groups[place]
        if not any(name in settings for name in K_SWEEP):
            continue
        reached = {
            name: mean(runs, "RR@10") for name, runs in settings.items() if not name.endswith(("-rate", "-long"))
        }
        best_k = max((name for name in K_SWEEP if name in reached), key=reached.__getitem__)
        best = max(reached, key=reached.__getitem__)
        cells = [
            f"{reached[name]:.3f} ({reached[name] / reached[best_k] - 1:+.0%})" if name in reached else ""
            for name in AUTOMATIC
        ]
        collection, backbone = place
        rows.append(
            f"| {backbone}, {collection} | {best_k}: {reached[best_k]:.3f} | {' | '.join(cells)} | {best}: {reached[best]:.3f} |"
        )
    return "\n".join(rows)


def mean(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.fmean(one["measures"][key] if key in one["measures"] else one[key] for one in runs)


def spread(runs: list[dict[str, Any]], key: str) -> str:
    values = [one["measures"][key] for one in runs]
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{deviation}"


def kind_of(name: str) -> str:
    return "both" if name in BOTH else "offset" if "offset" in name else "k"


def _grid(title: str, y: str, x: str) -> tuple[Any, dict[tuple[str, str], Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), layout="constrained")
    panels = figure.subplots(len(COLLECTIONS), len(BACKBONES), squeeze=False)
    axes = {
        (collection, backbone): panels[row][column]
        for row, collection in enumerate(COLLECTIONS)
        for column, backbone in enumerate(BACKBONES)
    }
    for (collection, backbone), panel in axes.items():
        panel.set_title(f"mini-{backbone}, {collection}", fontsize=10)
        panel.set_xlabel(x)
        panel.set_ylabel(y)
        panel.grid(True, alpha=0.3)
    figure.suptitle(title)
    return figure, axes


def draw_flops(groups: Any) -> Any:
    """Effectiveness against FLOPs, one mark a setting (the form of arXiv 2606.18811, Figure 2)."""
    figure, axes = _grid("Effectiveness against FLOPs after training; numbers are k", "RR@10", "FLOPs")
    for place, panel in axes.items():
        for name in (*K_SWEEP, *AUTOMATIC, "per-term-offset", *K_OFFSET):
            if name not in groups[place]:
                continue
            runs = groups[place][name]
            label, colour, mark = KINDS[kind_of(name)]
            point = mean(runs, "flops"), mean(runs, "RR@10")
            automatic = name in AUTOMATIC
            panel.plot(*point, mark, color=colour, markersize=9 if automatic else 6, label=label)
            text = "auto" if automatic else "per term" if name == "per-term-offset" else name.split("-")[0][1:]
            # By kind to the left or the right, above or below: neighbours leave each other room.
            left = kind_of(name) == "both" or name == "per-term-offset"
            where = (-5 if left else 5, -11 if automatic and left else 4)
            panel.annotate(
                text,
                point,
                fontsize=7,
                color=colour,
                xytext=where,
                textcoords="offset points",
                ha="right" if left else "left",
            )
        panel.set_xscale("log")
        panel.margins(x=0.12, y=0.1)
        handles = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
        if handles:
            panel.legend(handles.values(), handles.keys(), fontsize=7)
    return figure


def draw_k(groups: Any) -> Any:
    """Effectiveness against k, the offsets as lines across (the form of arXiv 2606.18811, Figure 3)."""
    figure, axes = _grid("Effectiveness against k (scope shared)", "RR@10", "k")
    for place, panel in axes.items():
        settings = groups[place]
        points = [(int(name[1:]), mean(settings[name], "RR@10")) for name in K_SWEEP if name in settings]
        if points:
            panel.plot(*zip(*points, strict=True), "o-", color=KINDS["k"][1], label="k")
        for name, style in zip(OFFSETS, ("solid", "dashed", "dotted"), strict=True):
            if name in settings:
                colour = KINDS[kind_of(name)][1]
                panel.axhline(mean(settings[name], "RR@10"), color=colour, linestyle=style, label=name)
        panel.set_xscale("log", base=2)
        panel.set_ylim(bottom=0)
        if settings:
            panel.legend(fontsize=7)
    return figure


def draw_activity(groups: Any) -> Any:
    """In how many documents the terms are active, by rank, before (dotted) and after training."""
    figure, axes = _grid("Activity of terms, most active first; dotted: before training", "share of documents", "rank")
    for place, panel in axes.items():
        for name, colour in zip(("k1", "k16", "auto-offset"), COLOURS, strict=False):
            run = next((one for one in groups[place].get(name, ()) if one["before_training"]), None)
            if run is None:
                continue
            for curve, style in (
                (run["before_training"]["document_activity"], "dotted"),
                (run["document_activity"], "solid"),
            ):
                label = name if style == "solid" else None
                panel.plot(curve["ranks"], curve["shares"], color=colour, linestyle=style, label=label)
        panel.set_xscale("log")
        panel.set_yscale("symlog", linthresh=1e-3)
        panel.set_ylim(0, 1.2)
        if groups[place]:
            panel.legend(fontsize=7)
    return figure
