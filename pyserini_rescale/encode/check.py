"""Proof that an encoded corpus is the corpus: every document there exactly once, in order, in files that are as written."""

from pathlib import Path
from typing import Any

from tqdm import tqdm

from pyserini_rescale.collections import json_object, read_lines
from pyserini_rescale.corpora import Corpus, open_corpus, scan
from pyserini_rescale.encode.folder import Folder, file_sha256, merged, read_json, unit_count, unit_range
from pyserini_rescale.errors import ConfigError, DataError

_SAID = 10


def check(path: Path, source: str | None = None, bar: bool = True) -> tuple[list[str], dict[str, Any] | None]:
    """Return the problems, [] for a proof, and what a manifest of the folder says (None where units are missing).

    source: where the corpus lies now, if not where it was. Raises ConfigError for a folder that is none of ours, DataError for
    a corpus that cannot be read.
    """
    folder = Folder(path)
    if not folder.settings.is_file():
        raise ConfigError(f"{path} is not an encoded corpus: it has no {folder.settings.name}")
    settings = read_json(folder.settings)
    asked, described = settings["asked"], settings["corpus"]
    corpus = open_corpus(source or described["source"], asked["fields"], asked["id_field"])
    size, documents = asked["unit"], described["documents"]
    count = unit_count(size, documents)
    records = folder.finished()
    problems: list[str] = []
    missing = [number for number in range(count) if number not in records]
    if missing:
        problems.append(
            f"{len(missing):,} of {count:,} units are missing ({_listed(missing)}): run encode with --resume to make them"
        )
    files = {record["file"] for record in records.values()}
    strange = sorted(entry.name for entry in folder.vectors.iterdir() if entry.name not in files)
    strange = [name for name in strange if name not in {f"part-{number:06d}.jsonl" for number in missing}]
    if strange:
        problems.append(f"{folder.vectors} holds {_listed(strange)}, which no unit wrote and Anserini would index")
    found = scan(corpus, lambda stream: tqdm(stream, desc="reading the corpus", unit=" documents", disable=not bar))
    if (found.documents, found.sha256) != (documents, described["sha256"]):
        problems.append(
            f"{corpus.source} is not the corpus that was encoded: it has {found.documents:,} documents, of {documents:,}, or other texts"
        )
        return problems, None
    problems += _compare(corpus, folder, records, size, documents, bar)
    return problems, merged(settings, records) if not missing else None


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
        ids = [str(json_object(line, where).get("id")) for where, line in read_lines(path)]
    except DataError as error:
        return str(error)
    if ids != wanted:
        place = next(
            (at for at, pair in enumerate(zip(ids, wanted, strict=False)) if pair[0] != pair[1]),
            min(len(ids), len(wanted)),
        )
        return f"{path} holds {len(ids):,} documents of {len(wanted):,}, and differs from the corpus at its line {place + 1}"
    return None


def _listed(values: list[Any]) -> str:
    more = f" and {len(values) - _SAID:,} more" if len(values) > _SAID else ""
    return ", ".join(map(str, values[:_SAID])) + more
