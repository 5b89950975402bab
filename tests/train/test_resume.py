"""Runs killed by SIGKILL and resumed, against undisturbed ones: weights, log, order of data."""

import copy
import functools
import json
import signal

import pytest
from safetensors.torch import load_file

from tests.train.conftest import launch, save_backbone

pytestmark = pytest.mark.slow


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def same(one, other) -> bool:
    return set(one) == set(other) and all(one[name].equal(other[name]) for name in one)


def log(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "steps_per_second"} for line in lines]


FAMILY = "modernbert"
SETTINGS = {
    "plain": {},
    # 48 rows are two global batches of 20, and 8 rows, one batch of 5 for one process and 3 rows for the other, are over.
    "uneven": {"batch": {"per_device": 5, "accumulation": 2}},
    "autocast": {"compute": {"precision": "bf16"}},
    "deepspeed": {"compute": {"precision": "bf16", "deepspeed": "zero1.yaml"}},
    FAMILY: {"rescale": {"scope": "untied"}, "compute": {"gradient_checkpointing": True, "workers": 1}},
}


@pytest.mark.parametrize(
    ("setting", "processes", "torchrun", "again"),
    [
        ("plain", 1, False, []),
        ("plain", 2, False, None),
        ("uneven", 2, False, None),
        ("autocast", 1, False, None),
        ("deepspeed", 1, False, None),
        ("deepspeed", 2, True, None),
        (FAMILY, 1, False, ["--resume"]),
    ],
)
def test_killed_and_resumed_run_ends_with_the_same_weights(config, tmp_path, setting, processes, torchrun, again):
    """again: how the run is started after a kill while start/ was saved; None: it begins without that."""
    run = functools.partial(launch, processes=processes, torchrun=torchrun)
    sections = copy.deepcopy(SETTINGS[setting])
    sections["batch"] = {**sections.get("batch", {}), "world_size": processes}
    if setting == FAMILY:  # whose published models have no dropout: nothing would be drawn
        some = dict.fromkeys(("attention_dropout", "mlp_dropout", "embedding_dropout"), 0.1)
        sections["backbone"] = {"name": save_backbone(tmp_path / FAMILY, FAMILY, **some)}
    # 48 rows: 12, 6 or 2 global batches, so that 14 steps are several passes over the data, each in another order.
    undisturbed = config("undisturbed", max_steps=14, epochs=7, **sections)
    run(["--config", undisturbed])
    killed = config("killed", max_steps=14, epochs=7, **sections)
    if again is not None:
        assert_killed(run(["--config", killed], orders={"kill_in_save": "start"}, check=False))
        assert drafts(tmp_path / "killed") == {"start"}
        assert not list(tmp_path.glob("killed/start*")) and not (tmp_path / "killed" / "config.yaml").exists()
    # In the middle of a pass, between two checkpoints and two log lines; then while a checkpoint is being written.
    orders = {"kill_at": 8, "rank": processes - 1}
    assert_killed(run(["--config", killed, *(again or [])], orders=orders, check=False), torchrun)
    assert sorted(path.name for path in (tmp_path / "killed").glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]
    done = run(["--config", killed, "--resume"], orders={"kill_in_checkpoint": 12}, check=False)
    assert_killed(done, torchrun)
    assert "resuming after step 6 of 14" in done.stderr
    assert (tmp_path / "killed" / ".unfinished" / "checkpoint-12").is_dir()
    done = run(["--config", killed, "--resume"])
    assert "resuming after step 9 of 14" in done.stderr
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "undisturbed"))
    assert log(tmp_path / "killed") == log(tmp_path / "undisturbed")
    assert not (tmp_path / "killed" / ".unfinished").exists() and not drafts(tmp_path / "killed")


def assert_killed(done, torchrun=False):
    """By its own SIGKILL, and not ended by an error; torchrun turns that into another status."""
    assert "Signal 9 (SIGKILL)" in done.stderr if torchrun else done.returncode == -signal.SIGKILL


def drafts(folder) -> set[str]:
    """Return of what the folder holds a draft with the weights in it."""
    return {path.parent.name.split(".")[1] for path in folder.glob(".*.draft/model.safetensors")}


def test_killed_in_the_export_trains_no_further(config, tmp_path):
    launch(["--config", config("undisturbed", max_steps=6)])
    killed = config("killed", max_steps=6)
    assert_killed(launch(["--config", killed], 1, {"kill_in_save": "export"}, check=False))
    folder = tmp_path / "killed"
    assert drafts(folder) == {"model"} and not (folder / "model").exists() and not (folder / "run.json").exists()
    done = launch(["--config", killed, "--resume"])
    assert "resuming after step 6 of 6" in done.stderr
    assert same(weights(folder), weights(tmp_path / "undisturbed"))
    assert log(folder) == log(tmp_path / "undisturbed")
    assert (folder / "run.json").exists()


def test_dropout_is_on_and_the_seed_matters(config, tmp_path):
    launch(["--config", config("one", max_steps=2)])
    launch(["--config", config("other", max_steps=2, seed=7)])
    assert not same(weights(tmp_path / "one"), weights(tmp_path / "other"))


def test_a_run_is_not_overwritten_and_resumes_only_as_it_was(config, tmp_path):
    path = config("run", max_steps=2)
    launch(["--config", path])
    done = launch(["--config", path], check=False)
    assert done.returncode == 2
    assert "holds a run: --resume continues it" in done.stderr
    done = launch(["--config", path, "--resume"])
    assert "is finished" in done.stderr
    done = launch(["--config", path, "--resume", "--set", "seed=5"], check=False)
    assert done.returncode == 2
    assert "seed was 42, is 5" in done.stderr
    assert "Traceback" not in done.stderr
