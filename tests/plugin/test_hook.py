"""The start-up hook, in interpreters of its own."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyserini_rescale.plugin import hook

ROOT = Path(__file__).parents[2]


def python(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, **environ},
        check=True,
    )


def test_hook_is_installed_once_in_this_environment():
    names = python("import sys; print(*[getattr(finder, '__name__', '?') for finder in sys.meta_path])").stdout.split()
    assert names[0] == hook.FINDER_NAME and names.count(hook.FINDER_NAME) == 1


def test_hook_imports_nothing_of_ours_until_pyserini_is_imported():
    assert python("import sys, json; print([m for m in sys.modules if 'pyserini' in m])").stdout.strip() == "[]"


def test_pth_file_is_one_import_line_as_site_needs():
    lines = (ROOT / "pyserini_rescale_hook.pth").read_text().splitlines()
    assert len(lines) == 1 and lines[0].startswith("import ")
    ast.parse(lines[0])


def test_hook_survives_the_package_having_gone(tmp_path):
    (tmp_path / "pyserini.py").write_text("x = 1")
    line = (ROOT / "pyserini_rescale_hook.pth").read_text()
    program = f"import sys; sys.path = [{str(tmp_path)!r}, *[p for p in sys.path if 'site-packages' not in p]]\n"
    program += f"exec({line!r})\nimport pyserini; print(pyserini.x)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, cwd="/", check=True
    )
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_switch_turns_the_hook_off():
    program = "import importlib.util as u; print(type(u.find_spec('pyserini.encode').loader).__name__)"
    assert python(program).stdout.strip() == "PatchingLoader"
    assert python(program, PYSERINI_RESCALE_HOOK="0").stdout.strip() == "SourceFileLoader"


def test_something_unexpected_in_our_patches_is_one_line_and_pyserini_goes_on():
    program = (
        "from pyserini_rescale.plugin import patches\n"
        "def broken(*args): raise RuntimeError('unexpected')\n"
        "patches.find_spec = broken\n"
        "import pyserini; print(pyserini.__name__)"
    )
    done = python(program)
    assert done.stdout.strip() == "pyserini"
    assert done.stderr.strip() == "pyserini-rescale: stepping aside for pyserini: RuntimeError: unexpected"


@pytest.mark.parametrize("name", ["pyserini_rescale", "pyserinix", "json", "pyserini_rescale.errors"])
def test_other_modules_are_not_looked_at(name):
    assert hook.PyseriniRescaleFinder.find_spec(name) is None


def test_install_is_idempotent_and_takes_the_startup_hooks_place(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    hook.install()
    hook.install()
    assert [hook.is_ours(finder) for finder in sys.meta_path].count(True) == 1
    assert hook.is_active()
    monkeypatch.setenv(hook.SWITCH, "0")
    assert not hook.is_active()
