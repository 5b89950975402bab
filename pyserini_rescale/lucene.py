"""Pyserini's indexing command: one argument list wherever it is used, and how it is run as a process of its own."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pyserini_rescale.errors import StageError
from pyserini_rescale.logs import last_useful_line

MODULE = "pyserini.index.lucene"
IMPACTS = ("--impact", "--pretokenized")
"""What an index of impact vectors (JsonVectorCollection) is asked for with."""


def index_arguments(collection: str, source: Path, index: Path, threads: int | str, *more: str) -> list[str]:
    """Return what follows the module's name: Anserini's collection class, and the rest."""
    return [
        "--collection", collection, "--input", str(source), "--index", str(index),
        "--generator", "DefaultLuceneDocumentGenerator", "--threads", str(threads), *more,
    ]  # fmt: skip


def index_command(collection: str, source: Path, index: Path, threads: int, *more: str) -> list[str]:
    """Return the whole command for this interpreter; through ``run``, so that the start-up hook is not needed."""
    return [
        sys.executable,
        "-m",
        "pyserini_rescale",
        "run",
        MODULE,
        *index_arguments(collection, source, index, threads, *more),
    ]


def run(command: Sequence[str], log: Path) -> None:
    """Run a command with its output in ``log``; raise StageError with the line of it that says why it failed."""
    with open(log, "wb") as stream:
        done = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise StageError(f"indexing failed (status {done.returncode}): {last_useful_line(log)}")
