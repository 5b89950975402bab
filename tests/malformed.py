"""Malformed files: what may be wrong with a file of a form, whatever it means. What reads files is listed in readers.py."""

import copy
import dataclasses
import gzip
import itertools
import json
import random
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

# Values of JSON that stand where another one is expected. _RAW is JSON, or nearly, that no value of Python writes.
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2.5, 10**30, "", " ", "a b", "x\u2028y", "\x00", "\ud800", "007", [], ["x"], [[["x"]]], {}, {"a": {"b": []}},
)  # fmt: skip
_RAW = {
    "NaN": "NaN", "infinity": "-Infinity", "1e999": "1e999", "5,000 digits": "9" * 5000, "deep": "[" * 100_000,
    "deep objects": '{"a":' * 100_000, "key twice": '{"a": 1, "a": 2}',
}  # fmt: skip
_MARK = "\x01raw\x01"

_YAML = {
    "list as key": "? [a, b]\n: 1\n", "table as key": "{a: b}: 1\n", "key twice": "a: 1\na: 2\n", "no table": "- 1\n",
    "a word": "word\n", "a tag": "a: !!python/object/apply:os.getcwd []\n", "another tag": "a: !unknown 1\n",
    "a recursive anchor": "a: &x [*x]\n", "an unknown anchor": "a: *x\n", "merge": "<<: 5\na: 1\n", "a merged list": "<<: [1, 2]\n",
    "two documents": "a: 1\n---\nb: 2\n", "a tab": "a:\n\t- 1\n", "a control character": "a: \x07\n", "cut": "a: {b: [1,\n",
    "deep": "a: " + "[" * 1_000, "a date": "2020-01-01: 1\n", "an impossible date": "a: 2020-99-99\n", "null key": "~: 1\n",
    "a number as key": "1: 1\n", "true as key": "yes: 1\n", "binary": "a: !!binary '%%'\n", "a set": "!!set {a, b}\n",
    "a table that holds itself": "&a\nb: *a\n", "pairs": "!!pairs [a: 1]\n", "omap": "!!omap [1, 2]\n", "a float": "a: !!float x\n",
    "bomb": "a: &a [x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise("abcdefghijkl")
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Reader:
    """``read`` takes the folder that holds ``files``, of which ``broken`` (a path in it) is replaced; a list that it returns
    is what was read, line by line.

    form: of that file: jsonl, rows (columns), json, yaml, binary or gz (of lines). lines: whether an error has to name the line.
    quiet: damage is no error to it, by intention. header: lines that are no rows. halves: a last line that
    was written half counts for nothing. beside: what an error may name in its place. says: the one error that the file itself
    may ask for, which is no fault. most: cases of each kind in the quick test.
    """

    name: str
    files: Mapping[str, str | bytes]
    read: Callable[[Path], Any]
    form: str
    broken: str = ""
    lines: bool = True
    quiet: bool = False
    header: int = 0
    halves: bool = False
    beside: str | None = None
    says: str | None = None
    most: int = 10

    @property
    def path(self) -> str:
        return self.broken or next(iter(self.files))

    @property
    def content(self) -> bytes:
        found = self.files[self.path]
        return found.encode() if isinstance(found, str) else found

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


@dataclasses.dataclass(frozen=True)
class Broken:
    """kind: what was done. line: the one that is bad, from 1; None where that cannot be said."""

    kind: str
    content: bytes
    line: int | None = None


def breakages(reader: Reader, rest: bool = False) -> Iterator[Broken]:
    """Yield broken contents for a reader's file: ``reader.most`` of each kind, always the same, or all the others."""
    content = reader.content
    if reader.form == "gz":
        plain = gzip.decompress(content)
        families = [
            _cut(content, "gzip cut"),
            _flipped(content),
            [Broken("no gzip", plain), Broken("rest", content + b"\0x")],
        ]
    else:
        families = [_cut(content), _flipped(content), list(_whole(content))]
    if reader.form in ("jsonl", "rows"):
        families.append(list(_lines(content)))
    if reader.form == "jsonl":
        families.append([one for at in range(content.count(b"\n")) for one in _json_line(content, at)])
    if reader.form == "json":
        families.append(
            [Broken(kind, text.encode("utf-8", "surrogatepass")) for kind, text in _json(json.loads(content))]
        )
    if reader.form == "yaml":
        families.append(list(_yaml(content)))
    for family in families:
        some = random.Random(reader.name).sample(range(len(family)), min(reader.most, len(family)))
        yield from (one for at, one in enumerate(family) if (at in some) != rest)


def _cut(content: bytes, kind: str = "cut") -> list[Broken]:
    return [Broken(f"{kind} at {at}", content[:at]) for at in range(len(content))]


def _flipped(content: bytes) -> list[Broken]:
    chance = random.Random(0)
    found = []
    for _ in range(200):
        at, byte = chance.randrange(len(content)), chance.choice(b'\0\x80\xff\n\t "[]{}:,-0a\\')
        found.append(Broken(f"byte {at} is {byte}", content[:at] + bytes([byte]) + content[at + 1 :]))
    return found


def _whole(content: bytes) -> Iterator[Broken]:
    yield Broken("empty", b"")
    yield Broken("a line end", b"\n")
    yield Broken("white space", b" \t ")
    yield Broken("NUL", b"\0" * 100)
    yield Broken("Latin-1", b'{"a": "\xe9"}\n')
    yield Broken("ends in Latin-1", content + b"\xe9\n")
    yield Broken("UTF-16", content.decode("utf-8", "replace").encode("utf-16"))
    yield Broken("BOM", b"\xef\xbb\xbf" + content)
    yield Broken("two BOMs", b"\xef\xbb\xbf" * 2 + content)
    yield Broken("CRLF", content.replace(b"\n", b"\r\n"))
    yield Broken("CR", content.replace(b"\n", b"\r"))
    yield Broken("twice", content * 2)
    yield Broken("deep", b"[" * 100_000)
    yield Broken("one number", b"9" * 5_000)
    yield Broken("garbage", random.Random(1).randbytes(300))


def _lines(content: bytes) -> Iterator[Broken]:
    """Yield contents with one line that is none of its form."""
    lines = content.splitlines(keepends=True)
    odd = {
        "empty": b"\n", "white space": b" \n", "NUL": b"\0\n", "not UTF-8": b"\xff\n", "U+2028": "\u2028\n".encode(), "null": b"null\n",
        "a list": b"[]\n", "a word": b'"x"\n', "an object": b"{}\n", "deep": b"[" * 100_000 + b"\n", "tabs": b"\t" * 50 + b"\n",
        "spaces": b" x" * 50 + b"\n",
    }  # fmt: skip
    for at in range(len(lines)):
        for kind, line in odd.items():
            yield Broken(f"line {at + 1} is {kind}", b"".join([*lines[:at], line, *lines[at:]]), at + 1)
        yield Broken(f"line {at + 1} twice", b"".join([*lines[: at + 1], *lines[at:]]))


def _json_line(content: bytes, at: int) -> Iterator[Broken]:
    lines = content.splitlines(keepends=True)
    for kind, text in _json(json.loads(lines[at])):
        line = text.encode("utf-8", "surrogatepass") + b"\n"
        yield Broken(f"line {at + 1}: {kind}", b"".join([*lines[:at], line, *lines[at + 1 :]]), at + 1)


def _json(value: Any) -> Iterator[tuple[str, str]]:
    """Yield (what was done, JSON) of a value with one thing in it that is another."""
    for kind, changed in changes(value, (*_VALUES, *(f"{_MARK}{raw}" for raw in _RAW))):
        raw = next((name for name in _RAW if json.dumps(f"{_MARK}{name}") in json.dumps(changed)), None)
        text = json.dumps(changed)
        if raw is not None:
            text = text.replace(json.dumps(f"{_MARK}{raw}"), _RAW[raw])
        yield kind.replace(_MARK, ""), text
    if isinstance(value, dict) and value:
        name = next(iter(value))
        text = json.dumps(value)
        yield f"{name} twice", "{" + json.dumps(name) + ": 0, " + text[1:]


def changes(value: Any, odd: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yield (what was done, the value with one part replaced, left out or added)."""
    called = [reprlib.repr(other) for other in odd]
    for path in _paths(value):
        where = ".".join(map(str, path)) or "all"
        for name, other in zip(called, odd, strict=True):
            yield f"{where} is {name}", _replaced(value, path, other)
        if path:
            changed = copy.deepcopy(value)
            del _at(changed, path[:-1])[path[-1]]
            yield f"no {where}", changed
        if isinstance(_at(value, path), dict):
            yield f"{where} has more", _replaced(value, path, {**_at(value, path), "surprise": 1})


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    yield ()
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        for path in _paths(one):
            yield (key, *path)


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    changed = copy.deepcopy(value)
    _at(changed, path[:-1])[path[-1]] = other
    return changed


def _yaml(content: bytes) -> Iterator[Broken]:
    for kind, text in _YAML.items():
        yield Broken(kind, text.encode())
        yield Broken(f"begins with {kind}", text.encode() + content)
        yield Broken(f"ends with {kind}", content + text.encode())
    for kind, changed in changes(yaml.safe_load(content), (*_VALUES, float("nan"), float("inf"), _bomb())):
        yield Broken(kind, yaml.dump(changed).encode("utf-8", "surrogatepass"))


def _bomb() -> list[Any]:
    """Return a list that is small in memory, and in YAML, and nowhere else."""
    bomb: list[Any] = ["x"]
    for _ in range(12):
        bomb = [bomb] * 9
    return bomb


# What no content can be


def places(path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield (what lies in the file's place, how to put it there); the path has to be free each time."""
    yield "nothing", lambda: None
    yield "a folder", path.mkdir
    yield "a link to itself", lambda: path.symlink_to(path)  # no user may read it, root neither
    yield "a link to nothing", lambda: path.symlink_to(path.with_name("nothing"))
