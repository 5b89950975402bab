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

from pyserini_rescale.encode.vectors import EMPTY_IDS_LISTED
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import write_json

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
        if not self.path.exists():
            return
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
    def written(self, path: Path) -> Iterator[BinaryIO]:
        """A binary file that gets its name ``path`` when it is whole and on the disk; raises DataError where it cannot be."""
        aside = self.unfinished / f"{socket.gethostname()}.{os.getpid()}~{path.name}.{uuid.uuid4().hex[:8]}"
        try:
            with open(aside, "xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(aside, path)
        except OSError as error:
            raise _cannot_write(path, error) from None
        finally:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)

    def write_once(self, path: Path, value: Any) -> Any:
        """Write ``value`` as JSON unless the file is there, and return what is there then: of several processes one wins."""
        if not path.exists():
            aside = self.unfinished / f"{socket.gethostname()}.{os.getpid()}~{path.name}.{uuid.uuid4().hex[:8]}"
            try:
                write_json(aside, value)
                try:
                    os.link(aside, path)
                except FileExistsError:
                    pass
                except OSError:  # a file system without hard links
                    os.replace(aside, path)
            except OSError as error:
                raise _cannot_write(path, error) from None
            finally:
                with contextlib.suppress(OSError):
                    aside.unlink(missing_ok=True)
        return read_json(path)

    def finished(self) -> dict[int, dict[str, Any]]:
        """Return the records of the units whose part file is there and as long as it was."""
        found = {}
        for path in sorted(self.units.glob("*.json")):
            record = read_json(path)
            try:
                whole = (self.vectors / record["file"]).stat().st_size == record["bytes"]
            except FileNotFoundError:
                whole = False
            if whole:
                found[record["unit"]] = record
        return found

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
    for root in (folder, folder.resolve().parent if folder.resolve().name == VECTORS else folder):
        if (root / SETTINGS).is_file() and (root / VECTORS).is_dir():
            if not (root / MANIFEST).is_file():
                raise DataError(f"{root} is not encoded to the end: `encode check {root}` says what is missing")
            return read_json(root / MANIFEST)
    return None


def vectors_of(folder: Path) -> Path:
    """Return the folder with the vector files, given it or the folder of an encoded corpus."""
    inner = folder / VECTORS
    return inner if (folder / SETTINGS).is_file() and inner.is_dir() else folder


def read_json(path: Path) -> Any:
    """Return a JSON file of ours; raise DataError where it was damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {one_line(error)}") from None


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
