"""A toy regression whose Pyserini commands are fake_stages.py."""

import json
import math
import sys
from pathlib import Path

import pytest

from pyserini_rescale import yaml_files
from pyserini_rescale.regression import catalogue, runner, stages

FAKE = Path(__file__).with_name("fake_stages.py")
# q1 "red": d1 and d2 tie at 10, so d2 comes first: RR 1/2, nDCG 1/log2(3). q2 "ball game": d4 (grade 2), d1 (grade 1).
MEASURED = {"nDCG@10": (1 / math.log2(3) + 1) / 2, "RR@10": 0.75, "R@10": 1.0}
COUNTS = {
    "documents": 3, "empty_vectors": 1, "unique_terms": 5, "postings": 7, "impacts": 70,
    "unretrieved_queries": 0, "run_lines": 4,
}  # fmt: skip


@pytest.fixture
def toys(tmp_path, monkeypatch) -> Path:
    """Data, model and YAML of the regression toys.tiny; returns the folder that holds data/, models/ and specs/."""
    (tmp_path / "data" / "toys" / "qrels").mkdir(parents=True)
    texts = {"d1": "red ball", "d2": "red brick wall", "d3": "", "d4": "ball game"}
    lines = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    (tmp_path / "data" / "toys" / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = {"q1": "red", "q2": "ball game"}
    lines = [json.dumps({"_id": name, "text": text}) for name, text in queries.items()]
    (tmp_path / "data" / "toys" / "queries.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "data" / "toys" / "qrels" / "test.tsv").write_text("q1\td1\t1\nq2\td1\t1\nq2\td4\t2\n")
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "models" / "tiny" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "models" / "tiny" / "config.json").write_text('{"splade_rescale": {"k": 16, "scope": "shared"}}')
    write_specs(tmp_path)
    monkeypatch.chdir(tmp_path)
    plain = stages.executed

    def executed(stage: stages.Stage, hook: bool) -> list[str]:
        argv = plain(stage, True)
        return argv if argv[2] == "pyserini_rescale" else [sys.executable, str(FAKE), *argv[1:]]

    monkeypatch.setattr(stages, "executed", executed)
    return tmp_path


def write_specs(
    root: Path, measured: dict | None = None, counts: dict | None = None, more: dict | None = None,
    expect: dict | None = None,
) -> None:  # fmt: skip
    """Write the YAML, with other figures where they are given; more: keys of the model, expect: of what it expects."""
    collection = {
        "name": "toys", "description": "toys", "folder": "toys", "documents": 4, "queries": 2, "judgements": 3,
        "measures": ["nDCG@10", "RR@10", "R@10"], "training": {"split": "train"},
    }  # fmt: skip
    expected = {
        "measures": {name: {"measured": value, "tolerance": 0.001} for name, value in (measured or MEASURED).items()},
        "counts": {name: {"measured": value, "tolerance": 0} for name, value in (counts or COUNTS).items()},
        **(expect or {}),
    }
    model = {"name": "tiny", "description": "t", "folder": "tiny", "expected": {"toys": expected}, **(more or {})}
    for kind, value in (("collections", collection), ("models", model)):
        (root / "specs" / kind).mkdir(parents=True, exist_ok=True)
        (root / "specs" / kind / f"{value['name']}.yaml").write_text(yaml_files.to_yaml(value))


def plan_of(root: Path) -> runner.Plan:
    regression = catalogue.choose(["toys.tiny"], root / "specs")[0]
    return runner.plan(regression, runner.Options(root / "data", root / "models", root / "work"), {})
