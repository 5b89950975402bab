"""scripts/setup.sh: which Python it takes, and what it says when it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def setup(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "PYENV_ROOT", "PYENV_VERSION")}
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "setup.sh"), *options],
        capture_output=True,
        text=True,
        env={**clean, **environ},
        check=False,
    )


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def shims(tmp_path) -> str:
    """A PATH whose Pythons refuse, as pyenv's do for versions that are not switched on."""
    for name in ("python3.11", "python3.12", "python3.13", "python3", "python"):
        program(tmp_path / "shims" / name, f"echo 'pyenv: {name}: command not found' >&2; exit 127")
    return f"{tmp_path / 'shims'}:/usr/bin:/bin"


def test_version_behind_a_refusing_shim_is_found(tmp_path, shims):
    real = program(tmp_path / "pyenv" / "versions" / f"{HERE}.99" / "bin" / "python", f'exec "{sys.executable}" "$@"')
    done = setup("--which", PATH=shims, PYENV_ROOT=str(tmp_path / "pyenv"))
    assert (done.returncode, done.stdout.strip()) == (0, str(real)), done.stderr


def test_no_python_at_all_is_one_line(tmp_path, shims):
    done = setup("--which", PATH=shims, PYENV_ROOT=str(tmp_path), HOME=str(tmp_path))
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: no Python 3.11 or later")


def test_named_python_is_taken_and_a_wrong_one_refused(tmp_path):
    assert setup("--which", PYTHON=sys.executable).stdout.strip() == sys.executable
    wrong = program(tmp_path / "python", "exit 0 # answers, and is none")
    for options, named in (((), str(wrong)), (("--python", "3.99"), sys.executable)):
        done = setup("--which", *options, PYTHON=named)
        assert done.returncode != 0 and done.stdout == "" and done.stderr.startswith(f"error: PYTHON={named} is not")


@pytest.mark.parametrize("options", [("--nonsense",), ("--python",)])
def test_unknown_options_are_one_line(options):
    done = setup(*options)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("script", ["setup.sh", "test.sh", "quickstart.sh"])
def test_scripts_are_valid_shell(script):
    subprocess.run(["bash", "-n", str(ROOT / "scripts" / script)], check=True)
