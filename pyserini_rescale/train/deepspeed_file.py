"""The DeepSpeed configuration of a run, read from YAML or JSON; torch is not needed for it."""

from pathlib import Path
from typing import Any

from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.train.config import training_folder
from pyserini_rescale.yaml_files import read_yaml


def read_deepspeed(name: str) -> dict[str, Any]:
    """Return the DeepSpeed configuration ``name``: a YAML or JSON file, or a shipped one.

    Raises ConfigError where there is none, or it asks for more than ZeRO stage 1: the export gathers whole parameters.
    """
    path = next((place for place in (Path(name).expanduser(), training_folder() / name) if place.is_file()), None)
    if path is None:
        raise ConfigError(f"compute.deepspeed: {name} is neither a file nor a shipped one")
    try:
        found = read_yaml(path)  # JSON is YAML
    except ConfigError as error:
        raise ConfigError(f"{path}: {one_line(error)}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a table of keys")
    zero = found.get("zero_optimization", {})
    stage = zero.get("stage", 0) if isinstance(zero, dict) else None
    if stage not in (0, 1):
        raise ConfigError(f"{path}: zero_optimization.stage {stage!r}: 0 or 1 is supported")
    return found
