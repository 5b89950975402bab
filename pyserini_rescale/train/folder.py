"""The folder of a training run: what lies in it, and whether a run may begin or go on there. Needs no torch.

config.yaml (as resolved), start/ and start.json (the model that training starts with), log.jsonl, tensorboard/,
checkpoint-N/, model/ (the export) and run.json (what happened).
"""

from pathlib import Path
from typing import Any

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.train.config import TrainConfig
from pyserini_rescale.yaml_files import read_yaml

CONFIG, START, FACTS, MODEL, RECORD = "config.yaml", "start", "start.json", "model", "run.json"
# What may differ when a run is resumed: nothing that decides what is computed.
_FREE = ("name", "output", "checkpoints", "monitors")


def check_folder(config: TrainConfig, folder: Path, resume: bool) -> None:
    """Raise ConfigError if the run's folder is there and cannot be used."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"output: {folder} is a file: name a folder")
    stored = folder / CONFIG
    if resume and stored.exists():
        _check_same(config, stored)
    elif folder.is_dir() and any(path.name not in (FACTS, START) for path in folder.iterdir()):
        what = "a run: --resume continues it" if stored.exists() else "other things"
        raise ConfigError(f"{folder} holds {what}; or name another folder by --output")


def _check_same(config: TrainConfig, stored: Path) -> None:
    before, now = read_yaml(stored), config.model_dump(mode="json")
    different = sorted(_differences(before, now))
    if different:
        raise ConfigError(
            f"{stored} says otherwise: {'; '.join(different[:6])}. Resume with the configuration that the run began with"
        )


def _differences(before: Any, now: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for key in {**before, **now}:
            inner = f"{path}.{key}" if path else str(key)
            if inner not in _FREE:
                found += _differences(before.get(key), now.get(key), inner)
        return found
    return [] if before == now else [f"{path} was {before}, is {now}"]
