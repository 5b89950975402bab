"""Runs in odd states: what lies there is not taken for what it is not, and nothing ends in a traceback."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.train.config import resolve
from pyserini_rescale.train.folder import LOCK, check_folder, locked
from tests.train.conftest import launch, save_triples


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


@pytest.mark.slow
def test_resume_after_damage(config, tmp_path):
    """One finished run, copied and damaged in several ways."""
    triples = save_triples(tmp_path / "own.jsonl")
    path = config(data={"files": [triples]}, max_steps=8)
    launch(["--config", path])
    finished = weights(tmp_path / "run")
    shutil.move(tmp_path / "run", tmp_path / "whole")

    def resume(change, folder="run"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / folder)
        shutil.rmtree(tmp_path / folder / "model")
        change(tmp_path / folder)
        done = launch(["--config", path, "--resume"], check=False)
        assert "Traceback" not in done.stderr
        return done

    # A checkpoint that lacks a part, or has half of one, is passed over for the one before: same weights in the end.
    done = resume(lambda folder: (folder / "checkpoint-8" / "optimizer.pt").unlink())
    assert done.returncode == 0
    assert "checkpoint-8 is passed over" in done.stderr and "resuming after step 6 of 8" in done.stderr
    assert all(one.equal(finished[name]) for name, one in weights(tmp_path / "run").items())

    # Of the right size and still damaged: one line that names it.
    def scribble(folder):
        scheduler = folder / "checkpoint-8" / "scheduler.pt"
        scheduler.write_bytes(b"x" * scheduler.stat().st_size)

    done = resume(scribble)
    assert done.returncode == 2
    assert "checkpoint-8 is damaged" in done.stderr

    # What the checkpoints were made of is gone, or another.
    done = resume(lambda folder: (folder / "start.json").unlink())
    assert done.returncode == 2 and "holds checkpoints of another run" in done.stderr
    done = resume(lambda folder: (folder / "start.json").write_text("[]"))
    assert done.returncode == 2 and "start.json cannot be used" in done.stderr
    save_triples(tmp_path / "own.jsonl", seed=5)
    done = resume(lambda folder: None)
    assert done.returncode == 2 and "the training data changed" in done.stderr


@pytest.mark.slow
def test_a_start_made_for_another_configuration_is_made_anew(config, tmp_path):
    launch(["--config", config("first", max_steps=1, checkpoints={"every": None})])
    (tmp_path / "run").mkdir()
    for name in ("start", "start.json"):
        shutil.move(tmp_path / "first" / name, tmp_path / "run" / name)
    launch(["--config", config("run", max_steps=1, rescale={"factor": 5}, checkpoints={"every": None})])
    policy = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["splade_rescale"]
    assert policy["k"] == 5


@pytest.mark.slow
def test_a_run_whose_weights_are_no_numbers_is_said_to_have_collapsed(config, tmp_path):
    path = config(max_steps=4, optimizer={"learning_rate": 1e30}, monitors={"every": 1, "tensorboard": False})
    done = launch(["--config", path, "--on-collapse", "warn"], check=False)
    assert done.returncode == 3
    assert "the trained weights are not finite" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "collapsed"
    assert not (tmp_path / "run" / "model").exists()


def test_a_folder_is_held_by_one_process(tmp_path):
    folder = tmp_path / "run"
    code = (
        "import sys\nfrom pathlib import Path\nfrom pyserini_rescale.train.folder import locked\n"
        "with locked(Path(sys.argv[1])): pass"
    )
    with locked(folder):
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "another process is training" in done.stderr
    assert not folder.exists(), "made for the lock, and empty"
    assert subprocess.run([sys.executable, "-c", code, folder], check=False).returncode == 0


@pytest.mark.parametrize(
    "name", [LOCK, ".start.77.draft", "start", "start.json", ".unfinished", ".config.yaml.7.unfinished"]
)
def test_what_a_killed_start_leaves_is_no_obstacle(tmp_path, config, name):
    folder = tmp_path / "run"
    (folder / name).mkdir(parents=True)
    for resume in (False, True):
        check_folder(resolve(str(config())), folder, resume)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("thesis.tex", "holds other things"),
        ("checkpoint-3", "holds checkpoints and no config.yaml"),
        (".git", "other things"),
    ],
)
def test_what_is_not_ours_is(tmp_path, config, name, message):
    folder = tmp_path / "run"
    (folder / name).mkdir(parents=True)
    with pytest.raises(ConfigError, match=message):
        check_folder(resolve(str(config())), folder, True)


@pytest.mark.parametrize("text", ["[]", "a: [", "", "3"])
def test_a_configuration_changed_by_hand_is_said(tmp_path, config, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=f"{tmp_path}/run/config.yaml"):
        check_folder(resolve(str(config())), tmp_path / "run", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be written"), locked(tmp_path / "run"):
        pass
