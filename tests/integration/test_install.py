"""The wheel and an editable install, each in an environment of its own: the hook is there, works, and goes with them."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KEPT = ("pyserini_rescale", "regressions", "setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE",
        "pyserini_rescale_hook.pth")  # fmt: skip


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request, tmp_path_factory):
    """(kind, python, site-packages) of an environment with our package and, behind it, this environment's libraries."""
    scratch = tmp_path_factory.mktemp(request.param)
    tree = scratch / "tree"
    tree.mkdir()
    for name in KEPT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(scratch / "venv")], check=True)
    python = scratch / "venv" / "bin" / "python"
    site_packages = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
    # A folder on the path, not a site folder: what lies there can be imported, its .pth files are not read.
    (site_packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    what = ["-e", str(tree)] if request.param == "editable" else [str(tree)]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--no-index", *what], check=True, cwd="/")
    return request.param, python, site_packages


def output(python: Path, *arguments: str) -> str:
    return subprocess.run([python, *arguments], capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def test_hook_is_installed_and_leads_to_this_install(installed):
    kind, python, site_packages = installed
    assert (site_packages / "pyserini_rescale_hook.pth").is_file()
    program = "import importlib.util as u; s = u.find_spec('pyserini.encode'); print(type(s.loader).__name__)"
    assert output(python, "-c", program) == "PatchingLoader"
    place = Path(output(python, "-c", "import pyserini_rescale; print(pyserini_rescale.__file__)"))
    assert (site_packages in place.parents) == (kind == "wheel")


def test_interpreter_start_has_no_import_hook_of_the_build_tool(installed):
    _, python, _ = installed
    assert "__editable__" not in output(python, "-c", "import sys; print(sys.meta_path, sys.path_hooks)")


def test_regressions_are_found(installed):
    _, python, _ = installed
    assert "scifact.splade-tiny" in output(python, "-m", "pyserini_rescale", "regress", "list")


def test_uninstalling_takes_the_hook_away(installed):
    """Last of this file: nothing of ours may be left, for it would run at every start."""
    _, python, site_packages = installed
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "uninstall", "--yes", "--quiet", "pyserini-rescale"],
        check=True,
        cwd="/",
    )
    assert not [entry.name for entry in site_packages.iterdir() if "rescale" in entry.name]
