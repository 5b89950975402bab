"""Stages with small Python commands in place of the real ones: fingerprints, logs, failures."""

import contextlib
import dataclasses
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyserini_rescale.errors import ConfigError, StageError
from pyserini_rescale.regression import stages
from pyserini_rescale.regression.stages import Stage, Workplace, broken, executed, normalised, run_stage, why_stale
from pyserini_rescale.train.folder import locked

COPY = "import sys, pathlib; pathlib.Path(sys.argv[2]).write_bytes(pathlib.Path(sys.argv[1]).read_bytes())"


@pytest.fixture
def place(tmp_path) -> Workplace:
    work = tmp_path / "work"
    return Workplace(work, {"{work}": work, "{data}": tmp_path / "data"})


@pytest.fixture
def copy(place, tmp_path) -> Stage:
    """Copies data/source to work/copy."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "source").write_text("one")
    return stage("copy", COPY, (tmp_path / "data" / "source",), place.work / "copy")


def stage(name: str, program: str, inputs: tuple[Path, ...], output: Path) -> Stage:
    return Stage(name, ("python", "-c", program, *map(str, inputs), str(output)), inputs, output)


def run(stage: Stage, place: Workplace, **options) -> tuple[str, str]:
    show = io.StringIO()
    return run_stage(stage, place, show=show, **options)["state"], show.getvalue()


def test_a_stage_runs_once(place, copy):
    assert why_stale(copy, place) == "no earlier result"
    state, shown = run(copy, place)
    assert state == "ran" and (place.work / "copy").read_text() == "one"
    assert "copy" in shown and "no earlier result" in shown and "0:00" in shown
    assert run(copy, place) == ("up to date", "copy         up to date\n")
    record = stages.read_record(place, "copy")
    assert record["command"].startswith("python -c ") and record["fingerprint"] and record["seconds"] >= 0
    assert set(record["versions"]) == {"pyserini", "torch", "transformers", "tokenizers", "pyserini-rescale"}


def test_force_runs_again(place, copy):
    run(copy, place)
    assert run(copy, place, force=True)[0] == "ran"


def test_a_changed_input_is_stale(place, copy, tmp_path):
    run(copy, place)
    (tmp_path / "data" / "source").write_text("two")
    assert why_stale(copy, place) == "{data}/source has changed"
    assert run(copy, place)[0] == "ran" and (place.work / "copy").read_text() == "two"


def test_fingerprints_tell_inputs_commands_and_versions_apart(place, copy, tmp_path, monkeypatch):
    def fingerprint(stage: Stage) -> str:
        run(stage, place, force=True)
        return stages.read_record(place, "copy")["fingerprint"]

    first = fingerprint(copy)
    assert fingerprint(copy) == first
    (tmp_path / "data" / "source").write_text("two")
    second = fingerprint(copy)
    other_command = fingerprint(dataclasses.replace(copy, argv=(*copy.argv, "--hits", "5")))
    now = stages.versions()
    monkeypatch.setattr(stages, "versions", lambda: {**now, "torch": "99"})
    assert len({first, second, other_command, fingerprint(copy)}) == 4


def test_a_touched_input_is_not_stale(place, copy, tmp_path):
    run(copy, place)
    os.utime(tmp_path / "data" / "source", (1, 1))
    assert why_stale(copy, place) is None


def test_a_changed_output_is_stale(place, copy):
    run(copy, place)
    (place.work / "copy").write_text("three")
    assert why_stale(copy, place) == "copy is not what the stage wrote"
    assert broken(copy, place) == ["copy is not what the stage wrote"]


def test_another_command_is_stale(place, copy):
    run(copy, place)
    other = dataclasses.replace(copy, argv=(*copy.argv, "--hits", "5"))
    assert why_stale(other, place) == "it was made by another command"


def test_threads_and_device_do_not_decide_the_result(place, copy):
    run(copy, place)
    assert (
        why_stale(dataclasses.replace(copy, argv=(*copy.argv, "--threads", "8", "--device", "cuda:0")), place) is None
    )


def test_another_version_is_stale(place, copy, monkeypatch):
    run(copy, place)
    now = stages.versions()
    monkeypatch.setattr(stages, "versions", lambda: {**now, "torch": "99"})
    assert "torch was" in why_stale(copy, place) and "is 99" in why_stale(copy, place)
    assert broken(copy, place) == []


def test_the_sources_of_ours_are_part_of_the_version(monkeypatch):
    before = stages.versions()["pyserini-rescale"]
    monkeypatch.setattr(stages, "_SOURCES", ("collections.py",))
    assert stages.versions()["pyserini-rescale"] != before


def test_a_moved_work_folder_is_up_to_date(place, copy, tmp_path):
    run(copy, place)
    place.work.rename(tmp_path / "elsewhere")
    work = tmp_path / "elsewhere"
    moved = stage("copy", COPY, copy.inputs, work / "copy")
    assert why_stale(moved, Workplace(work, {"{work}": work, "{data}": tmp_path / "data"})) is None


def test_folders_are_checked_file_by_file(place, tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a").write_text("a")
    before = stages.checksum(folder)["sha256"]
    (folder / "write.lock").touch()  # Lucene's
    assert stages.checksum(folder)["sha256"] == before
    (folder / "sub" / "a").rename(folder / "sub" / "b")
    assert stages.checksum(folder)["sha256"] != before


def test_a_failed_stage_leaves_no_output_and_names_its_log(place):
    failing = stage(
        "fail",
        "import sys; open(sys.argv[1], 'w').write('half'); raise ValueError('no such\\nluck')",
        (),
        place.work / "x",
    )
    with pytest.raises(
        StageError, match=r"stage fail failed \(status 1\): ValueError: no such; log: .*logs/fail\.log"
    ) as caught:
        run(failing, place)
    assert caught.value.exit_code == 3 and "\n" not in str(caught.value)
    assert not (place.work / "x").exists() and why_stale(failing, place) == "no earlier result"


def test_a_stage_that_writes_nothing_has_failed(place):
    with pytest.raises(StageError, match="wrote no"):
        run(stage("idle", "pass", (), place.work / "x"), place)


def test_a_failure_does_not_keep_the_stale_output(place, copy, tmp_path):
    run(copy, place)
    (tmp_path / "data" / "source").write_text("two")
    broken_copy = dataclasses.replace(copy, argv=("python", "-c", "raise SystemExit(7)", *copy.argv[3:]))
    with pytest.raises(StageError, match="status 7"):
        run(broken_copy, place)
    assert not (place.work / "copy").exists()


def test_what_others_wrote_is_not_overwritten(place, copy):
    place.work.mkdir()
    (place.work / "copy").write_text("precious")
    with pytest.raises(StageError, match="no stage of ours wrote it"):
        run(copy, place, force=True)
    assert (place.work / "copy").read_text() == "precious"


def test_a_missing_input_is_named(place, copy, tmp_path):
    (tmp_path / "data" / "source").unlink()
    with pytest.raises(StageError, match="needs .*source, which does not exist"):
        run(copy, place)


def test_a_command_that_cannot_start(place, copy, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(StageError, match="cannot be started"):
        run(copy, place)


def test_arguments_are_not_read_by_a_shell(place):
    odd = "$(touch pwned) ; * 'quote"
    program = "import sys; open(sys.argv[2], 'w').write(sys.argv[1])"
    argv = ("python", "-c", program, odd, str(place.work / "out put"))
    run(Stage("odd", argv, (), place.work / "out put"), place)
    assert (place.work / "out put").read_text() == odd


def test_what_is_executed_is_what_is_printed_but_for_the_output_aside(tmp_path):
    encode = Stage(
        "encode", ("python", "-m", "pyserini.encode", "output", "--embeddings", str(tmp_path / "e")), (), tmp_path / "e"
    )
    expected = ["-m", "pyserini.encode", "output", "--embeddings", str(tmp_path / "e.partial")]
    assert executed(encode, hook=True) == [sys.executable, *expected]
    assert executed(encode, hook=False) == [sys.executable, "-m", "pyserini_rescale", "run", *expected[1:]]
    ours = Stage("collection", ("python", "-m", "pyserini_rescale", "collection", "x"), (), tmp_path / "e")
    assert executed(ours, hook=False) == [sys.executable, "-m", "pyserini_rescale", "collection", "x"]


def test_paths_become_labels(tmp_path):
    roots = {"{work}": Path("runs/x"), "{model}": Path("/m/tiny"), "{data}": "beir/scifact/test"}
    argv = (
        "python",
        "runs/x/index",
        "runs/xy",
        "splade-rescaled:/m/tiny",
        "/m/tiny",
        "beir/scifact/test",
        "--threads",
        "3",
        "a:b",
    )
    assert normalised(argv, roots) == [
        "python", "{work}/index", "runs/xy", "splade-rescaled:{model}", "{model}", "{data}", "a:b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("starting\nerror: no such model\n", "no such model"),
        ("Traceback (most recent call last):\n  File \"x.py\", line 1\nKeyError: 'a'\n", "KeyError: 'a'"),
        (
            'Exception in thread "main" java.lang.Error: boom\n\tat a.B.c(D.java:1)\n',
            'Exception in thread "main" java.lang.Error: boom',
        ),
        ("50%|##   | 1/2\rKilled by nothing\n", "Killed by nothing"),
        ("", "it printed nothing"),
    ],
)
def test_last_useful_line(tmp_path, log, line):
    (tmp_path / "log").write_text(log)
    assert stages.last_useful_line(tmp_path / "log") == line


def test_progress_line(tmp_path):
    (tmp_path / "log").write_text("loading\r 10%|#    | 1/10 [00:01<00:09]\r 20%|##   | 2/10 [00:02<00:08,  1.00it/s]")
    assert stages.progress(tmp_path / "log") == "20% 2/10 [00:02<00:08,  1.00it/s]"
    (tmp_path / "log").write_text("done\n")
    assert stages.progress(tmp_path / "log") == ""


def test_hook_detection_obeys_the_switch(monkeypatch):
    monkeypatch.setenv("PYSERINI_RESCALE_HOOK", "0")
    assert stages.hook_is_active() is False


def test_environment_has_versions_and_machine():
    found = stages.environment()
    assert {"versions", "commit", "machine"} <= set(found) and found["machine"]["cpus"] >= 1


def test_a_stage_that_outlives_its_killed_parent_holds_the_work_folder(tmp_path):
    program = (
        "import sys; from pathlib import Path; from pyserini_rescale.regression import stages;"
        "from pyserini_rescale.train.folder import locked; folder = Path(sys.argv[1])\n"
        "with locked(folder): stages._execute([sys.executable, '-c', \"import os, time; print(os.getpid(), flush=True); time.sleep(60)\"],"
        " folder / 'log', 'x', 'y', sys.stderr)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    try:
        while not (tmp_path / "log").exists() or not (tmp_path / "log").read_text().endswith("\n"):
            assert parent.poll() is None
            time.sleep(0.05)
        child = int((tmp_path / "log").read_text())
    finally:
        parent.kill()
        parent.wait()
    try:
        with pytest.raises(ConfigError, match="another process is"), locked(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(ConfigError), locked(tmp_path):
            return
        time.sleep(0.05)
    pytest.fail("the lock outlived the stage")
