"""Runs killed by SIGKILL and resumed, against undisturbed ones: weights, log, order of data."""

import json

import pytest
from safetensors.torch import load_file

from tests.train.conftest import launch

pytestmark = pytest.mark.slow


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def same(one, other) -> bool:
    return set(one) == set(other) and all(one[name].equal(other[name]) for name in one)


def log(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "steps_per_second"} for line in lines]


SETTINGS = {
    "plain": {},
    "accumulated": {"batch": {"per_device": 2, "world_size": 1, "accumulation": 2}},
    "autocast": {"compute": {"device": "cpu", "precision": "bf16", "deepspeed": None}},
    "deepspeed": {"compute": {"device": "cpu", "precision": "bf16", "deepspeed": "zero1.yaml"}},
}


@pytest.mark.parametrize(
    ("setting", "processes"),
    [("plain", 1), ("plain", 2), ("accumulated", 1), ("autocast", 1), ("deepspeed", 1), ("deepspeed", 2)],
)
def test_killed_and_resumed_run_ends_with_the_same_weights(config, tmp_path, setting, processes):
    sections = json.loads(json.dumps(SETTINGS[setting]))
    sections["batch"] = {"per_device": 4, **sections.get("batch", {}), "world_size": processes}
    # 48 rows: 12 or 6 batches, so that 14 steps are several passes over the data, each in another order.
    undisturbed = config("undisturbed", max_steps=14, epochs=5, **sections)
    launch(["--config", undisturbed], processes)
    killed = config("killed", max_steps=14, epochs=5, **sections)
    # In the middle of a pass, between two checkpoints and two log lines; then while a checkpoint is being written.
    done = launch(["--config", killed], processes, {"kill_at": 8, "rank": processes - 1}, check=False)
    assert done.returncode != 0
    assert sorted(path.name for path in (tmp_path / "killed").glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]
    done = launch(["--config", killed, "--resume"], processes, {"kill_in_checkpoint": 12}, check=False)
    assert done.returncode != 0
    assert "resuming after step 6 of 14" in done.stderr
    assert (tmp_path / "killed" / ".unfinished" / "checkpoint-12").is_dir()
    done = launch(["--config", killed, "--resume"], processes)
    assert "resuming after step 9 of 14" in done.stderr
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "undisturbed"))
    assert log(tmp_path / "killed") == log(tmp_path / "undisturbed")
    assert not (tmp_path / "killed" / ".unfinished").exists()


def test_resumed_after_the_last_step_trains_no_further(config, tmp_path):
    launch(["--config", config("undisturbed", max_steps=6)])
    killed = config("killed", max_steps=6)
    launch(["--config", killed])
    first = weights(tmp_path / "killed")
    # As if it had been killed while it exported.
    for path in (tmp_path / "killed" / "model").iterdir():
        path.unlink()
    (tmp_path / "killed" / "model").rmdir()
    launch(["--config", killed, "--resume"])
    assert same(weights(tmp_path / "killed"), first)
    assert same(first, weights(tmp_path / "undisturbed"))


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
