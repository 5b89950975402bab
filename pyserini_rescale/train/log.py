"""The log of a run: one JSON object per logging step, written by one process, cut where a run resumes. Needs no torch."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyserini_rescale.errors import ConfigError, DataError, one_line

_STEPS = 2**63  # more is no number of steps, and too much to print


class JsonlLog:
    """A log file with one JSON object per logging step. Only one process may write it (rank 0)."""

    def __init__(self, path: Path | str, resume_step: int | None = None) -> None:
        """Open a new log, or with ``resume_step`` an earlier one, whose lines of later steps are cut off.

        The cut is written aside and renamed. Raises ConfigError if a log is there and nothing is resumed, or the file
        cannot be written; DataError as read_log does.
        """
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if resume_step is not None and self.path.exists():
                _cut(self.path, resume_step)
            elif resume_step is None and self.path.exists() and self.path.stat().st_size:
                raise ConfigError(f"{self.path} is the log of an earlier run: resume that run, or name another folder")
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {one_line(error)}") from None

    def write(self, figures: Mapping[str, Any]) -> None:
        """Append a line and flush it. ``figures``: plain values under their names, with an integer "step".

        NaN and infinities, which JSON does not have, become null, and their names a list under "not_finite". Raises
        ValueError without a step, ConfigError if the file cannot be written.
        """
        if not _is_step(figures.get("step")):
            raise ValueError(f"figures without an integer step: {figures.get('step')!r}")
        lost = [name for name, value in figures.items() if isinstance(value, float) and not math.isfinite(value)]
        record = {name: None if name in lost else value for name, value in figures.items()}
        if lost:
            record["not_finite"] = lost
        line = json.dumps(record, allow_nan=False) + "\n"
        try:
            with open(self.path, "a", encoding="utf-8") as file:  # closed, hence flushed, after each line
                file.write(line)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {one_line(error)}") from None


def read_log(path: Path | str) -> list[dict[str, Any]]:
    """Return the records of a log, in its order; record n is line n + 1.

    A last line that was written half is left out. Raises DataError for a file that cannot be read, and, with its number,
    for any other line that is not a JSON object with an integer "step".
    """
    return [record for record, _ in _lines(Path(path))]


def _lines(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    """Return records and their lines; bytes, as a line cut in mid-character is no text."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"the log {path} cannot be read: {one_line(error)}") from None
    *lines, last = content.split(b"\n")
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append((_record(line), line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {one_line(error)}; mend the line or remove it") from None
    try:
        # Without its line end, yet whole: somebody's editor left the end away. A line cut short lacks the last brace.
        found.append((_record(last), last))
    except ValueError:
        pass  # a write that a crash cut short
    return found


def _record(line: bytes) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        record = json.loads(line.decode("utf-8"), parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg}, column {error.colno})") from None
    if isinstance(record, dict) and _is_step(record.get("step")):
        if record["step"] >= _STEPS:
            raise ValueError('the number under "step" is too large for one')
        return record
    raise ValueError('no integer under "step"' if isinstance(record, dict) else "not a JSON object")


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _cut(path: Path, step: int) -> None:
    kept = b"".join(line + b"\n" for record, line in _lines(path) if record["step"] <= step)
    if kept == path.read_bytes():
        return
    aside = path.with_name(f".{path.name}.unfinished")
    with open(aside, "wb") as file:
        file.write(kept)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
