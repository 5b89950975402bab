"""Corpora of any size, and topics without judgements: streams of (id, text), for encoding.

A corpus is a BEIR folder, a folder of files, a file, or an id of ir_datasets. Files are JSONL or TSV, plain or gzipped.
A document's fields are joined by a space, stripped, empty ones left out. Nothing but the line that is read is held in memory;
``scan``, which reads all of it once, holds 8 bytes a document to find ids that come twice.

Documents are numbered from 0 in the order of the files' names and lines, which is the order they are encoded in. Rules and
errors are those of collections.py.
"""

import dataclasses
import errno
import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyserini_rescale.collections import (
    CORPUS,
    Query,
    checked_id,
    checked_text,
    hint,
    ir_dataset_stream,
    json_object,
    plain_or_gz,
    read_lines,
    read_queries,
    read_topics,
    topic_text,
)
from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.files import at_home

FIELDS = ("title", "text")
ID_FIELDS = ("id", "_id", "docid")
_JSON, _TABLE = (".jsonl", ".json", ".ndjson"), (".tsv", ".txt")


class Text(NamedTuple):
    """One document or topic as it is encoded; ``text`` may be empty."""

    id: str
    text: str


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A stream of documents that can be started as often as wanted.

    fields: what the user named; () is title and text. files: none for ir_datasets. items: yields (where, unparsed), one per
    document, cheaply, so that documents can be passed over. parse: makes a ``Text`` of them, or raises DataError.
    """

    source: str
    fields: tuple[str, ...]
    files: tuple[Path, ...]
    items: Callable[[], Iterator[tuple[str, Any]]]
    parse: Callable[[str, Any], Text]

    def texts(self) -> Iterator[tuple[str, Text]]:
        """Yield (where, text) of every document."""
        for where, item in self.items():
            yield where, self.parse(where, item)

    def state(self) -> list[list[Any]]:
        """Return [name, size in bytes, time of change in ns] of each file: what tells that one was changed."""
        found = []
        for path in self.files:
            try:
                stat = path.stat()
            except OSError as error:
                raise DataError(f"{path} cannot be read any more: {error.strerror}") from None
            found.append([path.name, stat.st_size, stat.st_mtime_ns])
        return found


def open_corpus(source: str, fields: Iterable[str] = (), id_field: str | None = None) -> Corpus:
    """Return the corpus that ``source`` names.

    fields: which fields of a document, or names for the columns of a TSV file after the first, make its text. Without
    them: title and text, of which the title may be missing; ``contents`` where there is neither; of TSV, all columns of two or
    three. id_field: by default the first of id, _id and docid that is there.
    """
    names = tuple(fields)
    if len(set(names)) < len(names) or not all(names):
        raise ConfigError(f"--fields {' '.join(names)}: each field once")
    path = existing(source)
    if path is None:
        if source.startswith(("/", ".", "~")):
            raise DataError(
                f"{source} does not exist: give a file, a folder or an id of ir_datasets such as beir/scifact"
            )
        stream = ir_dataset_stream(source, ("docs",))
        return Corpus(source, names, (), lambda: stream("docs"), lambda where, item: _item(item, where, names))
    files = tuple(corpus_files(path))
    for file in files:
        _check_regular(file)
    parsers = {file: _parser(file, names, id_field) for file in files}

    def items() -> Iterator[tuple[str, Any]]:
        for file in files:
            for where, line in read_lines(file):
                yield where, (file, line)

    return Corpus(source, names, files, items, lambda where, item: parsers[item[0]](where, item[1]))


def existing(source: str) -> Path | None:
    """Return the file or folder of that name, None where there is none, as where the name cannot be one (more letters
    than a file system takes); raise DataError where the system does not let it be looked at."""
    try:
        path = at_home(source)
        return path if path.exists() else None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise DataError(f"{source} cannot be read: {error.strerror}") from None


def _check_regular(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path} is not a regular file; it is read more than once: write it to a file first")


def corpus_files(path: Path) -> list[Path]:
    """Return the files of a corpus, in order: ``path`` itself, a BEIR folder's corpus, or all that a folder holds."""
    if not path.is_dir():
        return [path]
    if (path / CORPUS).is_file():
        return [path / CORPUS]
    if any(path.glob("corpus.jsonl*")) and any(path.glob("queries.jsonl*")):
        return [plain_or_gz(path / "corpus.jsonl")]
    return folder_files(path)


def folder_files(path: Path) -> list[Path]:
    """Return what lies in a folder, hidden files left out, in order of name; raise DataError where that is no files."""
    files = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if not files:
        raise DataError(f"{path} is an empty folder")
    for entry in files:
        if not entry.is_file():
            raise DataError(
                f"{path} holds {entry.name}, which is not a file: name the folder or file that holds the documents"
            )
    return files


def _parser(path: Path, fields: tuple[str, ...], id_field: str | None) -> Callable[[str, str], Text]:
    kind = Path(path.name.removesuffix(".gz")).suffix
    if kind in _JSON:
        return lambda where, line: _json_document(line, where, fields, id_field)
    if kind in _TABLE:
        return lambda where, line: _table_document(line, where, fields)
    raise DataError(f"{path} is of no known kind: names end in {', '.join((*_JSON, *_TABLE))}, and .gz after that")


def _json_document(line: str, where: str, fields: tuple[str, ...], id_field: str | None) -> Text:
    found = json_object(line, where)
    names = (id_field,) if id_field else ID_FIELDS
    name = next((found[one] for one in names if found.get(one) is not None), None)
    if name is None:
        raise DataError(f"{where} has no id (looked for: {', '.join(names)}; --id-field names another)")
    used = fields or (FIELDS if "text" in found else ("contents",))
    missing = [field for field in used if field not in found and (fields or field != "title")]
    if missing:
        has = ", ".join(sorted(found))
        raise DataError(
            f"{where} has no field {'text' if not fields else missing[0]} (it has: {has}); --fields names others"
        )
    return Text(checked_id(name, where), _joined(((field, found.get(field)) for field in used), where))


def _table_document(line: str, where: str, fields: tuple[str, ...]) -> Text:
    name, *columns = line.split("\t")
    if fields and len(columns) != len(fields):
        raise DataError(f"{where} has {len(columns)} column(s) after the id, --fields names {len(fields)}")
    if not fields and len(columns) not in (1, 2):
        raise DataError(
            f"{where} has {len(columns) + 1} column(s): id, text or id, title, text are expected; --fields names others"
        )
    return Text(checked_id(name, where), _joined(zip(fields or FIELDS[-len(columns) :], columns, strict=True), where))


def _item(item: Any, where: str, fields: tuple[str, ...]) -> Text:
    used = fields or tuple(field for field in FIELDS if hasattr(item, field))
    if not fields and "text" not in used:
        return Text(checked_id(item.doc_id, where), _joined([("text", item.default_text())], where))
    missing = [field for field in used if not hasattr(item, field)]
    if missing:
        raise DataError(f"{where} has no field {missing[0]} (it has: {', '.join(item._fields)}); --fields names others")
    return Text(checked_id(item.doc_id, where), _joined(((field, getattr(item, field)) for field in used), where))


def _joined(values: Iterable[tuple[str, Any]], where: str) -> str:
    """Return the fields as one text, as encode/base.py joins title and text."""
    parts = (checked_text(value, field, where).strip() for field, value in values if value is not None)
    return " ".join(filter(None, parts))


# Reading all of it once


class Scan(NamedTuple):
    """What a corpus is: how many documents, how many without text, and a checksum of ids and texts in order."""

    documents: int
    empty: int
    sha256: str


def scan(corpus: Corpus, watch: Callable[[Iterator[Any]], Iterable[Any]] = iter) -> Scan:
    """Read the whole corpus; raises DataError for a document that cannot be used and for an id that comes twice.

    watch: wraps the stream, for a progress bar.
    """
    digest, ids, empty = hashlib.sha256(), Ids(), 0
    for _, (name, text) in watch(corpus.texts()):
        digest.update(f"{name}\0{len(text)}\0{text}\0".encode())
        ids.add(name)
        empty += not text
    if not len(ids):
        raise DataError(f"{corpus.source} holds no document")
    ids.check(lambda: ((where, text.id) for where, text in corpus.texts()))
    return Scan(len(ids), empty, digest.hexdigest())


class Ids:
    """Finds ids that come twice, with 8 bytes of memory an id: hashes first, and the ids again where two are equal."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, name: str) -> None:
        self._hashes.append(hash(name))

    def check(self, again: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Raise DataError for the first id that comes a second time; ``again`` yields (where, id) of all of them."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64) if self._hashes else np.zeros(0, dtype=np.int64)
        hashes.sort()  # in place: memory of that size may not be there twice
        suspects = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        if not suspects:
            return
        seen: dict[str, str] = {}
        for where, name in again():
            if hash(name) in suspects:
                if name in seen:
                    raise DataError(f"{where}: id {name!r} has been used before ({seen[name]})")
                seen[name] = where


# Topics


def open_topics(source: str) -> list[Query]:
    """Return the topics of a BEIR folder, of topics.json as ``collection`` writes it, of queries.jsonl, of a TSV file (id,
    text) or of an id of ir_datasets; judged or not. Tabs and line ends become spaces.

    Raises DataError for what cannot be used, an empty text among it: it would find nothing.
    """
    path = existing(source)
    if path is not None and path.is_dir():
        path = path / "topics.json" if (path / "topics.json").is_file() else plain_or_gz(path / "queries.jsonl")
    if path is not None:
        _check_regular(path)
        kind = Path(path.name.removesuffix(".gz")).suffix
        if kind == ".json":
            found = read_topics(path)
        elif kind in _JSON:
            found = read_queries(path)
        elif kind in _TABLE:
            found = (Query(*_table_document(line, where, ("text",))) for where, line in read_lines(path))
        else:
            raise DataError(
                f"{path} is of no known kind: topics end in .json, .jsonl, .tsv or .txt, and .gz after that"
            )
    elif source.startswith(("/", ".", "~")):
        raise DataError(f"{source} does not exist: give a file or folder of topics, or {hint()}")
    else:
        stream = ir_dataset_stream(source, ("queries",))
        found = (
            Query(
                checked_id(item.query_id, where),
                checked_text(getattr(item, "text", None) or item.default_text(), "text", where),
            )
            for where, item in stream("queries")
        )
    topics: dict[str, Query] = {}
    for query in found:
        if query.id in topics:
            raise DataError(f"{source}: the query id {query.id!r} comes twice")
        topics[query.id] = Query(query.id, topic_text(query.text))
        if not topics[query.id].text:
            raise DataError(f"{source}: the query {query.id} has an empty text")
    if not topics:
        raise DataError(f"{source} holds no topic")
    return list(topics.values())
