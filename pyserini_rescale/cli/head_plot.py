"""The picture of ``head show --plot``: a histogram of row norms, one outline per model."""

from collections.abc import Sequence
from pathlib import Path

from pyserini_rescale.figures import save_figure
from pyserini_rescale.model.head_stats import HeadStats


def plot_row_norms(stats: Sequence[HeadStats], names: Sequence[str], path: Path) -> None:
    """Draw the row norms of each model into ``path``; ``names`` are for the legend."""
    from matplotlib.figure import Figure  # not pyplot: no display, no global state

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    top = max(one.row_norm_max for one in stats) or 1.0
    for one, name in zip(stats, names, strict=True):
        label = f"{name} (mean {one.row_norm_mean:.3f}, max {one.row_norm_max:.3f})"
        axes.hist(one.norms, bins=200, range=(0.0, top), histtype="step", density=True, label=label)
    axes.set_xlabel("L2 norm of a row of the MLM head")
    axes.set_ylabel("density of rows")
    axes.legend()
    save_figure(figure, path)
