"""The texts that a head is looked at with: a file of the user's, or a built-in handful of English pairs.

A file of plain text has one text a line. A JSONL file (``.jsonl``, ``.ndjson``, or .json) has one object a line: a pair
{"query", "passage"} or {"query", "positive"}, with a hard "negative" if you like, or a single {"text"}, with a "title"
if you like, as in a BEIR corpus. Either may be gzipped. Lines end at newline characters only; blank lines are no texts.

Single texts have no query. For the figures that need one, a text's first half is taken for the query of its second
half, as the inverse cloze task does with sentences (arXiv 1906.00300): words in common, unlike a query and its passage,
but enough to see whether scores tell texts apart at all.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyserini_rescale.collections import json_object, read_lines
from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.model.builtin_pairs import PAIRS

BUILTIN = "builtin"
LIMIT = 128
"""Lines that are read when nothing else is said: as many candidates as the paper's batch of 64 pairs has."""

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts of one source.

    source: the file, or "builtin". documents: what the share of active terms is measured on (single texts; passages and
    negatives of pairs). queries, passages: as many of each, query i belongs to passage i. negatives: further passages
    that belong to no query. halved: the pairs are halves of single texts. left_out: lines that only repeat a query or a
    passage, which would make a matching passage count as a wrong one.
    """

    source: str
    documents: tuple[str, ...]
    queries: tuple[str, ...]
    passages: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    halved: bool = False
    left_out: int = 0

    def describe(self) -> str:
        """Return one line about the source."""
        if self.source == BUILTIN:
            return f"{len(self.queries)} built-in English query-passage pairs"
        kind = f"{len(self.documents)} texts" if self.halved else f"{len(self.queries)} query-passage pairs"
        more = f" with {len(self.negatives)} hard negatives" if self.negatives else ""
        halves = ", each one's first half as the query for its second" if self.halved else ""
        repeats = f" ({self.left_out} that repeat a query or passage left out)" if self.left_out else ""
        return f"{kind}{more} of {self.source}{halves}{repeats}"


def builtin_texts() -> Texts:
    """Return the built-in pairs."""
    queries, passages = zip(*PAIRS, strict=True)
    return Texts(source=BUILTIN, documents=passages, queries=queries, passages=passages)


def read_texts(source: str, limit: int = LIMIT) -> Texts:
    """Return the first ``limit`` texts or pairs of the file ``source``, or the built-in pairs for the name "builtin".

    Raises DataError for a file that is missing, empty, not UTF-8, or has a line that is not as the module says (named
    by its number), ConfigError for a limit below 1.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ConfigError(f"a limit of {limit} texts cannot be used: it is a whole number above 0")
    if source == BUILTIN:
        return builtin_texts()
    path = Path(source)
    lines = _lines(path, limit)
    if not lines:
        raise DataError(f"{path} holds no text: one text a line is needed, or JSONL with query and passage")
    if Path(path.name.removesuffix(".gz")).suffix not in _JSON_SUFFIXES:
        return _singles(source, [text for _, text in lines])
    records = [_record(where, line) for where, line in lines]
    kinds = {"query" in record for record in records}
    if len(kinds) == 2:
        raise DataError(f"{path} mixes pairs and single texts: give one kind")
    if not kinds.pop():
        return _singles(source, [record["text"] for record in records])
    return pairs_of(source, records)


def _lines(path: Path, limit: int) -> list[tuple[str, str]]:
    """Return (where it stands, line) of the first ``limit`` lines that are not blank."""
    stripped = ((where, line.strip()) for where, line in read_lines(path))
    return list(itertools.islice((pair for pair in stripped if pair[1]), limit))


def _record(where: str, line: str) -> dict[str, str]:
    """Return {"query", "passage"[, "negative"]} or {"text"} of a JSONL line."""
    info = json_object(line, where)
    if "query" not in info:
        title, text = _text(where, info, "title", needed=False), _text(where, info, "text")
        return {"text": f"{title} {text}" if title else text}
    record = {
        "query": _text(where, info, "query"),
        "passage": _text(where, info, "passage" if "passage" in info else "positive"),
    }
    if negative := _text(where, info, "negative", needed=False):
        record["negative"] = negative
    return record


def _text(where: str, info: dict[str, Any], name: str, needed: bool = True) -> str:
    value = info.get(name)
    if value is None and not needed:
        return ""
    if value is None:
        has = ", ".join(sorted(map(str, info))) or "none"
        raise DataError(f"{where}: no field {name!r} (it has: {has}); give query and passage, or text")
    if not isinstance(value, str):
        raise DataError(f"{where}: the field {name!r} is {type(value).__name__}, not text")
    if needed and not value.strip():
        raise DataError(f"{where}: the field {name!r} is empty")
    return value.strip()


def _singles(source: str, texts: list[str]) -> Texts:
    halves = []
    for text in dict.fromkeys(texts):
        words = text.split()
        if len(words) > 1:
            middle = len(words) // 2
            halves.append((" ".join(words[:middle]), " ".join(words[middle:])))
    kept, left_out = _distinct(halves)
    return Texts(
        source=source,
        documents=tuple(texts),
        queries=tuple(query for query, _ in kept),
        passages=tuple(passage for _, passage in kept),
        halved=True,
        left_out=left_out,
    )


def pairs_of(source: str, records: Sequence[Mapping[str, str]]) -> Texts:
    """Return the texts of records with "query", "passage" and perhaps "negative", all of them texts with words."""
    pairs = [(record["query"], record["passage"]) for record in records]
    kept, left_out = _distinct(pairs)
    passages = tuple(passage for _, passage in kept)
    wrong = dict.fromkeys(record["negative"] for record in records if "negative" in record)
    negatives = tuple(negative for negative in wrong if negative not in passages)
    return Texts(
        source=source,
        documents=passages + negatives,
        queries=tuple(query for query, _ in kept),
        passages=passages,
        negatives=negatives,
        left_out=left_out,
    )


def _distinct(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], int]:
    """Return the pairs whose query and passage are both new, and how many are not."""
    queries: set[str] = set()
    passages: set[str] = set()
    kept = []
    for query, passage in pairs:
        if query not in queries and passage not in passages:
            kept.append((query, passage))
            queries.add(query)
            passages.add(passage)
    return kept, len(pairs) - len(kept)
