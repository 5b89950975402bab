"""All checks, in the order of what rests on what. One that raises is a problem, and the others go on."""

from collections.abc import Callable, Iterable, Iterator

from pyserini_rescale.doctor import host, machine, packages, trial
from pyserini_rescale.doctor.lines import PROBLEM, Line
from pyserini_rescale.errors import one_line

CHECKS: dict[str, Callable[[], Line | Iterable[Line]]] = {
    "Python": packages.python,
    "pyserini-rescale": packages.package,
    "packages": packages.versions,
    "imports": packages.imports,
    "Anserini": host.anserini,
    "start-up hook": host.hook,
    "Java": host.javas,
    "device": machine.device,
    "bf16": machine.bf16,
    "cores, memory": machine.cores_and_memory,
    "network": machine.network,
    "folders": machine.folders,
}
LAST = {"trial": trial.lines}
"""What starts a JVM and takes the longest."""


def lines(checks: dict[str, Callable[[], Line | Iterable[Line]]]) -> Iterator[Line]:
    """Yield what the checks say, as soon as they say it."""
    for name, check in checks.items():
        try:
            found = check()
            yield from [found] if isinstance(found, Line) else found
        except Exception as error:  # a report that stops at the first broken thing would tell nothing about the others
            cure = f"`pip install {error.name}`" if isinstance(error, ModuleNotFoundError) else "please report this"
            yield Line(name, PROBLEM, f"it could not be looked at: {type(error).__name__}: {one_line(error)}", cure)
