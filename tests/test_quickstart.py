"""The quickstart: once from end to end with a few steps, and what it refuses."""

import json

import pytest

from pyserini_rescale.cli import main
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.quickstart import pipeline


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="holds other things"):
        pipeline.run(pipeline.Options(work=tmp_path), print)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_bad_options_are_one_line(tmp_path, capsys):
    assert main(["quickstart", "--work", str(tmp_path / "w"), "--workers", "0"]) == 2
    assert capsys.readouterr().err.strip() == "error: --workers 0: 1 or more is needed"
    assert not (tmp_path / "w").exists()


@pytest.mark.slow
@pytest.mark.jvm
def test_all_of_it_with_a_few_steps_twice(tmp_path, capsys):
    work = tmp_path / "encoder"  # a name that pyserini.encode takes for a word of its own when it stands alone
    options = ["quickstart", "--work", str(work), "--set", "max_steps=3", "--set", "monitors.every=1"]
    assert main([*options, "--workers", "2"]) == 0
    captured = capsys.readouterr()
    for part in ("k = 1, standard SPLADE", "k as suggested", "offset as suggested", "BM25", "MS MARCO", str(work)):
        assert part in captured.out
    result = json.loads((work / "quickstart.json").read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert rows["k1"]["k"] == 1 and rows["auto-k"]["k"] > 1 and rows["auto-offset"]["offset"] > 0
    assert rows["k1"]["document_terms"][0] > 10 * rows["auto-offset"]["document_terms"][0]
    assert rows["k1"]["row_norm"] == pytest.approx(rows["auto-k"]["row_norm"] * rows["auto-k"]["k"], rel=1e-3)
    assert result["counts"]["documents"] >= 2500 and result["bm25"]["RR@10"] > 0.2
    assert (work / "loss.png").stat().st_size > 10_000
    assert main([*options, "--workers", "1"]) == 0
    again = capsys.readouterr()
    assert again.err.count("up to date") == 18 and "started" not in again.err
