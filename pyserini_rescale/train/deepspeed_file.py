"""The DeepSpeed configuration of a run, read from YAML or JSON; torch is not needed for it."""

from typing import Any

from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.files import at_home
from pyserini_rescale.train.config import training_folder
from pyserini_rescale.yaml_files import read_yaml

# What the training configuration decides: "auto" or absent, and absent.
_AUTO = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
_OURS = ("optimizer", "scheduler", "fp16", "amp")


def read_deepspeed(name: str) -> dict[str, Any]:
    """Return the DeepSpeed configuration ``name``: a YAML or JSON file, or a shipped one.

    Raises ConfigError where there is none, or it is not ZeRO stage 1, or it says what the training
    configuration says (batch, clipping, optimiser).
    """
    path = next((place for place in (at_home(name), training_folder() / name) if place.is_file()), None)
    if path is None:
        raise ConfigError(f"compute.deepspeed: {name} is neither a file nor a shipped one")
    try:
        found = read_yaml(path)  # JSON is YAML
    except ConfigError as error:
        raise ConfigError(f"{path}: {one_line(error)}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a table of keys")
    zero = found.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, dict) else None
    if stage != 1:
        raise ConfigError(f"{path}: zero_optimization.stage is {stage!r}: stage 1 is what is supported")
    bf16 = found.get("bf16", {})
    fixed = [key for key in _AUTO if found.get(key, "auto") != "auto"]
    fixed += ["bf16.enabled"] if not isinstance(bf16, dict) or bf16.get("enabled", "auto") != "auto" else []
    fixed += [key for key in _OURS if key in found]
    if fixed:
        raise ConfigError(
            f"{path}: {', '.join(fixed)}: the training configuration says that; leave it out, or write auto"
        )
    return found
