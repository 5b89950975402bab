"""The wheel as a user gets it, by way of the source archive, outside the checkout: what is in it, and that it works."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from .test_install import KEPT, ROOT

pytestmark = pytest.mark.slow

NO_NETWORK = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
# One of its three settings and three steps: the other two are dense after so few, which takes minutes to index and search.
QUICKSTART = """
import sys
from pyserini_rescale.cli import main
from pyserini_rescale.quickstart import pipeline
pipeline.SETTINGS = {"auto-offset": "offset as suggested"}
sys.exit(main(["quickstart", "--work", "encoder", "--set", "max_steps=3", "--set", "monitors.every=1"]))
"""


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees nothing of the checkout."""
    hidden = ("PYTHONPATH", "PYSERINI_RESCALE_DATA", "PYSERINI_RESCALE_MODELS", "PYSERINI_RESCALE_HOOK")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    clean |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd, env=clean, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path, Path]:
    """(source archive, wheel of the checkout, wheel of the archive)."""
    scratch = tmp_path_factory.mktemp("built")
    tree = scratch / "tree"
    tree.mkdir()
    for name in KEPT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    program = f"from setuptools import build_meta; print(build_meta.build_sdist({str(scratch)!r}))"
    done = run(sys.executable, "-c", program, cwd=tree)
    assert done.returncode == 0, done.stderr
    (archive,) = scratch.glob("*.tar.gz")
    wheels = []
    for source in (tree, archive):
        folder = scratch / f"from-{source.stem}"
        done = run(sys.executable, "-m", "pip", "wheel", *NO_NETWORK, "--wheel-dir", folder, source, cwd=scratch)
        assert done.returncode == 0, done.stderr
        wheels += folder.glob("*.whl")
    return archive, *wheels


@pytest.fixture(scope="module")
def python(built, tmp_path_factory) -> Path:
    """The Python of an environment with the archive's wheel and, behind it, this environment's libraries."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    found = folder / "venv" / "bin" / "python"
    site_packages = run(
        found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    ).stdout.strip()
    # Behind, and no site folder: its .pth files, one of which may lead to the checkout, are not read.
    (Path(site_packages) / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = run(sys.executable, "-m", "pip", "--python", found, "install", *NO_NETWORK, built[2], cwd=folder)
    assert done.returncode == 0, done.stderr
    place = run(found, "-c", "import pyserini_rescale; print(pyserini_rescale.__file__)", cwd=folder).stdout
    assert place.startswith(site_packages)
    return found


def test_wheels_of_checkout_and_archive_hold_all_of_it(built):
    archive, *wheels = built
    first, second = (sorted(zipfile.ZipFile(wheel).namelist()) for wheel in wheels)
    assert first == second
    with tarfile.open(archive) as opened:
        assert any(name.endswith("pyserini_rescale_hook.pth") for name in opened.getnames())
    source = [path.relative_to(ROOT).as_posix() for path in (ROOT / "pyserini_rescale").rglob("*") if path.is_file()]
    needed = {
        name for name in source if "__pycache__" not in name and not name.startswith("pyserini_rescale/regressions/")
    }
    needed |= {f"pyserini_rescale/{path.relative_to(ROOT)}" for path in (ROOT / "regressions").rglob("*.yaml")}
    assert needed | {"pyserini_rescale_hook.pth"} <= set(first)
    assert "pyserini_rescale/py.typed" in first and any(name.endswith("model.safetensors") for name in first)
    others = {name.split("/")[0] for name in first} - {"pyserini_rescale", "pyserini_rescale_hook.pth"}
    assert all(name.endswith(".dist-info") for name in others)


def test_regressions_are_listed_and_one_is_run_on_data_that_it_brings(python, tmp_path):
    listed = run(python, "-m", "pyserini_rescale", "regress", "list", cwd=tmp_path)
    assert listed.returncode == 0 and "docstrings.mini-modernbert.k8" in listed.stdout, listed.stderr
    done = run(
        python, "-m", "pyserini_rescale", "regress", "run", "docstrings.mini-modernbert.k8", "--work", "w", "--stages",
        "collection", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = json.loads((tmp_path / "w" / "collection" / "counts.json").read_text())
    assert counts["documents"] >= 2500 and counts["judged_queries"] >= 1000


@pytest.mark.jvm
def test_quickstart_from_end_to_end_twice(python, tmp_path):
    done = run(python, "-c", QUICKSTART, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    work = tmp_path / "encoder"  # a name that pyserini.encode takes for a word of its own when it stands alone
    for part in ("offset as suggested", "BM25", "MS MARCO", "pyserini.encode", str(work)):
        assert part in done.stdout
    result = json.loads((work / "quickstart.json").read_text())
    (row,) = result["rows"]
    assert row["k"] == 1 and row["offset"] > 0 and row["document_terms"][0] < 300
    assert row["measures"]["RR@10"] > 0.05 and result["bm25"]["RR@10"] > 0.2
    assert result["counts"]["documents"] >= 2500 and result["counts"]["judged_queries"] >= 1000
    assert (work / "loss.png").stat().st_size > 10_000
    again = run(python, "-c", QUICKSTART, cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-2000:]
    assert again.stderr.count("up to date") == 8 and "started" not in again.stderr


@pytest.mark.jvm
def test_plugin_tests_pass_outside_the_checkout(python, tmp_path):
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "__init__.py", tmp_path / "tests")
    shutil.copytree(ROOT / "tests" / "plugin", tmp_path / "tests" / "plugin")
    shutil.copy(ROOT / "setup.cfg", tmp_path)  # pytest's markers
    shutil.copy(ROOT / "pyserini_rescale_hook.pth", tmp_path)  # which a test reads
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/plugin", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and " failed" not in done.stdout
