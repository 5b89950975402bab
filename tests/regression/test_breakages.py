"""Breaking any one thing makes ``verify`` fail and name it, also where no record of ours lies beside a run."""

import json
import shutil

import pytest

from pyserini_rescale import yaml_files

from .conftest import COUNTS, MEASURED, write_specs
from .test_runner import command


def no_records(toys) -> None:
    """Make the files look like ones that others made."""
    shutil.rmtree(toys / "work" / "records")
    (toys / "work" / "queries.json").unlink()
    (toys / "work" / "statistics.json").unlink()


@pytest.fixture
def loose(toys):
    """Figures that a small breakage does not move, so that something else has to tell."""
    measures = {name: 0.5 for name in MEASURED}
    write_specs(toys, measures, {"documents": COUNTS["documents"]})
    path = toys / "specs" / "models" / "tiny.yaml"
    path.write_text(path.read_text().replace("tolerance: 0.001", "tolerance: 1.0"))
    assert command(toys, "run") == 0
    return toys


@pytest.mark.parametrize("step", [0.01, -0.01])
@pytest.mark.parametrize("name", list(MEASURED))
def test_a_measure_that_changes_by_a_hundredth(toys, capsys, name, step):
    command(toys, "run")
    write_specs(toys, {**MEASURED, name: MEASURED[name] + step})
    capsys.readouterr()
    assert command(toys, "verify") == 1
    failed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith("FAIL")]
    assert failed == [name, "toys.tiny:"]


def test_a_run_cut_short(loose, capsys):
    no_records(loose)
    path = loose / "work" / "run.txt"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("q2 Q0 d1 ")))  # one of q2's two hits
    assert command(loose, "verify") == 1
    assert "problem: the run has too few hits: q2 (1 of 2 or more)" in capsys.readouterr().out


def test_a_query_that_the_run_lacks(loose, capsys):
    no_records(loose)
    path = loose / "work" / "run.txt"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("q1")))
    assert command(loose, "verify") == 1
    assert "problem: the run lacks queries that have hits: q2" in capsys.readouterr().out


def test_a_document_that_the_index_lacks(loose, capsys):
    no_records(loose)
    path = loose / "work" / "index" / "embeddings.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert command(loose, "verify") == 1
    assert "problem: the index has 2 documents, the vectors have 3" in capsys.readouterr().out


def test_another_quantiser_on_the_query_side_of_a_run_made_elsewhere(loose, capsys, monkeypatch):
    """Twice the impacts give the same ranking, and so the same measures: only the scores can tell."""
    monkeypatch.setenv("FAKE_BREAK", "quantiser")
    assert command(loose, "run", "--stages", "search", "--force") == 0
    monkeypatch.delenv("FAKE_BREAK")
    no_records(loose)
    capsys.readouterr()
    assert command(loose, "verify") == 1
    out = capsys.readouterr().out
    assert "problem: scores are not those of the vectors, so another quantiser, model or index was searched with" in out
    assert "20 in the run, 10 by the vectors" in out


def test_another_quantiser_in_the_model_after_the_documents_were_encoded(loose, capsys):
    config = loose / "models" / "tiny" / "config.json"
    config.write_text(json.dumps({"splade_rescale": {"k": 16, "scope": "shared", "quant_range": 512}}))
    assert command(loose, "run", "--stages", "search,queries") == 0
    capsys.readouterr()
    assert command(loose, "verify") == 1
    said = "problem: stage search: {model} is not the one that stage encode used (config.json)"
    assert said in capsys.readouterr().out


def test_a_stale_run(loose, capsys):
    """The corpus changes, encode and index follow, the run is left."""
    corpus = loose / "data" / "toys" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("brick", "stone"))
    assert command(loose, "run", "--stages", "collection,encode,index,statistics") == 0
    capsys.readouterr()
    assert command(loose, "verify") == 1
    assert "problem: stage search: {work}/index has changed since" in capsys.readouterr().out


def test_an_unknown_key(loose, capsys):
    path = loose / "specs" / "models" / "tiny.yaml"
    path.write_text(path.read_text() + "colour: red\n")
    assert command(loose, "verify") == 2
    assert "models/tiny.yaml: colour: unknown key" in capsys.readouterr().err


def test_nothing_broken_is_ok_without_records_too(loose):
    no_records(loose)
    assert command(loose, "verify") == 0


# Failed models are results


def test_a_model_without_any_term_scores_0(toys, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_BREAK", "empty")
    figures = dict.fromkeys(MEASURED, 0.0)
    write_specs(toys, figures, {"documents": 0, "empty_vectors": 4, "unretrieved_queries": 2, "run_lines": 0})
    assert command(toys, "run") == 0
    out = capsys.readouterr().out
    assert "note: every vector is empty: there was nothing to search, every query scores 0" in out
    record = json.loads((toys / "work" / "records" / "search.json").read_text())
    assert "pyserini_rescale.regression.empty_run" in record["command"]
    assert command(toys, "verify") == 0 and command(toys, "run") == 0


def test_the_search_of_a_model_with_terms_is_not_skipped(toys):
    from pyserini_rescale.regression import empty_run

    command(toys, "run")
    statistics = toys / "work" / "statistics.json"
    assert empty_run.main(["--statistics", str(statistics), "--output", str(toys / "run")]) == 2
    assert not (toys / "run").exists()


# Means


def write_mean(toys, parts: list[str], published: float) -> None:
    """Make a second collection like toys, and the mean of both."""
    text = (toys / "specs" / "collections" / "toys.yaml").read_text()
    (toys / "specs" / "collections" / "more.yaml").write_text(text.replace("name: toys", "name: more"))
    mean = {"name": "both", "description": "both", "mean_of": parts, "measures": ["RR@10"]}
    (toys / "specs" / "collections" / "both.yaml").write_text(yaml_files.to_yaml(mean))
    path = toys / "specs" / "models" / "tiny.yaml"
    path.write_text(
        path.read_text().replace(
            "expected:\n", f"expected:\n  both: {{measures: {{RR@10: {{published: {published}, tolerance: 0.01}}}}}}\n"
        )
    )


def places(toys) -> list[str]:
    return [
        "--specs", str(toys / "specs"), "--data", str(toys / "data"), "--models", str(toys / "models"),
        "--work", str(toys / "work"),
    ]  # fmt: skip


@pytest.mark.parametrize(("published", "status"), [(0.75, 0), (0.7, 1)])
def test_a_mean_is_that_of_its_parts(toys, capsys, published, status):
    from pyserini_rescale.cli import main

    write_mean(toys, ["toys", "more"], published)
    assert main(["regress", "run", "both.tiny", *places(toys), "--json"]) in (1, 4)  # more.tiny has no figures
    results = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(results) == ["toys.tiny", "more.tiny", "both.tiny"]
    mean = results["both.tiny"]
    assert mean["rows"][0]["found"] == 0.75 and mean["exit_code"] == status
    assert mean["parts"] == ["toys.tiny", "more.tiny"] and mean["found"]["sparsity"]["flops"] > 0
    assert main(["regress", "report", "both.tiny", *places(toys)[:-2], "--work", str(toys / "work")]) == status
    assert ".750" in capsys.readouterr().out


def test_a_mean_without_a_part_is_missing_or_failed(toys, capsys, monkeypatch):
    from pyserini_rescale.cli import main

    write_mean(toys, ["toys", "more"], 0.75)
    assert main(["regress", "verify", "both.tiny", *places(toys)]) == 4
    assert "no mean without toys.tiny, more.tiny" in capsys.readouterr().out
    monkeypatch.setenv("FAKE_BREAK", "encode")
    assert main(["regress", "run", "both.tiny", *places(toys)]) == 3
    assert "both.tiny: no mean, a stage failed in toys.tiny, more.tiny" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes", [{"found": {"measures": {"nDCG@10": "x"}}}, {"found": [1]}, {"problems": 5}, None, "cut"]
)
def test_a_result_that_somebody_changed_is_named_in_the_report(toys, capsys, changes):
    assert command(toys, "run") == 0 and command(toys, "report", "--work", str(toys / "work")) in (0, 4)
    (path,) = (toys / "work").rglob("result.json")
    root = ["--work", str(path.parent.parent if path.parent.name == "toys.tiny" else path.parent)]
    result = json.loads(path.read_text())  # all else stays, so that nothing else is to blame
    changed = json.dumps({**result, **changes} if isinstance(changes, dict) else [])
    path.write_text(path.read_text()[:-5] if changes == "cut" else changed)
    capsys.readouterr()
    assert command(toys, "report", *root) == 1
    out = capsys.readouterr().out
    assert "problem: toys.tiny:" in out and "result.json" in out and "older" not in out
    assert "`regress verify` makes it anew" in out


def test_a_record_that_somebody_changed_is_none(toys, capsys):
    command(toys, "run")
    path = toys / "work" / "records" / "search.json"
    record = json.loads(path.read_text())
    record["output"]["files"] = []
    path.write_text(json.dumps(record))
    capsys.readouterr()
    assert command(toys, "verify") == 0
    assert "no record" in capsys.readouterr().out
