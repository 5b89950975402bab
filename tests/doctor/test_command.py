"""``python -m pyserini_rescale doctor`` as it is typed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyserini_rescale.doctor.child import ask
from pyserini_rescale.doctor.lines import OK, PROBLEM, WARNING
from tests.doctor.test_checks import OURS, broken

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def doctor(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    return subprocess.run(
        [sys.executable, "-m", "pyserini_rescale", "doctor", *options], capture_output=True, text=True, cwd=ROOT, check=False,
        env={**clean, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **environ},
    )  # fmt: skip


@pytest.mark.jvm
def test_all_is_well_here_and_three_documents_come_back_without_a_java_on_the_path(tmp_path):
    done = doctor("--json", PATH=str(tmp_path), TMPDIR=str(tmp_path))
    report = json.loads(done.stdout)
    lines = {line["name"]: line for line in report["lines"]}
    problems = [line for line in lines.values() if line["status"] == PROBLEM]
    assert (done.returncode, report["problems"], problems, done.stderr) == (0, 0, [], "")
    assert report["warnings"] == sum(line["status"] == WARNING for line in lines.values())
    assert lines["trial: encode"]["found"].startswith("3 documents with mini-modernbert, ")
    assert lines["trial: index"]["found"].startswith("3 documents, ")
    assert lines["trial: search"]["found"].startswith("python ") and lines["trial: search"]["found"].endswith(" s")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.jvm
def test_a_jvm_that_does_not_start_is_a_problem_and_not_the_end(tmp_path):
    done = doctor(JAVA_TOOL_OPTIONS="-XX:+NoSuchOption", TMPDIR=str(tmp_path))
    lines = done.stdout.splitlines()
    trial = [line for line in lines if "  trial: " in line]
    assert done.returncode == 1 and trial[-1].startswith(PROBLEM), done.stdout
    assert "NoSuchOption" in trial[-1]  # what the JVM says, and not only that it did not start
    assert "Traceback" not in done.stdout + done.stderr and " problem" in lines[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_broken_dependency_is_a_line_with_its_cure_and_a_status(tmp_path):
    done = doctor("--quick", PYTHONPATH=broken(tmp_path, faiss="raise ImportError('libfaiss.so: cannot open')"))
    line = next(line for line in done.stdout.splitlines() if line.startswith(PROBLEM))
    assert done.returncode == 1 and done.stderr == ""
    assert "libfaiss.so: cannot open" in line and "-> `pip install --force-reinstall faiss-cpu`" in line
    assert "trial" not in done.stdout and any(line.startswith(OK) for line in done.stdout.splitlines())
    assert done.stdout.splitlines()[-1].startswith("1 problem, ")


@pytest.mark.jvm
def test_scores_other_than_the_vectors_products_are_a_problem(tmp_path):
    """The trial in a process of its own; vectors are changed between index and search."""
    program = (
        "import pathlib\n"
        "from pyserini_rescale.doctor import trial\n"
        "search, vectors = trial._search, trial._vectors\n"
        "def changed(folder): return {docid: dict.fromkeys(vector, 1) for docid, vector in vectors(folder).items()}\n"
        "def _search(folder):\n"
        "    trial._vectors = changed\n"
        "    return search(folder)\n"
        "trial._search = _search\n"
        f"trial.main(pathlib.Path({str(tmp_path)!r}))"
    )
    outcome = ask(program, 600, {**os.environ, "HF_HUB_OFFLINE": "1"})
    assert [found["status"] for found in outcome.answers] == [OK, OK, PROBLEM], outcome
    assert "dot products" in outcome.answers[-1]["cure"]
