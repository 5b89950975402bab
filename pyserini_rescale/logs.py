"""What a program's log says at its end: the line that tells what went wrong, or how far it is."""

import re
from collections.abc import Iterator
from pathlib import Path


def _tail(log: Path, size: int = 65536) -> Iterator[str]:
    """Yield the lines at the end of a log, the last first; a progress bar's carriage returns end lines too."""
    try:
        with open(log, "rb") as stream:
            stream.seek(max(0, log.stat().st_size - size))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return
    for line in reversed(re.split(r"[\r\n]+", text)):
        if line.strip():
            yield line.strip()


def progress(log: Path) -> str:
    """Return the newest progress line (tqdm's) of a log, or nothing."""
    for line in _tail(log, 4096):
        if re.search(r"\d+%\||\d+it \[|\[\d+:\d\d", line):
            return re.sub(r"\|.*?\|", "", line)
        return ""
    return ""


_ERROR_LINE = re.compile(r"^error:|^(Exception in thread|Caused by)|^[\w.]*(Error|Exception|Interrupt)\b.*")
_USELESS = re.compile(r"^(at |\.\.\. \d+ more|File \"|\^+$|~)")


def last_useful_line(log: Path) -> str:
    """Return the line of a log that says what went wrong: the last that names an error, else the last with any text."""
    lines = list(_tail(log))
    for line in lines:
        if _ERROR_LINE.match(line):
            return line.removeprefix("error: ")[:500]
    return next((line[:500] for line in lines if not _USELESS.match(line)), "it printed nothing")
