"""Aligned plain-text tables: readable on a terminal of any width, in a log and in a diff."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return ``rows``, header first, as aligned columns: ``left`` columns to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with ``digits`` digits after the point and thousands set apart, "-" for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def yes_no(value: bool | None) -> str:
    """Return yes, no, or "?" for None."""
    return "?" if value is None else "yes" if value else "no"
