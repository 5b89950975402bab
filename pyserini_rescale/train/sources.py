"""The local files that hold training triples: found, and counted without reading what is in them. Needs no torch."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.files import at_home

KINDS = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".tsv", ".tsv.gz", ".csv", ".csv.gz", ".parquet")
_LINES = (".jsonl", ".tsv")  # one row a line, and lines that can be counted at once


def find_files(patterns: Sequence[str]) -> list[Path]:
    """Return the files that paths and glob patterns name, those of a pattern in order of name.

    Raises DataError where nothing is found, ConfigError for kinds of files that are not read and for one named twice.
    """
    found: list[Path] = []
    for pattern in patterns:
        literal = at_home(pattern)
        if literal.is_dir():
            raise DataError(f"data.files: {pattern} is a folder: name its files, for example {pattern}/*.jsonl")
        matches = [literal] if literal.exists() else sorted(map(Path, glob.glob(str(literal), recursive=True)))
        matches = [path for path in matches if path.is_file()]
        if not matches:
            raise DataError(f"data.files: {pattern} names no file (looked in {Path.cwd()})")
        found += matches
    for path in found:
        if not path.name.lower().endswith(KINDS):
            raise ConfigError(f"data.files: {path} is of a kind that is not read; the kinds are {', '.join(KINDS)}")
    seen: set[str] = set()
    for path in found:
        real = os.path.realpath(path)
        if real in seen:
            raise ConfigError(f"data.files names {path} twice: its rows would be trained on twice")
        seen.add(real)
    return found


def lines_of(files: Sequence[str]) -> int | None:
    """Return how many lines the files of one row a line hold (headers and bad rows too); None for other files, or none."""
    try:
        found = find_files(files)
    except DataError:
        return None
    if not all(path.name.lower().endswith(_LINES) for path in found):
        return None
    total = 0
    for path in found:
        with open(path, "rb") as stream:
            total += sum(1 for _ in stream)
    return total
