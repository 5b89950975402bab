"""What ``python -m pyserini.encode`` reads and writes when the encoder is ours: JSONL in, JSONL of impacts out.

Same formats and the same fields as Pyserini's reader and writer (pyserini/encode/_base.py), whose places these take, with
what they lack: every line is checked before anything is written, errors name file and line, the collection is not held
in memory, and the output gets its name only when it is whole. Corpus-scale encoding is in corpus.py.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pyserini_rescale.collections import json_object, read_lines
from pyserini_rescale.corpora import folder_files
from pyserini_rescale.errors import ConfigError, DataError

BATCHES_AHEAD = 8
"""How many batches are handed to the encoder at once, which sorts them by length."""


def collection_files(corpus: str) -> list[Path]:
    """Return the files of a collection: ``corpus`` itself, or what lies in that folder, in order of name."""
    path = Path(corpus)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"--corpus {corpus}: no such file or folder")
    if (path / "corpus.jsonl").is_file() and (path / "queries.jsonl").is_file():
        raise DataError(f"--corpus {corpus} holds queries too: give {path / 'corpus.jsonl'} itself")
    return folder_files(path)


def _is_id(text: str) -> bool:
    """Whether a run file can hold it: not empty, no white space, control character or half of a surrogate pair."""
    return text.isprintable() and len(text.split()) == 1


def collection_iterator(base: type) -> type:
    """Return a collection iterator with the interface of Pyserini's, ``base``, whose rules for fields it keeps."""

    class CheckedCollectionIterator(base):
        def _load(self, collection_path: str) -> dict[str, Sequence[Any]]:
            """Check every line; return an "id" entry that has nothing but the length the base class asks for."""
            self.files = collection_files(collection_path)
            seen: dict[str, int] = {}
            for path in self.files:
                for where, line in tqdm(read_lines(path), desc=f"checking {path.name}", unit=" documents"):
                    docid, _ = self._parse(where, line)
                    if docid in seen:
                        raise DataError(f"{where}: the id {docid!r} stands in document {seen[docid]} already")
                    seen[docid] = len(seen) + 1
            if not seen:
                raise DataError(f"--corpus {collection_path} holds no document")
            return {"id": range(len(seen))}

        def _parse(self, where: str, line: str) -> tuple[str, list[str | None]]:
            info = json_object(line, where)
            names = [self.docid_field] if self.docid_field else ["id", "_id", "docid"]
            docid = next((info[name] for name in names if info.get(name) is not None), None)
            if docid is None:
                raise DataError(f"{where}: no id (looked for: {', '.join(names)}; --docid-field names another)")
            if isinstance(docid, bool) or not isinstance(docid, (str, int)) or not _is_id(str(docid)):
                raise DataError(f"{where}: the id {docid!r} is not a word or number, a run file could not hold it")
            missing = [name for name in self.fields if name not in info]
            if missing and "contents" not in info:
                has = ", ".join(sorted(info)) or "none"
                raise DataError(f"{where}: no field {missing[0]!r} (it has: {has}); --fields says which to read")
            used = self.fields if not missing else ["contents"]
            for name in used:
                if info[name] is not None and not isinstance(info[name], str):
                    raise DataError(f"{where}: the field {name!r} is {type(info[name]).__name__}, not text")
            values = self._parse_fields_from_info(info, strict=True)
            if len(values) != len(self.fields):
                raise DataError(
                    f"{where}: 'contents' splits into {len(values)} parts, --fields names {len(self.fields)}"
                )
            if "\\u" in line:
                for name, value in zip(self.fields, values, strict=True):
                    if value is not None and not value.isascii():
                        try:
                            value.encode("utf-8")
                        except UnicodeEncodeError:
                            raise DataError(f"{where}: the field {name!r} holds half of a surrogate pair") from None
            return str(docid), values

        def __iter__(self) -> Iterator[dict[str, list[Any]]]:
            if not 0 <= self.shard_id < self.shard_num:
                raise ConfigError(f"--shard-id {self.shard_id} is not one of 0 to {self.shard_num - 1}")
            if self.batch_size < 1:
                raise ConfigError(f"--batch-size {self.batch_size}: 1 or more is needed")
            share = self.size // self.shard_num
            start = self.shard_id * share
            end = self.size if self.shard_id == self.shard_num - 1 else start + share
            at_once = self.batch_size * BATCHES_AHEAD
            chunk: dict[str, list[Any]] = {name: [] for name in ["id", *self.fields]}
            position = 0
            with tqdm(total=end - start, desc="encoding", unit=" documents") as progress:
                for path in self.files:
                    for where, line in read_lines(path):
                        if start <= position < end:
                            docid, values = self._parse(where, line)
                            chunk["id"].append(docid)
                            for name, value in zip(self.fields, values, strict=True):
                                chunk[name].append(value)
                            if len(chunk["id"]) == at_once or position == end - 1:
                                yield chunk
                                progress.update(len(chunk["id"]))
                                chunk = {name: [] for name in chunk}
                        position += 1

    return CheckedCollectionIterator


class VectorWriter:
    """Write {"id", "contents", "vector"} lines to ``embeddings.jsonl``, or one such file per shard.

    The file is written aside and renamed when all of it is there; on an error nothing of it remains.
    """

    def __init__(self, dir_path: str, shard: tuple[int, int], encoder: Any) -> None:
        self.folder = Path(dir_path)
        self.encoder = encoder
        shard_id, shards = shard
        single = "embeddings.jsonl"
        self.path = self.folder / (single if shards == 1 else f"embeddings.shard-{shard_id}-of-{shards}.jsonl")
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"--embeddings {dir_path} is a file: name a folder")
        mine = {single} if shards == 1 else {f"embeddings.shard-{number}-of-{shards}.jsonl" for number in range(shards)}
        others = sorted(entry.name for entry in self.folder.glob("*") if entry.name not in mine)
        if others:
            raise ConfigError(
                f"--embeddings {dir_path} holds {others[0]}, which would be indexed too: name another folder"
            )
        self.count = 0

    def __enter__(self) -> "VectorWriter":
        self.made = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        # Anserini indexes every file of the folder, hidden ones and those of any ending too. So an unfinished one lies
        # beside the folder, unless that is on another disk (a mounted volume), where a rename could not move it.
        beside = self.folder.resolve().parent
        if beside.stat().st_dev != self.folder.stat().st_dev or not os.access(beside, os.W_OK):
            beside = self.folder
        # A name of its own, so that two runs into one folder do not write into each other's.
        self.unfinished = beside / f".{self.folder.name}.{self.path.name}.{uuid.uuid4().hex[:8]}.unfinished"
        self.file = open(self.unfinished, "x", encoding="utf-8")
        return self

    def write(self, batch_info: dict[str, list[Any]], fields: Sequence[str]) -> None:
        """Write one line per document of the batch, whose impacts are under "vector"."""
        for position, (docid, vector) in enumerate(zip(batch_info["id"], batch_info["vector"], strict=True)):
            contents = "\n".join(batch_info[name][position] or "" for name in fields)
            self.file.write(json.dumps({"id": docid, "contents": contents, "vector": vector}) + "\n")
        self.count += len(batch_info["id"])

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.file.close()
            if kind is None:
                os.replace(self.unfinished, self.path)
        finally:
            self.unfinished.unlink(missing_ok=True)
            if not self.path.exists():
                with contextlib.suppress(OSError):  # another shard has put its file there
                    for folder in self.made:
                        folder.rmdir()
        if kind is None:
            empty = self.encoder.empty_count
            note = f", {empty:,} of them empty (Anserini does not index those)" if empty else ""
            tqdm.write(f"{self.count:,} documents encoded into {self.path}{note}")
