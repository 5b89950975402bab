"""Where this process stands among the others, and the command that starts them all.

No launcher of our own: ``deepspeed``, ``torchrun`` and ``srun`` set RANK, WORLD_SIZE and so on; a bare ``python`` is one
process.
"""

import os
import socket
from collections.abc import Mapping

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.processes import integer
from pyserini_rescale.train.config import TrainConfig

# Set by every launcher; torch.distributed reads them.
_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def world_size(environ: Mapping[str, str] | None = None) -> int:
    """Return how many processes the launcher started; 1 without one."""
    return integer("WORLD_SIZE", 1, environ)


def rank(environ: Mapping[str, str] | None = None) -> int:
    """Return this process's number among all; 0 without a launcher."""
    return integer("RANK", 0, environ)


def check_world(config: TrainConfig) -> None:
    """Raise ConfigError unless as many processes run as the configuration says: its batch would be another."""
    running, wanted = world_size(), config.batch.world_size
    if running != wanted:
        raise ConfigError(
            f"{running} process(es) run, batch.world_size is {wanted}: start {wanted} (--dry-run prints the command), or "
            f"say --set batch.world_size={running}, which makes another global batch"
        )


def stand_alone() -> None:
    """Set what a launcher would set, where there is none: DeepSpeed otherwise asks for MPI."""
    if all(name in os.environ for name in _VARIABLES):
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    values = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in values.items():
        os.environ.setdefault(name, value)


def command(config: TrainConfig, words: list[str]) -> list[str]:
    """Return the argument list that starts the run whose own options are ``words`` on this kind of machine."""
    processes = config.batch.world_size
    rest = ["pyserini_rescale", "train", *words]
    if processes == 1:
        return ["python", "-m", *rest]
    if config.compute.deepspeed is not None and config.compute.device == "cuda":
        return ["deepspeed", "--num_gpus", str(processes), "--no_local_rank", "--module", *rest]
    return ["torchrun", "--standalone", "--nproc-per-node", str(processes), "-m", *rest]
