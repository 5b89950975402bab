"""The folder of a training run: what lies in it, and whether a run may begin or go on there. Needs no torch.

config.yaml (as resolved), start/ and start.json (the model that training starts with), log.jsonl, tensorboard/,
checkpoint-N/, model/ (the export) and run.json (what happened).
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.train.config import TrainConfig
from pyserini_rescale.yaml_files import read_table

CONFIG, START, FACTS, LOG, MODEL, RECORD = "config.yaml", "start", "start.json", "log.jsonl", "model", "run.json"
# What may differ when a run is resumed: nothing that decides what is computed.
_FREE = ("name", "output", "checkpoints", "monitors")
LOCK = ".lock"
# What a process that was killed may leave: the lock, and files that were not renamed yet.
_LEFT_BEHIND = re.compile(r"^\.(lock$|unfinished$|start\.|config\.yaml\.|start\.json\.)")


def check_folder(config: TrainConfig, folder: Path, resume: bool) -> None:
    """Raise ConfigError if the run's folder is there and cannot be used."""
    try:
        if not folder.exists():
            return
        if not folder.is_dir():
            raise ConfigError(f"output: {folder} is a file: name a folder")
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise ConfigError(f"output: {str(folder)[:80]} cannot be used: {one_line(error)[:120]}") from None
    if CONFIG in names and resume:
        _check_same(config, folder / CONFIG)
    elif CONFIG in names:
        raise ConfigError(
            f"{folder} holds a run: --resume continues it if it is this one; else remove the folder, or name another by --output"
        )
    elif any(name.startswith("checkpoint-") for name in names):
        raise ConfigError(f"{folder} holds checkpoints and no {CONFIG}: remove the folder, or name another by --output")
    elif not all(name in (FACTS, START) or _LEFT_BEHIND.match(name) for name in names):
        raise ConfigError(f"{folder} holds other things: name another folder by --output")


def is_finished(folder: Path) -> bool:
    """Whether the export is there (it is renamed when whole; an empty folder is none)."""
    return (folder / MODEL / "config.json").is_file()


@contextlib.contextmanager
def locked(folder: Path, option: str = "output", doing: str = "training") -> Iterator[None]:
    """Hold a folder, which is made if need be, for this process; ConfigError where another one holds it."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = open(folder / LOCK, "a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option}: {folder} cannot be written: {one_line(error)}") from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.set_inheritable(stream.fileno(), True)  # a stage that outlives a killed parent holds it on
        except BlockingIOError:
            raise ConfigError(f"another process is {doing} in {folder}: wait for it, or name another folder") from None
        except OSError:
            pass  # a file system without locks
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            if made and not any(folder.iterdir()):
                folder.rmdir()


def deciding(config: TrainConfig) -> dict[str, Any]:
    """Return the configuration without what may differ when a run is resumed."""
    return _deciding(config.model_dump(mode="json"))


def _deciding(dumped: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in dumped.items() if key not in _FREE}


def _check_same(config: TrainConfig, stored: Path) -> None:
    different = sorted(_differences(_deciding(read_table(stored)), deciding(config)))
    if different:
        raise ConfigError(
            f"{stored} says otherwise: {'; '.join(different[:6])}. Resume with the configuration that the run began with"
        )


def _differences(before: Any, now: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = {**before, **now}
        inner = {key: f"{path}.{key}" if path else str(key) for key in keys}
        return [line for key in keys for line in _differences(before.get(key), now.get(key), inner[key])]
    return [] if before == now else [f"{path} was {before}, is {now}"]
