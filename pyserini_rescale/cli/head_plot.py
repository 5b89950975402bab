"""The picture of ``head show --plot``: a histogram of row norms, one outline per model."""

import io
from collections.abc import Sequence
from pathlib import Path

from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.model.head_stats import HeadStats

FORMATS = (".png", ".svg", ".pdf")


def check_plot_file(name: str) -> Path:
    """Return the path to draw to; raises ConfigError for a format that is not offered, or a missing folder."""
    path = Path(name)
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {name}: the name has to end in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise ConfigError(f"--plot {name}: there is no folder {path.parent}")
    return path


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
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150)
    try:
        path.write_bytes(drawn.getvalue())
    except OSError as error:
        raise ConfigError(f"--plot {path} cannot be written: {one_line(error)}") from None
