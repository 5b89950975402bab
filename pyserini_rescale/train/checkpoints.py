"""Checkpoints of a run: a folder checkpoint-N is whole, because it was written under another name and renamed last.

transformers' Trainer writes the content (trainer.py); here are the names. All processes of a run see one file system.
"""

import json
import os
import re
import shutil
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME

from pyserini_rescale.errors import DataError, one_line

_NAME = re.compile(r"checkpoint-(\d+)")
UNFINISHED = ".unfinished"


def found(folder: Path) -> list[tuple[int, Path]]:
    """Return (step, path) of the whole checkpoints in a run folder, oldest first."""
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob("checkpoint-*"))
    return sorted((int(match[1]), path) for match, path in matches if match and path.is_dir())


def last(folder: Path) -> tuple[int, Path] | None:
    """Return (step, path) of the newest checkpoint, or None; DataError where its state cannot be read."""
    steps = found(folder)
    if not steps:
        return None
    step, path = steps[-1]
    try:
        state = json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        if state["global_step"] != step:
            raise ValueError(f"it is of step {state['global_step']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a whole checkpoint ({one_line(error)}): remove it to resume from an earlier one"
        ) from None
    return step, path


def publish(unfinished: Path, folder: Path) -> None:
    """Rename the one checkpoint in ``unfinished`` into ``folder``, its files on disk first; replace one of that step."""
    for _, path in found(unfinished):
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
