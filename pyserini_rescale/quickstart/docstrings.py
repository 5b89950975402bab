"""A small test collection out of the docstrings of the running Python's standard library.

Query: the first sentence of a docstring. Relevant document: the rest of it. The sources are read with ast, nothing is
imported; the same Python gives the same collection. About 3,000 documents with Python 3.11 to 3.13.

Left out: tests, idlelib and turtledemo (applications), encodings and pydoc_data (tables), lib2to3 and what ensurepip
bundles, and site-packages. A docstring counts if its first sentence has 4 words or more and its rest 5 or more; where
two rests are equal, the first stays.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyserini_rescale.collections import Collection, Document, Judgement, Query
from pyserini_rescale.errors import DataError

LEFT_OUT = {
    "site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "encodings", "pydoc_data", "lib2to3",
    "ensurepip",
}  # fmt: skip
_QUERY_WORDS, _DOCUMENT_WORDS = 4, 5
# The end of a first sentence: a full stop and white space, or an empty line.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")


class Passage(NamedTuple):
    """One docstring: ``id`` is module.class.function."""

    id: str
    query: str
    text: str


def read_passages(library: Path | None = None) -> list[Passage]:
    """Return the passages of a folder of Python sources (default: this Python's standard library), sorted by file.

    Raises DataError where there are too few: some systems ship the library compiled, or zipped.
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    passages: dict[str, Passage] = {}  # by text
    for file in sorted(library.rglob("*.py")):
        relative = file.relative_to(library)
        if LEFT_OUT & set(relative.parts):
            continue
        module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # templates and files of other Pythons: not source to this one
            continue
        for name, docstring in _docstrings(tree, module):
            parts = _SENTENCE_END.split(docstring, maxsplit=1)
            if len(parts) == 2:
                query, text = (" ".join(part.split()) for part in parts)
                if len(query.split()) >= _QUERY_WORDS and len(text.split()) >= _DOCUMENT_WORDS:
                    passages.setdefault(text, Passage(name, query, text))
    unique = {passage.id: passage for passage in reversed(passages.values())}  # overloads share a name: the first stays
    found = [passage for passage in passages.values() if unique[passage.id] is passage]
    if len(found) < 100:
        raise DataError(
            f"only {len(found)} docstrings in {library}: this Python comes without the sources of its library; "
            f"use another one"
        )
    return found


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    docstring = ast.get_docstring(node)  # type: ignore[arg-type]
    if docstring:
        yield name, docstring
    for child in node.body:  # type: ignore[attr-defined]
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _docstrings(child, f"{name}.{child.name}")


def as_collection(passages: list[Passage], queries: int) -> Collection:
    """Return all passages as documents, and about ``queries`` first sentences, evenly spaced, as judged queries.

    A query that begins several docstrings has them all as relevant documents.
    """
    step = max(1, len(passages) // queries)
    chosen: dict[str, str] = {}  # query text -> query id
    for passage in passages[::step]:
        chosen.setdefault(passage.query, passage.id)

    def judgements() -> Iterator[Judgement]:
        for passage in passages:
            if passage.query in chosen:
                yield Judgement(chosen[passage.query], passage.id, 1)

    return Collection(
        name="docstrings",
        documents=lambda: (Document(passage.id, "", passage.text) for passage in passages),
        queries=lambda: (Query(name, text) for text, name in chosen.items()),
        judgements=judgements,
    )
