"""Small files written aside and renamed, so that a file of a final name is whole."""

import json
import os
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file aside and rename it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write plain data as JSON, indented, aside and rename it."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def at_home(name: str | Path) -> Path:
    """Return a path with ~ replaced; as it is where nobody has that name, for which ``Path.expanduser`` raises."""
    return Path(os.path.expanduser(name))


def exists(path: Path) -> bool:
    """Whether anything has that name; False for a name that the system refuses, which ``Path.exists`` raises for."""
    try:
        return path.exists()
    except OSError:
        return False
