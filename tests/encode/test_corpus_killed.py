"""Runs that are killed, or find the disk full, against undisturbed ones; see forks.py for how."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.encode.forks_corpus import write_corpus

ROOT = Path(__file__).parents[2]


def run_forks(model: str, folder: Path, *words: object) -> dict:
    corpus = write_corpus(folder / "corpus.jsonl", 300)
    done = subprocess.run(
        [sys.executable, "-m", "tests.encode.forks", model, corpus, folder, *map(str, words)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def facts(bert, tmp_path_factory) -> dict:
    return run_forks(bert, tmp_path_factory.mktemp("forks"), 3, "more")


def judge(found: dict, kills: int) -> None:
    assert found["first"][0]["status"] == 0, found["first"]
    rounds = found["rounds"]
    assert len(rounds) == kills and {one["processes"] for one in rounds} == {1, 2, 3}
    for one in rounds:
        assert -signal.SIGKILL in one["statuses"] and set(one["statuses"]) <= {0, -signal.SIGKILL}
        assert one["whole"], "a file under a final name is not what an undisturbed run writes"
        assert one["lost"] == []
    assert any(0 < one["units"] < found["units"] for one in rounds)  # some in the middle
    assert [one["status"] for one in found["last"]] == [0, 0, 0], found["last"]
    assert found["equal"] and found["manifests_equal"]
    assert found["check"]["status"] == 0, found["check"]
    assert found["entries"] == ["manifest.json", "settings.json", "units", "vectors"]
    assert found["again"][0]["status"] == 0 and "0 of 15 units to do" in found["again"][0]["log"]


def test_killed_three_times_and_resumed_with_one_two_and_three_processes(facts):
    judge(facts["killed"], 3)


@pytest.mark.slow
def test_killed_ten_times(bert, tmp_path):
    judge(run_forks(bert, tmp_path, 10)["killed"], 10)


def test_killed_at_every_step_by_which_a_file_gets_its_name(facts):
    for step, found in facts["steps"].items():
        assert found["status"] == -signal.SIGKILL, (step, found)
        assert all(found["there"].values()) and found["check"] == 0, (step, found)
        assert found["resumed"]["status"] == 0, (step, found["resumed"])
        assert found["names"] == [f"part-{number:06d}.jsonl.gz" for number in range(15)]
    there = {step: len(found["there"]) for step, found in facts["steps"].items()}
    # Whether the first part has its name depends on the step, whose order this shows.
    assert there["before replace part-"] == 0 and there["after replace part-"] == there["before replace 0"] == 1
    assert there["before replace manifest"] == 15


def test_full_disk_is_one_line_and_a_resume_goes_on(facts):
    found = facts["full_disk"]
    reason = "No space left on device" if found["tmpfs"] else "File too large"
    assert found["full"]["status"] == 2
    errors = [line for line in found["full"]["log"].replace("\r", "\n").splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and reason in errors[0] and "--resume" in errors[0]
    assert "Traceback" not in found["full"]["log"]
    assert 0 < found["units"] < 15 and found["whole"] and found["unfinished"] == []
    assert found["check_of_half"]["status"] == 1 and "units are missing" in found["check_of_half"]["log"]
    assert found["resumed"]["status"] == 0, found["resumed"]
    assert found["equal"]


@pytest.mark.slow
def test_a_worker_killed_under_torchrun(bert, tmp_path):
    """torchrun ends with an error that names the signal; the units that were finished stay, and a resume is equal."""
    corpus = write_corpus(tmp_path / "corpus.jsonl", 300)
    options = ["--corpus", corpus, "--model", bert, "--device", "cpu", "--unit", "20"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def torchrun(module: str, *words: str) -> subprocess.CompletedProcess:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
        return subprocess.run(
            [*launcher, module, *words], capture_output=True, text=True, check=False, cwd=ROOT, env=environ, timeout=300
        )

    output = tmp_path / "out"
    done = torchrun("tests.encode.dying", "encode", *options, "--output", str(output))
    assert done.returncode != 0 and "Signal 9 (SIGKILL)" in done.stderr
    before = {path.name: path.read_bytes() for path in (output / "vectors").iterdir()}
    assert len(list((output / "units").iterdir())) < 15 and not (output / "manifest.json").exists()
    done = torchrun("pyserini_rescale", "encode", *options, "--output", str(output), "--resume")
    assert done.returncode == 0, done.stderr[-3000:]
    plain = subprocess.run(
        [sys.executable, "-m", "pyserini_rescale", "encode", *options, "--output", str(tmp_path / "plain")],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environ,
    )  # fmt: skip
    assert plain.returncode == 0, plain.stderr[-3000:]
    names = sorted(path.name for path in (tmp_path / "plain" / "vectors").iterdir())
    assert sorted(path.name for path in (output / "vectors").iterdir()) == names and len(names) == 15
    for name in names:
        data = (tmp_path / "plain" / "vectors" / name).read_bytes()
        assert (output / "vectors" / name).read_bytes() == data and before.get(name, data) == data
