"""Test collections: a folder, an ir_datasets id or the docstrings, read as streams of documents, queries, judgements.

A BEIR folder holds corpus.jsonl, queries.jsonl (either may be gzipped) and qrels/SPLIT.tsv; a folder that
``write_pyserini_form`` wrote, with the files that Pyserini's encode and search commands take, is read too. Whatever the
source, ids are strings without white space (a run file has columns), no id comes twice, and grades are integers; what
breaks these rules is a DataError that names file and line. Lines end at \\n only: U+2028 and its like are text.
Nothing here needs Pyserini.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_rescale.docstrings import Passage, read_installed, read_passages
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import at_home, write_json, written_folder

DATA_VARIABLE = "PYSERINI_RESCALE_DATA"
DOCSTRINGS = "docstrings"
DOCSTRING_QUERIES, DOCSTRING_PAIRS = 1050, 10_000
MOST_GRADE = 1_000_000
QRELS_HEADER = ["query-id", "corpus-id", "score"]
CORPUS, TOPICS, QRELS = "corpus/corpus.jsonl", "topics.json", "qrels.txt"
# What write_pyserini_form writes, and therefore may replace.
WRITTEN = ("corpus", CORPUS, TOPICS, "topics.tsv", QRELS, "counts.json")


class Document(NamedTuple):
    """One document; ``title`` and ``text`` may be empty."""

    id: str
    title: str
    text: str


class Query(NamedTuple):
    """One query (topic)."""

    id: str
    text: str


class Judgement(NamedTuple):
    """One line of the qrels; grades below 1 are not relevant."""

    query: str
    document: str
    grade: int


@dataclasses.dataclass(frozen=True)
class Collection:
    """A test collection: each stream can be started as often as wanted, and is checked while it is read."""

    name: str
    documents: Callable[[], Iterator[Document]]
    queries: Callable[[], Iterator[Query]]
    judgements: Callable[[], Iterator[Judgement]]


@dataclasses.dataclass(frozen=True)
class Counts:
    """What write_pyserini_form wrote, and what it noticed.

    empty_documents have neither title nor text. judged_queries counts the qids of the qrels; those in
    queries_without_text cannot be searched and score 0. judgements_outside name a document that the corpus lacks.
    sha256: of corpus, topics and qrels as written; the same collection has the same wherever it comes from.
    """

    documents: int
    empty_documents: int
    judged_queries: int
    queries_without_text: tuple[str, ...]
    judgements: int
    judgements_outside: int
    sha256: str


def open_collection(source: str, split: str = "test") -> Collection:
    """Return the collection that ``source`` names: a folder, an ir_datasets id such as ``beir/scifact/test``, or
    ``docstrings``, which every machine has (docstrings.py).

    ``split`` chooses qrels/SPLIT.tsv of a BEIR folder, and test or train of the docstrings; a folder that
    write_pyserini_form wrote has one split, and an ir_datasets id names its split itself.
    """
    if source == DOCSTRINGS:
        return _docstrings(split)
    folder = at_home(source)
    if all((folder / name).is_file() for name in (CORPUS, TOPICS, QRELS)):
        return _pyserini_folder(folder)
    if folder.is_dir():
        return _beir_folder(folder, split)
    if folder.exists() or folder.is_absolute() or source.startswith((".", "~")):
        raise DataError(
            f"{source} is not a folder: give a BEIR folder (corpus.jsonl, queries.jsonl, qrels/) or an "
            f"ir_datasets id such as beir/scifact/test"
        )
    return _ir_dataset(source)


# Docstrings


def _docstrings(split: str) -> Collection:
    if split == "test":
        return passages_as_collection(read_passages(), DOCSTRING_QUERIES)
    if split == "train":
        passages = read_installed(hidden=read_passages())
        return passages_as_collection(passages, min(DOCSTRING_PAIRS, len(passages)))
    raise DataError(f"{DOCSTRINGS} has no split {split!r}: test (standard library), train (installed packages)")


def passages_as_collection(passages: list[Passage], queries: int) -> Collection:
    """Return all passages as documents, and ``queries`` first sentences, evenly spaced, as judged queries.

    Equal ones are one query: a query that begins several docstrings has them all as relevant documents.
    """
    chosen: dict[str, str] = {}  # query text -> query id
    for passage in (passages[number * len(passages) // queries] for number in range(queries)):
        chosen.setdefault(passage.query, passage.id)

    def judgements() -> Iterator[Judgement]:
        for passage in passages:
            if passage.query in chosen:
                yield Judgement(chosen[passage.query], passage.id, 1)

    return Collection(
        name=DOCSTRINGS,
        documents=lambda: (Document(passage.id, "", passage.text) for passage in passages),
        queries=lambda: (Query(name, text) for text, name in chosen.items()),
        judgements=judgements,
    )


# BEIR folders


def _beir_folder(folder: Path, split: str) -> Collection:
    corpus = plain_or_gz(folder / "corpus.jsonl")
    queries = plain_or_gz(folder / "queries.jsonl")
    qrels = folder / "qrels" / f"{split}.tsv"
    if not qrels.is_file():
        known = sorted(path.stem for path in qrels.parent.glob("*.tsv"))
        raise DataError(f"{qrels} does not exist; splits found there: {', '.join(known) or 'none'}")
    return Collection(
        name=folder.resolve().name,
        documents=lambda: _read_documents(corpus),
        queries=lambda: read_queries(queries),
        judgements=lambda: _read_qrels(qrels),
    )


def plain_or_gz(path: Path) -> Path:
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    raise DataError(f"{path} does not exist (nor {path.name}.gz): a BEIR folder needs it")


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (``FILE line N``, the line without its end) of a UTF-8 file, plain or .gz; lines end at \\n only."""
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                where = f"{path} line {number}"
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(f"{where} is not UTF-8 ({one_line(error)}): convert the file") from None
                yield where, text.removesuffix("\n").removesuffix("\r")
    except (OSError, EOFError, zlib.error) as error:  # gzip reports a cut file by EOFError
        after = f" after line {number}" if number else ""
        raise DataError(f"{path} cannot be read{after}: {one_line(error)}") from None


def json_object(line: str, where: str) -> dict[str, Any]:
    """Return the JSON object that a line is; raise DataError where it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not valid JSON ({one_line(error)})") from None
    if not isinstance(found, dict):
        raise DataError(f"{where} is not a JSON object but {type(found).__name__}")
    return found


def _read_objects(path: Path, id_field: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (where, id, object) of a JSONL file whose objects have an id."""
    seen: set[str] = set()
    for where, line in read_lines(path):
        found = json_object(line, where)
        if id_field not in found:
            raise DataError(f"{where} has no field {id_field}")
        yield where, _new_id(found[id_field], where, seen), found


def _read_documents(path: Path, id_field: str = "_id") -> Iterator[Document]:
    for where, name, found in _read_objects(path, id_field):
        title = found.get("title")
        yield Document(name, "" if title is None else checked_text(title, "title", where), _required_text(found, where))


def read_queries(path: Path) -> Iterator[Query]:
    for where, name, found in _read_objects(path, "_id"):
        yield Query(name, _required_text(found, where))


def _read_qrels(path: Path) -> Iterator[Judgement]:
    """Yield the lines of a BEIR qrels file: three columns, the header optional."""
    seen: dict[tuple[str, str], int] = {}
    for number, (where, line) in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if number == 1 and [column.strip().lower() for column in columns] == QRELS_HEADER:
            continue
        if len(columns) != 3:
            raise DataError(
                f"{where} has {len(columns)} column(s) where query id, document id and grade are "
                f"expected, separated by tabs"
            )
        query, document, grade = columns
        judged = _judgement(query, document, grade, where, seen)
        if judged is not None:
            yield judged


def _judgement(query: Any, document: Any, grade: Any, where: str, seen: dict[Any, int]) -> Judgement | None:
    """Return the judgement, or None where it repeats an earlier one word by word."""
    if isinstance(grade, bool) or not re.fullmatch(r"[+-]?[0-9]+", str(grade)):
        raise DataError(f"{where}: grade {grade!r} is not an integer (a header must read {' '.join(QRELS_HEADER)})")
    judged = Judgement(checked_id(query, where), checked_id(document, where), checked_grade(str(grade), where))
    if judged[:2] not in seen:
        seen[judged[:2]] = judged.grade
        return judged
    if seen[judged[:2]] != judged.grade:
        raise DataError(
            f"{where} judges query {judged.query}, document {judged.document} as {judged.grade}, "
            f"an earlier line as {seen[judged[:2]]}"
        )
    return None


def checked_grade(text: str, where: str) -> int:
    """Return a grade that is written as an integer; raise where trec_eval, which counts by grade, would end the process."""
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > len(str(MOST_GRADE)) or int(digits or 0) > MOST_GRADE:
        raise DataError(f"{where}: the grade {text[:30]} is beyond {MOST_GRADE:,}, more than trec_eval can count by")
    return int(text)


def checked_id(value: Any, where: str) -> str:
    """Return an id as a string (numbers become strings); raise where a run file could not hold it."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise DataError(f"{where}: id {value!r} is neither a string nor an integer")
    if not value or any(character.isspace() for character in value):
        raise DataError(
            f"{where}: id {value!r} is {'empty' if not value else 'not one word'}; a run file has columns "
            f"separated by spaces"
        )
    if "\0" in value:  # trec_eval's ids end there, and it stops the process where two are the same then
        raise DataError(f"{where}: id {value!r} holds a NUL, at which trec_eval ends it")
    return _encodable(value, "id", where)


def _new_id(value: Any, where: str, seen: set[str]) -> str:
    name = checked_id(value, where)
    if name in seen:
        raise DataError(f"{where}: id {name!r} has been used by an earlier line")
    seen.add(name)
    return name


def _required_text(found: dict[str, Any], where: str) -> str:
    if "text" not in found:
        raise DataError(f"{where} has no field text (fields: {', '.join(map(str, found))})")
    return checked_text(found["text"], "text", where)


def checked_text(value: Any, field: str, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: {field} is not a string but {type(value).__name__}")
    return _encodable(value, field, where)


def _encodable(value: str, field: str, where: str) -> str:
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:  # JSON can spell half a surrogate pair; tokenizers and files cannot hold it
            raise DataError(f"{where}: {field} holds half a surrogate pair, which is no character") from None
    return value


# Folders that write_pyserini_form wrote


def _pyserini_folder(folder: Path) -> Collection:
    return Collection(
        name=folder.resolve().name,
        documents=lambda: _read_documents(folder / CORPUS, "id"),
        queries=lambda: read_topics(folder / TOPICS),
        judgements=lambda: _read_trec_qrels(folder / QRELS),
    )


def read_topics(path: Path) -> Iterator[Query]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON: {one_line(error)}") from None
    if not isinstance(found, dict) or not all(isinstance(topic, dict) for topic in found.values()):
        raise DataError(f'{path} is not of the form {{query id: {{"title": text}}}}')
    for name, topic in found.items():
        where = f"{path}, query {name}"
        yield Query(checked_id(name, where), checked_text(topic.get("title"), "title", where))


def _read_trec_qrels(path: Path) -> Iterator[Judgement]:
    """Yield the lines of TREC's form: query id, something, document id, grade, separated by white space."""
    seen: dict[tuple[str, str], int] = {}
    for where, line in read_lines(path):
        columns = line.split()
        if len(columns) != 4:
            raise DataError(
                f"{where} has {len(columns)} column(s) where query id, 0, document id and grade are expected"
            )
        judged = _judgement(columns[0], columns[2], columns[3], where, seen)
        if judged is not None:
            yield judged


# ir_datasets


def _ir_dataset(name: str) -> Collection:
    stream = ir_dataset_stream(name, ("docs", "queries", "qrels"))

    def documents() -> Iterator[Document]:
        seen: set[str] = set()
        for where, item in stream("docs"):
            title = getattr(item, "title", None) if hasattr(item, "text") else None
            text = item.text if hasattr(item, "text") else item.default_text()
            yield Document(
                _new_id(item.doc_id, where, seen),
                checked_text(title or "", "title", where),
                checked_text(text, "text", where),
            )

    def queries() -> Iterator[Query]:
        seen: set[str] = set()
        for where, item in stream("queries"):
            text = item.text if hasattr(item, "text") else item.default_text()
            yield Query(_new_id(item.query_id, where, seen), checked_text(text, "text", where))

    def judgements() -> Iterator[Judgement]:
        seen: dict[Any, int] = {}
        for where, item in stream("qrels"):
            judged = _judgement(item.query_id, item.doc_id, item.relevance, where, seen)
            if judged is not None:
                yield judged

    return Collection(name, documents, queries, judgements)


def ir_dataset_stream(name: str, kinds: Iterable[str]) -> Callable[[str], Iterator[tuple[str, Any]]]:
    """Return a function that yields (where, item) of one of the ``kinds`` (docs, queries, qrels) of a data set.

    Raises DataError where ir_datasets does not know the name, or the data set lacks a kind.
    """
    import ir_datasets  # takes a moment, and looks at the environment

    try:
        dataset = ir_datasets.load(name)
    except KeyError:
        raise DataError(f"{name} is neither a folder here nor an id of ir_datasets; {hint()}") from None
    lacking = [kind for kind in kinds if not dataset.has(kind)]
    if lacking:
        example = " of a judged split" if "qrels" in lacking else ""
        raise DataError(
            f"ir_datasets' {name} has no {', '.join(lacking)}: give the id{example}, such as beir/scifact/test"
        )

    def stream(kind: str) -> Iterator[tuple[str, Any]]:
        with _ir_datasets_errors(name):
            for number, item in enumerate(getattr(dataset, f"{kind}_iter")(), start=1):
                yield f"ir_datasets' {name}, {kind} {number}", item

    return stream


@contextlib.contextmanager
def _ir_datasets_errors(name: str) -> Iterator[None]:
    """Turn what ir_datasets raises when it cannot fetch or open its files into one line that says what to do."""
    try:
        yield
    except DataError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, EOFError) as error:  # requests' errors are OSErrors
        reason = one_line(error)
        reason = reason if len(reason) < 120 else reason[:120] + "..."
        raise DataError(f"ir_datasets cannot provide {name} ({reason}): without internet, {hint()}") from None


def hint() -> str:
    return f"give the collection as a BEIR folder, or name the folder that holds it by --data FOLDER or {DATA_VARIABLE}"


# The form that Pyserini reads


def write_pyserini_form(collection: Collection, folder: Path) -> Counts:
    """Write ``folder`` with the files below and return their counts; the folder appears whole or not at all.

    corpus/corpus.jsonl
        One {"id", "title", "text"} a line, for ``pyserini.encode input --corpus FOLDER/corpus --fields title text``.
    topics.json
        {qid: {"title": text}}, for ``pyserini.search.lucene --topics``. The one form that Pyserini reads alike under
        any path (names holding "beir" or "cacm" choose other readers for .tsv) and that keeps every id a string: as
        .tsv, 007 becomes 7, and --remove-query, which compares with strings, removes nothing.
    topics.tsv
        The same as qid, tab, text, for people and other tools.
    qrels.txt
        TREC's four columns.
    counts.json
        The returned counts.

    Only queries that the qrels judge are written; tabs and line ends in a query become spaces.
    Raises DataError for input that breaks the rules, ConfigError where ``folder`` holds something else already.
    """
    if not str(folder).strip() or not Path(os.path.abspath(folder)).name:
        raise ConfigError(f"{str(folder)!r} cannot be an output folder: name a new one")
    folder = Path(os.path.abspath(folder))
    _check_replaceable(folder)
    with written_folder(folder, replace=True) as aside:
        (aside / "corpus").mkdir(parents=True)
        return _write(collection, aside)


def _check_replaceable(folder: Path) -> None:
    if folder.is_dir():
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
        other = sorted(found - set(WRITTEN))
    else:
        other = ["(it is a file)"] if folder.exists() else []
    if other:
        raise ConfigError(
            f"{folder} holds things that are not a collection of ours ({', '.join(other[:3])}): "
            f"choose another output folder"
        )


def _write(collection: Collection, folder: Path) -> Counts:
    judged: dict[str, list[Judgement]] = {}
    for judgement in collection.judgements():
        judged.setdefault(judgement.query, []).append(judgement)
    if not judged:
        raise DataError(f"{collection.name} has no judgements: nothing could be measured")
    topics: dict[str, str] = {}
    for query in collection.queries():
        if query.id in judged:
            text = topic_text(query.text)
            if not text:
                raise DataError(f"{collection.name}: the judged query {query.id} has an empty text")
            topics[query.id] = text
    if not topics:
        raise DataError(f"{collection.name}: none of the {len(judged)} judged queries has a text")
    named = {judgement.document for lines in judged.values() for judgement in lines}
    documents = empty = 0
    with open(folder / CORPUS, "w", encoding="utf-8", newline="\n") as stream:
        for document in collection.documents():
            documents += 1
            empty += not (document.title.strip() or document.text.strip())
            named.discard(document.id)
            stream.write(json.dumps({"id": document.id, "title": document.title, "text": document.text}) + "\n")
    if not documents:
        raise DataError(f"{collection.name} has no documents")
    outside = sum(judgement.document in named for lines in judged.values() for judgement in lines)
    _write_lines(folder / "topics.tsv", (f"{name}\t{text}" for name, text in topics.items()))
    write_json(folder / TOPICS, {name: {"title": text} for name, text in topics.items()})
    _write_lines(
        folder / QRELS,
        (f"{line.query} 0 {line.document} {line.grade}" for lines in judged.values() for line in lines),
    )
    counts = Counts(
        documents=documents,
        empty_documents=empty,
        judged_queries=len(judged),
        queries_without_text=tuple(name for name in judged if name not in topics),
        judgements=sum(map(len, judged.values())),
        judgements_outside=outside,
        sha256=_fingerprint(folder),
    )
    write_json(folder / "counts.json", dataclasses.asdict(counts))
    return counts


def _fingerprint(folder: Path) -> str:
    """Return the SHA-256 of the checksums of what decides a result: corpus, topics, qrels."""
    digest = hashlib.sha256()
    for name in (CORPUS, TOPICS, QRELS):
        with open(folder / name, "rb") as stream:
            digest.update(f"{name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def topic_text(text: str) -> str:
    """Return a query's text as the topics have it: tabs and line ends become spaces."""
    return " ".join(text.replace("\t", " ").splitlines()).strip()


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        for line in lines:
            stream.write(line + "\n")
