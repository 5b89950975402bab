"""Pictures in files: the formats that are offered, and a write aside with a rename. Needs no display."""

import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pyserini_rescale.errors import ConfigError, one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def check_figure_file(path: Path, option: str) -> None:
    """Raise ConfigError, naming the ``option``, where no figure can be written to ``path``."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{option} {path}: the name has to end in {', '.join(FORMATS)}")
    fault = None
    try:
        if path.is_dir():
            fault = "it is a folder"
        elif not path.parent.is_dir():
            fault = f"there is no folder {path.parent}"
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        fault = one_line(error)
    if fault is not None:
        raise ConfigError(f"{option} {path}: {fault}")


def save_figure(figure: "Figure", path: Path) -> str | None:
    """Write a figure in the format of the suffix, aside and renamed; raises ConfigError if it cannot be written.

    Returns a line about letters that the font does not have, which are drawn as boxes, None where there are none.
    """
    drawn = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150)
    aside = path.with_name(f".{os.getpid()}.unfinished")  # short: the file's own name may be as long as names can be
    try:
        try:
            aside.write_bytes(drawn.getvalue())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {one_line(error)}") from None
    boxes = any("missing from font" in str(one.message) for one in caught)
    return "matplotlib's font lacks some letters of the labels or the title: they are boxes" if boxes else None
