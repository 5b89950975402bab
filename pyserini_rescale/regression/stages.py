"""Stages: commands that are executed, printed and recorded as one and the same argument list.

A stage reads inputs and writes one output, a file or a folder. While it runs the output has another name
(``.partial``), so that what carries the final name is whole. Afterwards a record (records/STAGE.json) holds the stage's
fingerprint: a hash of the command with paths made relative, of the checksums of its inputs, and of the versions that
matter. A stage is up to date, and skipped, when its fingerprint is the recorded one and its output is what it wrote.

Everything a stage prints goes to logs/STAGE.log. Commands are argument lists; no shell reads them.
"""

import dataclasses
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyserini_rescale
from pyserini_rescale.environment import describe, installed
from pyserini_rescale.errors import StageError, one_line
from pyserini_rescale.files import write_json
from pyserini_rescale.logs import last_useful_line, progress

VERSIONED = ("pyserini", "torch", "transformers", "tokenizers")
# Our own sources that decide what a stage writes: a changed checkout is not up to date though its version is.
_SOURCES = (
    "collections.py", "corpora.py", "docstrings.py", "encode", "indexing.py", "lucene.py", "model", "plugin",
    "regression/bm25.py", "regression/index_stats.py", "train",
)  # fmt: skip
_HOW = ("--threads", "--device")
_SECONDS_BETWEEN_LINES = 30  # progress where there is no terminal


class Shown(Protocol):
    """What a stage's progress is printed to: the part of a text stream that is needed for it."""

    def isatty(self) -> bool: ...
    def write(self, text: str, /) -> object: ...
    def flush(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Stage:
    """One command. ``argv[0]`` is ``python``, whichever interpreter runs us, or a launcher beside it; ``output`` and paths
    below the work folder occur in it as they stand here. ``inputs`` are files and folders that decide the result.
    ``resumes``: with --resume the command goes on with what it left unfinished."""

    name: str
    argv: tuple[str, ...]
    inputs: tuple[Path, ...]
    output: Path
    resumes: bool = False


@dataclasses.dataclass(frozen=True)
class Workplace:
    """Where stages run: ``work`` holds records/ and logs/; ``roots`` maps labels to what a fingerprint writes as such
    (folders, or the id of a model or collection), so that the same work elsewhere has the same fingerprint; ``shared``:
    folders of other regressions whose results are used here."""

    work: Path
    roots: Mapping[str, Path | str]
    shared: tuple[Path, ...] = ()

    def log(self, name: str) -> Path:
        return self.work / "logs" / f"{name}.log"

    def record(self, name: str) -> Path:
        return self.work / "records" / f"{name}.json"


def shell_form(argv: tuple[str, ...] | list[str]) -> str:
    """Return a command as one would type it."""
    return shlex.join(argv)


# Fingerprints


def versions() -> dict[str, str]:
    """Return the versions that decide what a stage writes; of ours, the sources' hash too."""
    found = installed(VERSIONED)
    package = Path(pyserini_rescale.__file__).parent
    digest = hashlib.sha256()
    for source in _SOURCES:
        path = package / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes())
    found["pyserini-rescale"] = f"{pyserini_rescale.__version__} ({digest.hexdigest()[:12]})"
    return found


def checksum(path: Path, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return {"sha256", "files"} of a file or folder; ``files`` maps relative names to [size, mtime_ns, sha256].

    A file whose size and time of change are those in ``known`` (an earlier result) is not read again.
    Lucene's lock file, which every reader touches, is left out.
    """
    before = (known or {}).get("files", {})
    files = {}
    members = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for member in members:
        name = member.relative_to(path).as_posix() if member != path else "."
        if member.name == "write.lock":
            continue
        stat = member.stat()
        old = before.get(name)
        if old is not None and old[:2] == [stat.st_size, stat.st_mtime_ns]:
            files[name] = old
        else:
            with open(member, "rb") as stream:
                files[name] = [stat.st_size, stat.st_mtime_ns, hashlib.file_digest(stream, "sha256").hexdigest()]
    whole = hashlib.sha256("".join(f"{name}\0{entry[2]}\n" for name, entry in files.items()).encode())
    return {"sha256": whole.hexdigest(), "files": files}


def normalised(argv: tuple[str, ...], roots: Mapping[str, Path | str]) -> list[str]:
    """Return ``argv`` with what ``roots`` names replaced by its label, and without what only decides the speed."""
    kept = [token for token, before in zip(argv, ("", *argv[:-1]), strict=True) if not {token, before} & set(_HOW)]
    return [_with_label(token, roots) for token in kept]


def label_of(path: Path, place: Workplace) -> str:
    """Return what a path is called in records."""
    return _with_label(str(path), place.roots)


def _with_label(token: str, roots: Mapping[str, Path | str]) -> str:
    prefix, colon, rest = token.rpartition(":")
    for label, root in roots.items():
        for head, candidate in (("", token), (prefix + colon, rest)):
            if candidate == str(root):
                return head + label
            path, folder = Path(candidate), Path(root)
            if folder in path.parents:
                return f"{head}{label}/{path.relative_to(folder).as_posix()}"
    return token


def _fingerprint(stage: Stage, place: Workplace, inputs: Mapping[str, Any]) -> str:
    content = {
        "argv": normalised(stage.argv, place.roots),
        "inputs": {label: entry["sha256"] for label, entry in inputs.items()},
        "versions": versions(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _checksums(stage: Stage, place: Workplace, record: Mapping[str, Any]) -> dict[str, Any]:
    known = record.get("inputs", {})
    found = {}
    for path in stage.inputs:
        if not path.exists():
            raise StageError(f"stage {stage.name} needs {path}, which does not exist: run the stages before it first")
        label = label_of(path, place)
        found[label] = checksum(path, known.get(label))
    return found


def read_record(place: Workplace, name: str) -> dict[str, Any]:
    """Return what was recorded of a stage; {} where nothing usable was."""
    try:
        record = json.loads(place.record(name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    tables = ("inputs", "output", "versions")
    whole = isinstance(record, dict) and all(isinstance(record.get(key), dict) for key in tables)
    if not whole:
        return {}
    return record if all(map(_is_checksum, (record["output"], *record["inputs"].values()))) else {}


def _is_checksum(value: Any) -> bool:
    """Whether a value is of the form that ``checksum`` gives."""
    if not isinstance(value, dict) or not isinstance(value.get("files"), dict):
        return False
    return all(isinstance(entry, list) and len(entry) == 3 for entry in value["files"].values())


def why_stale(stage: Stage, place: Workplace) -> str | None:
    """Return why the stage has to run, or None if it is up to date."""
    if not stage.output.exists():
        return "no earlier result"
    record = read_record(place, stage.name)
    if not record:
        return "no record of it"
    reasons = broken(stage, place)
    if reasons:
        return reasons[0]
    try:
        inputs = _checksums(stage, place, record)
    except StageError:
        return "its input is missing"
    for label, entry in inputs.items():
        if record["inputs"].get(label, {}).get("sha256") != entry["sha256"]:
            return f"{label} has changed"
    changed = other_versions(place, stage.name)
    if changed:
        return ", ".join(changed)
    return None if record.get("fingerprint") == _fingerprint(stage, place, inputs) else "another fingerprint"


def broken(stage: Stage, place: Workplace) -> list[str]:
    """Return how what lies in the work folder contradicts the stage's record; [] where there is no record.

    It looks at the command, the output and those inputs that lie in the work folder or a shared one: enough to judge a run
    that was made on another machine.
    """
    record = read_record(place, stage.name)
    if not record:
        return []
    found = []
    if record.get("argv") != normalised(stage.argv, place.roots):
        found.append("it was made by another command")
    if stage.output.exists():
        now = checksum(stage.output, record.get("output"))
        if now["sha256"] != record.get("output", {}).get("sha256"):
            found.append(f"{stage.output.name} is not what the stage wrote")
    for path in stage.inputs:
        label = label_of(path, place)
        before = record.get("inputs", {}).get(label, {})
        ours = any(folder in path.parents for folder in (place.work, *place.shared))
        if ours and path.exists() and checksum(path, before)["sha256"] != before.get("sha256"):
            found.append(f"{label} has changed since")
    return found


def other_versions(place: Workplace, name: str) -> list[str]:
    """Return a line for each version that is not the one in the stage's record."""
    recorded = read_record(place, name).get("versions", {})
    return [f"{key} was {recorded.get(key)}, is {now}" for key, now in versions().items() if recorded.get(key) != now]


# Running


def hook_is_active() -> bool:
    """Whether a Python started like ours has the start-up hook; not with PYSERINI_RESCALE_HOOK=0."""
    code = "import sys; from pyserini_rescale.plugin import hook; sys.exit(not hook.is_active())"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def executed(stage: Stage, hook: bool) -> list[str]:
    """Return what is executed for ``stage.argv``: this interpreter or the launcher beside it, the output's name aside, and
    ``pyserini_rescale run`` in front of Pyserini's modules where the start-up hook is not active."""
    argv = [_program(stage.argv[0]), *stage.argv[1:]]
    if not hook and argv[1] == "-m" and argv[2].split(".")[0] == "pyserini":
        argv[2:3] = ["pyserini_rescale", "run", argv[2]]
    return [_moved(token, stage.output) for token in argv]


def _program(name: str) -> str:
    """Return the program behind the first word of a command; a launcher of an environment that need not be active."""
    if name == "python":
        return sys.executable
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def _moved(token: str, output: Path) -> str:
    """Return ``token`` with the output, or the folder that it is, under its unfinished name."""
    if token == str(output):
        return str(_aside(output))
    if output in Path(token).parents:
        return str(_aside(output) / Path(token).relative_to(output))
    return token


def run_stage(
    stage: Stage, place: Workplace, *, force: bool = False, resume: bool = False, hook: bool = True,
    show: Shown | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run a stage unless it is up to date; return {"stage", "state", "seconds", "log"}, state "ran" or "up to date".

    resume: a stage that can goes on with what an interrupted run left. Raises StageError with the last useful line of the log and the log's path.
    """
    show = show or sys.stderr
    log = place.log(stage.name)
    reason = "forced" if force else why_stale(stage, place)
    if reason is None:
        seconds = read_record(place, stage.name).get("seconds", 0.0)
        print(f"{stage.name:<12} up to date", file=show, flush=True)
        return {"stage": stage.name, "state": "up to date", "seconds": seconds, "log": str(log)}
    record = read_record(place, stage.name)
    if stage.output.exists() and not record:
        raise StageError(f"{stage.output} exists and no stage of ours wrote it: move it away, or choose another --work")
    inputs = _checksums(stage, place, record)
    aside = _aside(stage.output)
    resume = resume and stage.resumes and aside.exists()
    for path in (stage.output, place.record(stage.name), *(() if resume else (aside,))):
        _remove(path)
    for folder in (stage.output.parent, log.parent, place.record(stage.name).parent):
        folder.mkdir(parents=True, exist_ok=True)
    started = time.time()
    argv = [*executed(stage, hook), *(["--resume"] if resume else [])]
    status = _execute(argv, log, stage.name, "resumed" if resume else reason, show)
    seconds = time.time() - started
    if status == 0 and not aside.exists():
        raise StageError(f"stage {stage.name} ended well but wrote no {stage.output}; log: {log}")
    if status != 0:
        raise StageError(f"stage {stage.name} failed (status {status}): {last_useful_line(log)}; log: {log}")
    record = {
        "stage": stage.name,
        "command": shell_form(stage.argv),
        "argv": normalised(stage.argv, place.roots),
        "fingerprint": _fingerprint(stage, place, inputs),
        "inputs": inputs,
        "output": checksum(aside),
        "versions": versions(),
        "device": _option(stage.argv, "--device"),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(seconds, 2),
    }
    write_json(place.record(stage.name), record)
    aside.rename(stage.output)  # last: an output without a record would not be known as ours
    return {"stage": stage.name, "state": "ran", "seconds": record["seconds"], "log": str(log)}


def _option(argv: tuple[str, ...], name: str) -> str | None:
    """Return the value of an option of a command; None where it has none."""
    return argv[argv.index(name) + 1] if name in argv[:-1] else None


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


_running: set[subprocess.Popen[bytes]] = set()


def end_running() -> None:
    """End the stages that other threads run: an interrupt reaches the main thread only. Each ends there as failed."""
    for process in list(_running):
        process.terminate()


def _execute(argv: list[str], log: Path, name: str, reason: str, show: Shown) -> int:
    """Run a command with its output in ``log``, showing name, elapsed time and the command's own progress."""
    terminal = show.isatty()
    started = last = time.monotonic()
    if not terminal:
        print(f"{name:<12} started ({reason})", file=show, flush=True)
    try:
        with open(log, "wb") as stream:
            # close_fds: the lock of the work folder goes with the stage, so that nobody starts beside what still writes.
            process = subprocess.Popen(
                argv, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, close_fds=False
            )
            _running.add(process)
            try:
                while True:
                    try:
                        status = process.wait(timeout=0.5)
                        break
                    except subprocess.TimeoutExpired:
                        now = time.monotonic()
                        if terminal or now - last >= _SECONDS_BETWEEN_LINES:
                            _show_line(f"{name:<12} {_clock(now - started)} {progress(log)}", show, terminal)
                            last = now
            except BaseException:  # an interrupt: leave no process behind
                process.terminate()
                process.wait()
                raise
            finally:
                _running.discard(process)
    except OSError as error:
        raise StageError(f"stage {name} cannot be started: {one_line(error)}") from None
    word = "done" if status == 0 else "failed"
    _show_line(f"{name:<12} {_clock(time.monotonic() - started)} {word}", show, terminal, last=True)
    return status


def _show_line(text: str, show: Shown, terminal: bool, last: bool = False) -> None:
    if terminal:
        width = shutil.get_terminal_size().columns - 1
        print("\r" + text[:width].ljust(width), end="\n" if last else "", file=show, flush=True)
    else:
        print(text.rstrip(), file=show, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


# What is written into results


def environment() -> dict[str, Any]:
    """Return versions, commit (of a checkout) and machine, for results."""
    return describe(versions())
