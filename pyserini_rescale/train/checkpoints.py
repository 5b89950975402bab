"""Checkpoints of a run: a folder checkpoint-N is whole, because it was written under another name and renamed last.

transformers' Trainer writes the content (trainer.py); here are the names. All processes of a run see one file system.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME

from pyserini_rescale.errors import one_line
from pyserini_rescale.files import write_json

_NAME = re.compile(r"checkpoint-(\d+)")
UNFINISHED = ".unfinished"
MANIFEST = "files.json"


def found(folder: Path) -> list[tuple[int, Path]]:
    """Return (step, path) of the whole checkpoints in a run folder, oldest first."""
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob("checkpoint-*"))
    return sorted((int(match[1]), path) for match, path in matches if match and path.is_dir())


def last(folder: Path, say: Callable[[str], None] = lambda text: None) -> tuple[int, Path] | None:
    """Return (step, path) of the newest whole checkpoint, or None; ``say`` gets a line for each that is passed over."""
    for step, path in reversed(found(folder)):
        reason = damage(path, step)
        if reason is None:
            return step, path
        say(f"{path.name} is passed over: {reason}")
    return None


def damage(path: Path, step: int) -> str | None:
    """Return what is wrong with a checkpoint, or None: every file of its list is there in its size."""
    try:
        sizes = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["sizes"]
        wrong = [name for name, size in sizes.items() if (path / name).stat().st_size != size]
        if wrong:
            return f"{wrong[0]} has not the size it was written with"
        state = json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        return None if state["global_step"] == step else f"it is of step {state['global_step']}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return one_line(error)


def publish(unfinished: Path, folder: Path) -> None:
    """Rename the one checkpoint in ``unfinished`` into ``folder``, with a list of its files, all on disk first."""
    for _, path in found(unfinished):
        files = [part for part in path.rglob("*") if part.is_file() and part.name != MANIFEST]
        sizes = {part.relative_to(path).as_posix(): part.stat().st_size for part in files}
        write_json(path / MANIFEST, {"sizes": sizes})
        for part in [*path.rglob("*"), path]:
            _sync(part)
        target = folder / path.name
        if target.exists():
            shutil.rmtree(target)
        path.rename(target)
    _sync(folder)
    shutil.rmtree(unfinished, ignore_errors=True)


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints, each renamed before, so that half a checkpoint never has the name
    of a whole one."""
    for _, path in found(folder)[:-keep]:
        doomed = folder / UNFINISHED / path.name
        doomed.parent.mkdir(exist_ok=True)
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)


def _sync(path: Path) -> None:
    """Have the kernel write a file, or a folder's names, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
