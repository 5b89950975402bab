"""The quickstart: what it refuses and how it ends. From end to end it runs in integration/test_wheel.py."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pyserini_rescale.cli import main
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.quickstart import pipeline


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="holds other things"):
        pipeline.run(pipeline.Options(work=tmp_path), print)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_bad_options_are_one_line(tmp_path, capsys):
    assert main(["quickstart", "--work", str(tmp_path / "w"), "--workers", "0"]) == 2
    assert capsys.readouterr().err.strip() == "error: --workers 0: 1 or more is needed"
    assert not (tmp_path / "w").exists()


def test_a_training_that_cannot_be_is_refused_before_any_work(tmp_path, capsys):
    work = tmp_path / "work"
    assert main(["quickstart", "--work", str(work), "--set", "max_stepz=3"]) == 2
    assert "max_stepz" in capsys.readouterr().err and not work.exists()


def test_a_second_one_in_the_same_folder_is_refused(tmp_path):
    work = tmp_path / "work"
    with pipeline.locked(work), pytest.raises(ConfigError, match="another process is running the quickstart"):
        (work / pipeline.MARKER).write_text("{}")
        pipeline.run(pipeline.Options(work=work), print)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("send", "number", "status"),
    [
        pytest.param(os.kill, signal.SIGTERM, 128 + signal.SIGTERM, id="ended"),
        pytest.param(os.killpg, signal.SIGINT, -signal.SIGINT, id="Ctrl-C, which reaches the stages too"),
    ],
)
def test_an_end_from_outside_ends_what_the_chains_run(tmp_path, workers, send, number, status):
    """The stages sleep; the end comes while as many of them as there are workers run side by side."""
    (tmp_path / "program.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from pyserini_rescale.__main__ import _ended\n"
        "from pyserini_rescale.quickstart import pipeline\n"
        "import signal; signal.signal(signal.SIGTERM, _ended)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # the tests may run where it is ignored
        "work = Path(sys.argv[1])\n"
        "sleep = 'import os, sys, time; print(os.getpid(), flush=True); time.sleep(300)'\n"
        "pipeline._first_stages = lambda work: []\n"
        "pipeline._chain = lambda work, name, options: [\n"
        "    pipeline.Stage(f'{name}.{n}', ('python', '-c', sleep), (), work / f'{name}{n}') for n in (1, 2)]\n"
        "pipeline.run(pipeline.Options(work, workers=int(sys.argv[2])), print)\n"
    )
    work = tmp_path / "work"
    command = [sys.executable, str(tmp_path / "program.py"), str(work), str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while len(logs := [path for path in work.glob("logs/*.log") if path.read_text().endswith("\n")]) < workers:
        assert process.poll() is None
        time.sleep(0.05)
    send(process.pid, number)
    assert process.wait(30) == status
    assert len(list(work.glob("logs/*.log"))) == workers  # nothing was begun after that
    for path in logs:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text().splitlines()[0]), 0)
