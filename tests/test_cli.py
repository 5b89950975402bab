"""What the command line does before and after a command, as a process of its own."""

import os
import subprocess
import sys

import pytest

OURS = [sys.executable, "-m", "pyserini_rescale"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
@pytest.mark.parametrize("command", [["regress", "list"], ["train", "list"]])
def test_output_on_a_full_disk_is_one_line(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*OURS, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: standard output cannot be written: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("command", [["doctor"], ["regress", "list"]])
def test_a_working_folder_that_is_gone_is_one_line(tmp_path, command):
    folder = tmp_path / "gone"
    folder.mkdir()
    program = f"import os; os.rmdir({str(folder)!r}); from pyserini_rescale.cli import main; raise SystemExit(main({command!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.endswith("error: the working folder does not exist any more: change into another one\n")
