"""Proof that an encoded corpus is the corpus: every document there exactly once, in order, in files that are as written."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pyserini_rescale.corpora import Corpus, open_corpus, scan
from pyserini_rescale.encode.folder import (
    Folder,
    file_sha256,
    merged,
    read_manifest,
    read_settings,
    unit_count,
    unit_range,
)
from pyserini_rescale.encode.vectors import EMPTY_IDS_LISTED, read_vector_file
from pyserini_rescale.errors import ConfigError, DataError, one_line

_SAID = 10


def check(path: Path, source: str | None = None, bar: bool = True) -> tuple[list[str], dict[str, Any] | None]:
    """Return the problems, [] for a proof, and what a manifest of the folder says (None where units are missing).

    source: where the corpus lies now, if not where it was. Raises ConfigError for a folder that is none of ours, DataError for
    a corpus that cannot be read.
    """
    folder = Folder(path)
    try:
        there = folder.settings.is_file()
    except OSError as error:
        raise ConfigError(f"{path} is not an encoded corpus: {one_line(error)}") from None
    if not there:
        raise ConfigError(f"{path} is not an encoded corpus: it has no {folder.settings.name}")
    settings = read_settings(folder.settings)
    asked, described = settings["asked"], settings["corpus"]
    corpus = open_corpus(source or described["source"], asked["fields"], asked["id_field"])
    size, documents = asked["unit"], described["documents"]
    count = unit_count(size, documents)
    records, problems = folder.records(settings)
    missing = [number for number in range(count) if number not in records]
    if missing:
        problems.append(
            f"{len(missing):,} of {count:,} units are missing ({_listed(missing)}): run encode with --resume to make them"
        )
    files = {record["file"] for record in records.values()}
    suffix = ".gz" if asked["gzip"] else ""
    files |= {f"part-{number:06d}.jsonl{suffix}" for number in missing}
    lying = folder.vectors.iterdir() if folder.vectors.is_dir() else ()
    strange = sorted(entry.name for entry in lying if entry.name not in files)
    if strange:
        problems.append(f"{folder.vectors} holds {_listed(strange)}, which no unit wrote and Anserini would index")
    found = scan(corpus, lambda stream: tqdm(stream, desc="reading the corpus", unit=" documents", disable=not bar))
    if (found.documents, found.sha256) != (documents, described["sha256"]):
        problems.append(
            f"{corpus.source} is not the corpus that was encoded: it has {found.documents:,} documents, of {documents:,}, or other texts"
        )
        return problems, None
    problems += _compare(corpus, folder, records, size, documents, bar)
    if missing:
        return problems, None
    manifest = merged(settings, records)
    problems += _compare_manifest(folder.manifest, manifest)
    return problems, manifest


def _compare_manifest(path: Path, expected: dict[str, Any]) -> list[str]:
    """Return a line where the manifest, by which exports and indexes go, is not what settings and records make."""
    if not path.is_file():
        return [f"{path} is missing: run encode with --resume to write it"]
    try:
        found = read_manifest(path)
    except DataError as error:
        return [str(error)]
    expected = json.loads(json.dumps(expected))
    for one in (found, expected):
        one["corpus"] = {**one["corpus"], "files": None}  # the corpus may have been moved while it was encoded
    other = sorted(name for name in found.keys() | expected if found.get(name) != expected.get(name))
    if not other:
        return []
    return [f"{path} says otherwise than the units ({_listed(other)}): remove it and run encode with --resume"]


def _compare(
    corpus: Corpus, folder: Folder, records: dict[int, dict[str, Any]], size: int, documents: int, bar: bool
) -> list[str]:
    """Return a line for each unit whose file does not hold the corpus's documents, in order, or is not as it was written."""
    problems: list[str] = []
    stream = iter(corpus.texts())
    with tqdm(total=documents, desc="comparing", unit=" documents", disable=not bar) as progress:
        for number in range(unit_count(size, documents)):
            wanted = [next(stream)[1].id for _ in unit_range(number, size, documents)]
            if number in records:
                problem = _compare_unit(folder.vectors / records[number]["file"], records[number], wanted)
                if problem:
                    problems.append(problem)
            progress.update(len(wanted))
    return problems


def _compare_unit(path: Path, record: dict[str, Any], wanted: list[str]) -> str | None:
    if file_sha256(path) != record["sha256"]:
        return f"{path} is not what was written: its checksum is another; remove it and run encode with --resume"
    try:
        found = [
            (name, len(vector), sum(vector.values()), max(vector.values(), default=0)) for name, vector in _read(path)
        ]
    except DataError as error:
        return str(error)
    ids = [name for name, *_ in found]
    if ids != wanted:
        place = next(
            (at for at, pair in enumerate(zip(ids, wanted, strict=False)) if pair[0] != pair[1]),
            min(len(ids), len(wanted)),
        )
        return f"{path} holds {len(ids):,} documents of {len(wanted):,}, and differs from the corpus at its line {place + 1}"
    empty = [name for name, terms, *_ in found if not terms]
    counted = {
        "documents": len(ids),
        "empty_vectors": len(empty),
        "postings": sum(terms for _, terms, *_ in found),
        "impacts": sum(total for _, _, total, _ in found),
        "least_terms": min(terms for _, terms, *_ in found),
        "most_terms": max(terms for _, terms, *_ in found),
        "largest_impact": max(largest for *_, largest in found),
        "first_empty_ids": empty[:EMPTY_IDS_LISTED],
    }
    wrong = [name for name, value in counted.items() if record[name] != value]
    if wrong:
        return f"{path} is not what its unit's record counts ({', '.join(wrong)}): remove both and run encode with --resume"
    return None


def _read(path: Path) -> Iterator[tuple[str, dict[str, int]]]:
    return ((name, vector) for _, name, vector in read_vector_file(path, set()))


def _listed(values: list[Any]) -> str:
    more = f" and {len(values) - _SAID:,} more" if len(values) > _SAID else ""
    return ", ".join(map(str, values[:_SAID])) + more
