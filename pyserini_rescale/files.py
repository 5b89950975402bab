"""Files and folders written aside and renamed, so that what carries a final name is whole."""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyserini_rescale.errors import DataError, one_line


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


@contextlib.contextmanager
def written_folder(folder: Path, replace: bool = False) -> Iterator[Path]:
    """Give a name beside ``folder`` that is not there yet; the folder made under it gets ``folder``'s name at the end.

    replace: what lies at ``folder`` stays until then and goes; whether it may is the caller's to check. After an error
    nothing of the new one remains. Raises DataError where it cannot be written.
    """
    # A name of its own, so that nothing that lies there already is taken for a leftover of ours.
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        if replace and folder.exists():
            shutil.rmtree(folder)
        aside.rename(folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {one_line(error)}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def exists(path: Path) -> bool:
    """Whether anything has that name; False for a name that the system refuses, which ``Path.exists`` raises for."""
    try:
        return path.exists()
    except OSError:
        return False
