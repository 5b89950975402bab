"""scripts/reference.py: the pages are what the code says, and a key without a meaning is told."""

import importlib.util
import shutil
from pathlib import Path

import pydantic
import pytest

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.plugin import patches
from pyserini_rescale.regression.spec import CollectionSpec, ModelSpec, SuiteSpec
from pyserini_rescale.train.config import TrainConfig

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


def test_the_pages_of_this_checkout_are_what_they_would_be(capsys):
    assert reference.main(["--check"]) == 0, capsys.readouterr().out


def test_pages_that_are_out_of_date_are_told_and_written_anew(tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "docs" / "plugin.md", tmp_path)
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    (tmp_path / "yaml.md").write_text("old")
    assert reference.main(["--check"]) == 1 and "yaml.md is out of date" in capsys.readouterr().out
    assert (tmp_path / "yaml.md").read_text() == "old"
    assert reference.main([]) == 0 and reference.main(["--check"]) == 0
    assert (tmp_path / "yaml.md").read_text() == (ROOT / "docs" / "yaml.md").read_text()
    (tmp_path / "plugin.md").write_text("no place")
    assert reference.main([]) == 2 and "has no place" in capsys.readouterr().err


@pytest.mark.parametrize("model", [TrainConfig, CollectionSpec, ModelSpec, SuiteSpec])
def test_every_key_is_on_the_page_with_a_meaning_and_a_link_that_leads_somewhere(model):
    page = (ROOT / "docs" / "yaml.md").read_text()
    seen, ahead = set(), [model]
    while ahead:
        one = ahead.pop()
        part = page.split(f"### {one.__name__}\n")[1].split("\n#")[0]
        for name, field in one.model_fields.items():
            row = next(line for line in part.splitlines() if line.startswith(f"| `{name}` |"))
            assert row.rstrip(" |").split(" | ")[-1].strip(), row
            inner = [section for section in reference.sections(field.annotation) if section not in seen]
            assert all(f"(#{section.__name__.lower()})" in row for section in inner)
            seen |= set(inner)
            ahead += inner


def test_keys_of_files_that_are_no_section_are_told_of():
    page = (ROOT / "docs" / "yaml.md").read_text()
    for key in ("extends", "variants", "shared", "models", "collections", "variants_of"):
        assert f"`{key}" in page, key


def test_meanings_begin_at_lines_and_behind_full_stops():
    class Section(pydantic.BaseModel):
        """What it is. one: the first (see two: no). two, three:
        both of them; a | b.

        More of the section, two: not a key here.

        four: the last.
        """

        one: int
        two: int
        three: int
        four: int = 4

    about, found = reference.meanings(Section)
    assert about == "What it is. More of the section, two: not a key here"
    assert found == {
        "one": "the first (see two: no)", "two": "both of them; a \\| b", "three": "both of them; a \\| b", "four": "the last",
    }  # fmt: skip


def test_a_key_without_a_meaning_is_told():
    class Inner(pydantic.BaseModel):
        """Something."""

    class Section(pydantic.BaseModel):
        """A section. told: a key."""

        told: int
        untold: int
        inner: Inner

    with pytest.raises(ConfigError, match="Section does not say what untold means"):
        reference.meanings(Section)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int | None, "integer or null"),
        (list[str], "list of texts"),
        (dict[str, int], "table, each integer"),
        (float | bool, "number or true or false"),
    ],
)
def test_types_in_words(annotation, words):
    assert reference.type_of(pydantic.TypeAdapter(annotation).json_schema()) == words


def test_every_patch_is_on_the_page_with_its_reason(monkeypatch):
    page = (ROOT / "docs" / "plugin.md").read_text()
    for module in [*patches.PATCHES, *patches.MAINS]:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{module}` |"))
        assert "Fact" in row, module

    def undocumented(inner, module): ...

    monkeypatch.setitem(patches.PATCHES, "pyserini.new", undocumented)
    with pytest.raises(ConfigError, match="undocumented does not say"):
        list(reference.patch_lines())
