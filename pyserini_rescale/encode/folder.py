"""The folder that an encoded corpus lies in, which any number of processes fill without a lock.

    settings.json    what was asked for, of which corpus, and the scale; written once, by whoever is first
    vectors/         part-000000.jsonl, ...: one file a unit, and nothing else, since Anserini indexes all of a folder
    units/           000000.json, ...: one small file a finished unit, written after its part file
    unfinished/      what is being written; a file that was not renamed counts for nothing
    manifest.json    the units' files put together, once all are there

A unit is a run of documents of fixed size, smaller than a process's share, and is encoded on its own: which process does it,
and after how many attempts, changes nothing in its file. Needs no torch. Encoding itself is in corpus.py.
"""

import contextlib
import hashlib
import json
import os
import socket
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pyserini_rescale.encode import quantize
from pyserini_rescale.encode.vectors import EMPTY_IDS_LISTED
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import exists, write_json

SETTINGS, VECTORS, UNITS, UNFINISHED, MANIFEST = "settings.json", "vectors", "units", "unfinished", "manifest.json"
WHAT = "corpus encoded by pyserini-rescale"
# left_out: terms that were pruned, or rounded to zero.
_SUMS = ("documents", "empty_vectors", "postings", "impacts", "clamped", "left_out", "bytes")


class Folder:
    """The paths in one such folder, and what has been finished in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.vectors, self.units, self.unfinished = path / VECTORS, path / UNITS, path / UNFINISHED
        self.settings, self.manifest = path / SETTINGS, path / MANIFEST

    def record(self, number: int) -> Path:
        return self.units / f"{number:06d}.json"

    def check(self) -> None:
        """Raise ConfigError where something else lies there."""
        try:
            if not self.path.exists():
                return
        except OSError as error:
            raise ConfigError(f"--output {self.path}: {one_line(error)}: choose another name") from None
        if not self.path.is_dir():
            raise ConfigError(f"--output {self.path} is a file: name a folder")
        known = {SETTINGS, VECTORS, UNITS, UNFINISHED, MANIFEST}
        names = [entry.name for entry in self.path.iterdir()]
        strange = [name for name in names if name not in known and not name.startswith(f".{MANIFEST}.")]
        if strange:
            raise ConfigError(f"--output {self.path} holds other things ({min(strange)}): name a new folder")

    def prepare(self) -> None:
        """Make the folder, and remove what processes of this machine that are no more have left unfinished."""
        try:
            for folder in (self.vectors, self.units, self.unfinished):
                folder.mkdir(parents=True, exist_ok=True)
            for left in self.unfinished.iterdir():
                host, _, process = left.name.split("~")[0].rpartition(".")
                if host == socket.gethostname() and process.isdecimal() and not _alive(int(process)):
                    left.unlink(missing_ok=True)
        except OSError as error:
            raise _cannot_write(self.path, error) from None

    @contextlib.contextmanager
    def _aside(self, path: Path) -> Iterator[Path]:
        """A name of this process's own for what becomes ``path``; gone afterwards. Raises DataError for what the system does."""
        aside = self.unfinished / f"{socket.gethostname()}.{os.getpid()}~{path.name}.{uuid.uuid4().hex[:8]}"
        try:
            yield aside
        except OSError as error:
            raise _cannot_write(path, error) from None
        finally:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)

    @contextlib.contextmanager
    def written(self, path: Path) -> Iterator[BinaryIO]:
        """A binary file that gets its name ``path`` when it is whole and on the disk; raises DataError where it cannot be."""
        with self._aside(path) as aside:
            with open(aside, "xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(aside, path)

    def write_once(self, path: Path, value: Any) -> Any:
        """Write ``value`` as JSON unless the file is there, and return what is there then: of several processes one wins."""
        if not path.exists():
            with self._aside(path) as aside:
                write_json(aside, value)
                try:
                    os.link(aside, path)
                except FileExistsError:
                    pass
                except OSError:  # a file system without hard links
                    os.replace(aside, path)
        return json_file(path)

    def begun(self) -> bool:
        """Whether vectors or records of units lie there."""
        return any(any(inner.iterdir()) for inner in (self.vectors, self.units) if inner.is_dir())

    def finished(self, settings: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the records of the units whose part file is there and as long as it was.

        Raises DataError for a record that is damaged, or of other settings: its vectors are another model's or scale's.
        """
        found, problems = self.records(settings)
        if problems:
            raise DataError(problems[0])
        return found

    def records(self, settings: dict[str, Any]) -> tuple[dict[int, dict[str, Any]], list[str]]:
        """Return the same records, and a line for each that cannot be used."""
        found, problems = {}, []
        for path in sorted(self.units.glob("*.json")):
            try:
                record = self._record(path, settings)
                whole = (self.vectors / record["file"]).stat().st_size == record["bytes"]
            except DataError as error:
                problems.append(str(error))
            except OSError:
                pass
            else:
                if whole:
                    found[record["unit"]] = record
        return found, problems

    def _record(self, path: Path, settings: dict[str, Any]) -> dict[str, Any]:
        record = read_json(path, _RECORD, _AGAIN)
        number, size, documents = record["unit"], settings["asked"]["unit"], settings["corpus"]["documents"]
        suffix = ".gz" if settings["asked"]["gzip"] else ""
        if path != self.record(number):
            wrong = f"is the record of unit {number}, which {self.record(number).name} is"
        elif number >= unit_count(size, documents):
            wrong = f"is of a unit beyond the corpus, which has {unit_count(size, documents):,} units"
        elif record["settings"] != settings_digest(settings):
            wrong = f"was made by other settings than {self.settings} says"
        elif record["documents"] != len(unit_range(number, size, documents)):
            wrong = f"counts {record['documents']:,} documents of {len(unit_range(number, size, documents)):,}"
        elif record["file"] != f"part-{number:06d}.jsonl{suffix}":
            wrong = f"names the file {record['file']!r:.80}, which is not its unit's"
        else:
            return record
        raise DataError(f"{path} {wrong}: {_AGAIN}")

    def finish(self, settings: dict[str, Any], records: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """Write the manifest of a folder whose units are all there; return it. Several processes write the same."""
        manifest = merged(settings, records)
        try:
            write_json(self.manifest, manifest)
        except OSError as error:
            raise _cannot_write(self.manifest, error) from None
        with contextlib.suppress(OSError):
            for left in self.unfinished.iterdir():  # of processes that were killed, on whatever machine
                left.unlink()
            self.unfinished.rmdir()
        return manifest


def merged(settings: dict[str, Any], records: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest: settings, sums over the units, and their files."""
    ordered = [records[number] for number in sorted(records)]
    sums: Counter[str] = Counter()
    for record in ordered:
        sums.update({name: record[name] for name in _SUMS})
    filled = sums["documents"] - sums["empty_vectors"]
    environments: list[dict[str, Any]] = []
    for record in ordered:
        if record["made_with"] not in environments:
            environments.append(record["made_with"])
    return {
        "what": WHAT,
        **{name: sums[name] for name in _SUMS},
        "first_empty_ids": [name for record in ordered for name in record["first_empty_ids"]][:EMPTY_IDS_LISTED],
        "terms_per_document": {
            "mean": round(sums["postings"] / sums["documents"], 2),
            "mean_of_those_not_empty": round(sums["postings"] / filled, 2) if filled else 0.0,
            "least": min(record["least_terms"] for record in ordered),
            "most": max(record["most_terms"] for record in ordered),
        },
        "largest_impact": max(record["largest_impact"] for record in ordered),
        **settings,
        "made_with": environments,
        "parts": [{name: record[name] for name in ("file", "documents", "bytes", "sha256")} for record in ordered],
    }


def unit_range(number: int, size: int, documents: int) -> range:
    """Return the numbers of the documents of a unit."""
    return range(number * size, min((number + 1) * size, documents))


def unit_count(size: int, documents: int) -> int:
    return -(-documents // size)


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of an encoded corpus, given its folder or the vectors in it; None where there is none of ours.

    Raises DataError where the corpus is not encoded to the end.
    """
    if not exists(folder):
        return None
    for root in (folder, folder.resolve().parent if folder.resolve().name == VECTORS else folder):
        if (root / SETTINGS).is_file() and (root / VECTORS).is_dir():
            if not (root / MANIFEST).is_file():
                raise DataError(f"{root} is not encoded to the end: `encode check {root}` says what is missing")
            return read_manifest(root / MANIFEST)
    return None


def check_parts(folder: Path, manifest: dict[str, Any]) -> None:
    """Raise DataError where the files of vectors are not those that the manifest lists, by name and checksum."""
    wanted = {part["file"]: part["sha256"] for part in manifest["parts"]}
    try:
        names = {entry.name for entry in folder.iterdir()}
        for name in sorted(names ^ set(wanted)):
            what = "lists a file that is missing" if name in wanted else "does not list a file that is there"
            raise DataError(f"{folder.parent / MANIFEST} {what}: {VECTORS}/{name}; `encode check` says more")
        for name, digest in wanted.items():
            if file_sha256(folder / name) != digest:
                raise DataError(
                    f"{folder / name} is not what {MANIFEST} says was written: its checksum is another; {_AGAIN}, and `encode check` after that"
                )
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {one_line(error)}") from None


def vectors_of(folder: Path) -> Path:
    """Return the folder with the vector files, given it or the folder of an encoded corpus."""
    inner = folder / VECTORS
    return inner if exists(folder) and (folder / SETTINGS).is_file() and inner.is_dir() else folder


# Reading back: what a user may have edited, and a disk damaged

_AGAIN = "remove it and run encode with --resume"


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _some(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**63


def _weight(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 2**63


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _scale(value: Any) -> bool:
    try:
        quantize.from_json(value)
    except ValueError:
        return False
    return True


def _kept(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and -1 <= value <= 1)


def _calibration(value: Any) -> bool:
    return value is None or _wrong(value, _CALIBRATION) is None


_ASKED = {
    "model": _text, "quantizer": _text, "fields": [_text], "id_field": _text_or_none, "documents": _some, "corpus": _text,
    "unit": _some, "gzip": _flag,
}  # fmt: skip
_CORPUS = {"source": _text, "documents": _some, "empty": _count, "sha256": _text, "files": [[]]}
_KEPT = {"weight_range": _weight, "overlap": _kept, "kendall": _kept}
_CALIBRATION = {"queries": _count, "queries_are": _text, "documents": _count, "candidates": [_KEPT]}
_SETTINGS = {"asked": _ASKED, "model_name": _text, "quantizer": _scale, "calibration": _calibration, "corpus": _CORPUS}
_RECORD = {
    "unit": _count, "file": _text, **dict.fromkeys(_SUMS, _count), "least_terms": _count, "most_terms": _count,
    "largest_impact": _count, "first_empty_ids": [_text], "sha256": _text, "made_with": {}, "settings": _text,
}  # fmt: skip
_PART = {"file": _text, "documents": _count, "bytes": _count, "sha256": _text}
_MANIFEST = {**dict.fromkeys(_SUMS, _count), **_SETTINGS, "parts": [_PART]}


def _wrong(value: Any, shape: Any) -> str | None:
    """Return what is wrong with a value of JSON. shape: a dict of keys, a list of what each item is, or a test."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"is not an object but {type(value).__name__}"
        if lacking := [name for name in shape if name not in value]:
            return f"has no {lacking[0]!r}"
        inner = ((name, _wrong(value[name], one)) for name, one in shape.items())
        return next((f"{name!r} {found}" for name, found in inner if found), None)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"is not a list but {type(value).__name__}"
        return next((found for one in value for part in shape if (found := _wrong(one, part))), None)
    return None if shape(value) else f"cannot be {value!r:.80}"


def json_file(path: Path) -> Any:
    """Return a JSON file of ours; raise DataError where it was damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {one_line(error)}") from None


def read_json(path: Path, shape: dict[str, Any], what_to_do: str) -> dict[str, Any]:
    """Return a JSON file of ours; raise DataError where it was damaged or lacks what is read in it."""
    try:
        found = json_file(path)
    except DataError as error:
        raise DataError(f"{error}; {what_to_do}") from None
    wrong = _wrong(found, shape)
    if wrong:
        raise DataError(f"{path} is damaged: {'it ' if not wrong.startswith(chr(39)) else ''}{wrong}; {what_to_do}")
    return found


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a folder; raise DataError where they were damaged or contradict themselves."""
    what_to_do = "put back the file that was written, or encode into a new folder"
    found = read_json(path, _SETTINGS, what_to_do)
    asked, corpus = found["asked"], found["corpus"]
    pairs = {
        "documents": (asked["documents"], corpus["documents"]),
        "corpus": (asked["corpus"], corpus["sha256"]),
        "quantizer": (asked["quantizer"], found["quantizer"]["name"]),
    }
    wrong = [name for name, (one, other) in pairs.items() if one != other]
    if wrong:
        raise DataError(f"{path} was changed: it says two things of {', '.join(wrong)}; {what_to_do}")
    return found


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a folder; raise DataError where it was damaged."""
    return read_json(path, _MANIFEST, _AGAIN)


def settings_digest(settings: dict[str, Any]) -> str:
    """Return what tells settings apart: every unit carries it, so that units of others are not taken for these."""
    said = json.dumps({name: settings[name] for name in ("asked", "quantizer")}, sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _cannot_write(path: Path, error: OSError) -> DataError:
    return DataError(
        f"{path} cannot be written: {error.strerror or one_line(error)}; what is finished is kept, --resume goes on from there"
    )


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
