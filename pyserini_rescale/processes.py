"""Where this process stands among those that were started together, as launchers say it in the environment.

torchrun and deepspeed set RANK, WORLD_SIZE and LOCAL_RANK; srun sets SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID. A
bare ``python`` is one process.
"""

import dataclasses
import os
from collections.abc import Mapping

from pyserini_rescale.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Place:
    """Process ``number`` (from 0) of ``count``; ``local`` is its number on its own machine."""

    number: int = 0
    count: int = 1
    local: int = 0


def place(environ: Mapping[str, str] | None = None) -> Place:
    """Return this process's place; raises ConfigError for an environment that contradicts itself.

    torchrun goes before srun: it may run inside. Of srun, SLURM_STEP_NUM_TASKS, where it is set, counts the processes of
    this very step. A RANK alone is refused: every process would take itself for the only one. What srun sets may be there
    by half, in an allocation without a step.
    """
    environ = os.environ if environ is None else environ
    for number, counts, local in (
        ("RANK", ("WORLD_SIZE",), "LOCAL_RANK"),
        ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_LOCALID"),
    ):
        count = next((name for name in counts if environ.get(name)), None)
        if number == "RANK" and bool(environ.get(number)) != (count is not None):
            one, other = (number, counts[0]) if count is None else (counts[0], number)
            raise ConfigError(f"{one} is set and {other} is not: set both, as torchrun does, or neither")
        if not environ.get(number) or count is None:
            continue
        found = Place(integer(number, 0, environ), integer(count, 1, environ), integer(local, 0, environ))
        if found.number >= found.count:
            raise ConfigError(
                f"{number} is {found.number} and {count} is {found.count}: processes are counted from 0; which launcher "
                "set them?"
            )
        return found
    return Place()


def integer(name: str, default: int, environ: Mapping[str, str] | None = None) -> int:
    """Return a number of the environment, ``default`` where there is none."""
    text = (os.environ if environ is None else environ).get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ConfigError(f"the environment variable {name} is {text!r}, not a number: which launcher set it?")
    return int(text)
