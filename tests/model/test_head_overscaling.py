"""The page's figures are what its script measures; the script writes between its markers and nowhere else."""

import re
import sys
from pathlib import Path

import pytest

from tests.model.head_models import overscaling

PAGE = Path(__file__).parents[2] / "docs" / "head.md"


def rows_of(page: str) -> dict[tuple[str, str, int], list[float]]:
    """Return (backbone, variant, table) -> per cent for each k; "< 0.01" counts as 0."""
    found = {}
    for part, table in enumerate(re.split(r"\| backbone \|", page)[1:]):
        for line in table.splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            if len(cells) != 2 + len(overscaling.FACTORS):
                break
            found[cells[0], cells[1], part] = [0.0 if cell.startswith("<") else float(cell) for cell in cells[2:]]
    return found


@pytest.mark.parametrize("name", ["RoBERTa-base", "ModernBERT-base"])
def test_the_page_says_what_the_script_measures(name, monkeypatch):
    page = rows_of(PAGE.read_text(encoding="utf-8"))
    at = overscaling.FACTORS.index(16)
    monkeypatch.setattr(overscaling, "FACTORS", (16,))
    measured = overscaling.movements(overscaling.build(name), overscaling.random_sequences())
    for (variant, k), both in measured.items():
        for part, seen in enumerate(both):
            assert page[name, variant, part][at] == pytest.approx(100 * seen, rel=0.1, abs=0.01), (variant, k, part)


def test_every_backbone_and_variant_is_on_the_page():
    page = rows_of(PAGE.read_text(encoding="utf-8"))
    assert {
        (name, variant, part) for name in overscaling.PUBLISHED for variant in overscaling.VARIANTS for part in (0, 1)
    } <= set(page)


def test_the_script_writes_between_its_markers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(overscaling, "published_tables", lambda: "TABLES")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{overscaling.BEGIN}\nold\n{overscaling.END}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["overscaling.py", "--write", str(page)])
    assert overscaling.main() == 0
    assert page.read_text() == f"before\n{overscaling.BEGIN}\n\nTABLES\n\n{overscaling.END}\nafter\n"
    page.write_text("no markers\n")
    assert overscaling.main() == 2 and page.read_text() == "no markers\n" and "lacks" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["overscaling.py"])
    assert overscaling.main() == 0 and capsys.readouterr().out == "TABLES\n"


def test_the_script_on_a_checkpoint(splade_tiny, monkeypatch):
    monkeypatch.setattr(overscaling, "FACTORS", (16,))
    text = overscaling.checkpoint_tables(splade_tiny)
    assert "| splade-tiny | shared | 72 |" in text and "| shared | 16 | 59 / 157 |" in text
