"""Texts that every machine has: docstrings, as pairs of a first sentence (query) and the rest (document).

``read_passages`` reads the running Python's standard library, which is the test collection ``docstrings``;
``read_installed`` reads packages that come with this one, which its training pairs are made of. The sources are read
with ast, nothing is imported; the same Python and packages give the same passages.

Left out of the library: tests, idlelib and turtledemo (applications), encodings and pydoc_data (tables), lib2to3 and what
ensurepip bundles, and site-packages. A docstring counts if its first sentence has 4 words or more and its rest 5 or
more; where two rests are equal, the first stays.
"""

import ast
import importlib.util
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pyserini_rescale.errors import DataError

LEFT_OUT = {
    "site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "encodings", "pydoc_data", "lib2to3",
    "ensurepip",
}  # fmt: skip
INSTALLED = ("numpy", "pandas", "scipy", "sklearn", "sympy", "networkx", "matplotlib", "torch")
"""Packages whose docstrings are training pairs: all of them come with ours, so every user has them."""

FEWEST = 100
_QUERY_WORDS, _DOCUMENT_WORDS = 4, 5
# The end of a first sentence: a full stop and white space, or an empty line.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_RULE = "---"  # under a heading: the docstring begins with a table of parameters
_WORD = re.compile(r"[a-z0-9_]+")
_WINDOW = 8


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
    found = _distinct(_passages(library, library.rglob("*.py")))
    if len(found) < FEWEST:
        raise DataError(
            f"only {len(found)} docstrings in {library}: this Python comes without the sources of its library; "
            f"use another one"
        )
    return found


def read_installed(packages: Iterable[str] = INSTALLED, hidden: Iterable[Passage] = ()) -> list[Passage]:
    """Return the passages of installed packages, those that share words with ``hidden`` (see ``Overlap``) left out.

    Raises DataError where there are too few.
    """
    passages: list[Passage] = []
    missing = []
    for package in packages:
        spec = importlib.util.find_spec(package)  # wherever it would be imported from; nothing is
        if spec is None or not spec.submodule_search_locations:
            missing.append(package)
        else:
            home = Path(spec.submodule_search_locations[0])
            passages += _passages(home.parent, home.rglob("*.py"))
    overlap = Overlap(text for passage in hidden for text in (passage.query, passage.text))
    found = [passage for passage in _distinct(passages) if not overlap.with_text(passage.query, passage.text)]
    if len(found) < FEWEST:
        raise DataError(f"only {len(found)} docstrings in the installed packages (not there: {', '.join(missing)})")
    return found


class Overlap:
    """Whether a text holds words of others: one of them word by word, or 8 words in a row from its beginning."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._whole: set[str] = set()
        self._starts: set[str] = set()
        for text in texts:
            words = _WORD.findall(text.lower())
            self._whole.add(" ".join(words))
            if len(words) >= _WINDOW:
                self._starts.add(" ".join(words[:_WINDOW]))

    def with_text(self, *texts: str) -> bool:
        """Return whether any of ``texts`` overlaps."""
        for text in texts:
            words = _WORD.findall(text.lower())
            if " ".join(words) in self._whole:
                return True
            windows = (" ".join(words[start : start + _WINDOW]) for start in range(len(words) - _WINDOW + 1))
            if any(window in self._starts for window in windows):
                return True
        return False


def _passages(root: Path, files: Iterable[Path]) -> Iterator[Passage]:
    for file in sorted(file for file in files if file.is_file()):  # folders and dead links have such names too
        relative = file.relative_to(root)
        if LEFT_OUT & set(relative.parts):
            continue
        module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        try:
            source = file.read_bytes()
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}") from None
        for name, docstring in docstrings_of(source, module):
            parts = _SENTENCE_END.split(docstring, maxsplit=1)
            if len(parts) == 2:
                query, text = (" ".join(part.split()) for part in parts)
                long_enough = len(query.split()) >= _QUERY_WORDS and len(text.split()) >= _DOCUMENT_WORDS
                if long_enough and _RULE not in query:
                    yield Passage(name, query, text)


def _distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Return the first passage of each text and of each id (overloads share a name)."""
    texts: set[str] = set()
    ids: set[str] = set()
    found = []
    for passage in passages:
        if passage.text not in texts and passage.id not in ids:
            found.append(passage)
        texts.add(passage.text)
        ids.add(passage.id)
    return found


def docstrings_of(source: bytes, module: str) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, docstring) of a module's source; nothing if it is no source to this Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes that are invalid in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # templates, files of other Pythons, vast literals
        return
    yield from _docstrings(tree, module)


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    docstring = ast.get_docstring(node)  # type: ignore[arg-type]
    if docstring:
        yield name, docstring
    for child in node.body:  # type: ignore[attr-defined]
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _docstrings(child, f"{name}.{child.name}")
