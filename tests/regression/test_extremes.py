"""Failed models through Pyserini's real commands, from encode to verdict: every term active, and none."""

import json
from pathlib import Path

import pytest

from pyserini_rescale import yaml_files
from pyserini_rescale.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.jvm]
VOCABULARY, DOCUMENTS, QUERIES = 50_000, 100, 3


def write_model(folder: Path, bias: float) -> None:
    """A random BERT whose logits are ``bias`` and little else: above 0 all terms are active, below 0 none."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    from pyserini_rescale.model.head import save_model

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, pad_token_id=0,
    )  # fmt: skip
    model = BertForMaskedLM(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(0.001)
        model.get_output_embeddings().bias.fill_(bias)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(VOCABULARY - 5))]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    save_model(model, BertTokenizerFast(str(folder / "vocab.txt")), folder.with_name("saved"), fresh=False)
    folder.with_name("saved").rename(folder.with_name("random"))


@pytest.mark.parametrize(("bias", "active"), [(0.05, True), (-1.0, False)])
def test_a_random_model_at_both_extremes(tmp_path, monkeypatch, capsys, bias, active):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "models" / "made", bias)
    data = tmp_path / "data" / "many"
    (data / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": f"d{n}", "text": f"w{n} w{n + 1}"}) for n in range(DOCUMENTS)]
    (data / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": f"q{n}", "text": f"w{n}"}) for n in range(QUERIES)]
    (data / "queries.jsonl").write_text("\n".join(lines) + "\n")
    (data / "qrels" / "test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(QUERIES)))
    bound = {"published": 0.0, "at_most": 1.0} if active else {"measured": 0.0, "tolerance": 0.0}
    counts = {
        "documents": DOCUMENTS if active else 0, "empty_vectors": 0 if active else DOCUMENTS,
        "unique_terms": VOCABULARY if active else 0, "postings": VOCABULARY * DOCUMENTS if active else 0,
        "run_lines": QUERIES * DOCUMENTS if active else 0, "unretrieved_queries": 0 if active else QUERIES,
    }  # fmt: skip
    specs = {
        "collections/many": {
            "name": "many", "description": "many", "folder": "many", "documents": DOCUMENTS, "queries": QUERIES,
            "judgements": QUERIES, "measures": ["RR@10", "R@1000"],
        },
        "models/random": {
            "name": "random", "description": "random", "folder": "random",
            "expected": {"many": {
                "measures": {"RR@10": bound, "R@1000": bound},
                "counts": {name: {"measured": value, "tolerance": 0} for name, value in counts.items()},
            }},
        },
    }  # fmt: skip
    for name, content in specs.items():
        path = tmp_path / "specs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml_files.to_yaml(content))
    places = ["--specs", "specs", "--data", "data", "--models", "models", "--work", str(tmp_path / "work")]
    assert main(["regress", "run", "many.random", *places, "--threads", "1"]) == 0
    out = capsys.readouterr().out
    result = json.loads((tmp_path / "work" / "result.json").read_text())
    if active:
        assert f"queries have up to {VOCABULARY:,} terms: Lucene's limit of 1,024 was raised" in out
        assert result["found"]["measures"]["R@1000"] == 1.0 and result["found"]["sparsity"]["flops"] == VOCABULARY
    else:
        assert "every vector is empty: there was nothing to search, every query scores 0" in out
        assert result["found"]["measures"] == {"RR@10": 0.0, "R@1000": 0.0}
    assert main(["regress", "verify", "many.random", *places]) == 0
