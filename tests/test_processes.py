"""Where a process stands, from what torchrun and srun set."""

import pytest

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.processes import Place, place


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Place(0, 1, 0)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, Place(3, 8, 1)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "2"}, Place(5, 6, 2)),
        # torchrun inside of srun: its processes are the ones that count.
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Place(1, 2, 0)),
        # a step of two tasks in an allocation of eight
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "8"}, Place(1, 2, 0)),
        ({"SLURM_PROCID": "0"}, Place(0, 1, 0)),  # half of it says nothing
        ({"SLURM_NTASKS": "4"}, Place(0, 1, 0)),  # an allocation without a step
    ],
)
def test_place(environ, expected):
    assert place(environ) == expected


@pytest.mark.parametrize(
    "environ",
    [{"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "x", "WORLD_SIZE": "2"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "-1"}],
)
def test_an_environment_that_cannot_be_is_one_line(environ):
    with pytest.raises(ConfigError, match=r"(RANK|SLURM_NTASKS) is .*which launcher set"):
        place(environ)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"RANK": "1"}, "RANK is set and WORLD_SIZE is not"),
        ({"RANK": "1", "WORLD_SIZE": ""}, "RANK is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set and RANK is not"),
        ({"RANK": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, "RANK is set and WORLD_SIZE is not"),
    ],
)
def test_half_of_what_torchrun_sets_is_refused(environ, says):
    with pytest.raises(ConfigError, match=says):
        place(environ)
