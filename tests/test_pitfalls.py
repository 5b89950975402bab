"""docs/pitfalls.md: every entry names a test, and every test that it names is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "pitfalls.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def unknown(text: str) -> list[str]:
    """Return the tests that a page names and that are not there."""
    found = [(file, name) for file, name in NAMED.findall(text)]
    return [
        f"{file}::{name}" for file, name in found if not (ROOT / file).is_file() or name not in names_in(ROOT / file)
    ]


def test_every_test_that_is_named_is_there():
    assert unknown(PAGE.read_text(encoding="utf-8")) == []


def test_a_test_that_is_not_there_is_found():
    assert unknown("`tests/test_pitfalls.py::test_gone` `tests/gone.py::test_x`") == [
        "tests/test_pitfalls.py::test_gone", "tests/gone.py::test_x",
    ]  # fmt: skip


def test_every_entry_names_a_test():
    _, *entries = PAGE.read_text(encoding="utf-8").split("\n- ")
    assert len(entries) > 60
    assert [entry[:60] for entry in entries if not NAMED.search(entry)] == []
    assert PAGE.read_text(encoding="utf-8").count("`tests/") - len(NAMED.findall(PAGE.read_text(encoding="utf-8"))) == 2
