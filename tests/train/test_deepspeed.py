"""Real DeepSpeed on two CPU processes, with the shipped recipe and the shipped DeepSpeed file."""

import json

import pytest
import torch
from safetensors.torch import load_file

from pyserini_rescale.train.config import DEEPSPEED_FILE, TrainConfig, resolve
from pyserini_rescale.train.folder import deciding
from pyserini_rescale.yaml_files import read_yaml
from tests.train.conftest import launch, save_backbone, save_triples

pytestmark = pytest.mark.slow


def test_shipped_recipe_runs_in_zero_1_with_float32_masters(tmp_path):
    """Of table2:bert.k1 only batch, world size and device are overridden; backbone, data and output are local ones."""
    backbone = save_backbone(tmp_path / "backbone", max_position_embeddings=256)
    triples = save_triples(tmp_path / "triples.jsonl", rows=40)
    arguments = [
        "--config",
        "table2:bert.k1",
        "--backbone",
        backbone,
        "--triples",
        triples,
        "--output",
        tmp_path / "run",
    ]
    overrides = ["batch.per_device=4", "batch.world_size=2", "compute.device=cpu"]
    launch([*arguments, "--set", *overrides], 2, {"facts": str(tmp_path / "facts.json")}, torchrun=True)
    written = resolve("table2:bert.k1", [*overrides, f"backbone.name={backbone}", f"data.files=['{triples}']"])
    stored = TrainConfig.model_validate(read_yaml(tmp_path / "run" / "config.yaml"))
    assert deciding(stored) == deciding(written)
    assert stored.text.document_length == 256 and stored.compute.deepspeed == DEEPSPEED_FILE

    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["engine"] == "DeepSpeedEngine"
    assert facts["stage"] == 1
    assert facts["parameters"] == ["torch.bfloat16"]
    assert facts["masters"] == ["torch.float32"]
    assert (facts["world"], facts["backend"]) == (2, "gloo")
    assert facts["inner"] == "AdamW"
    assert facts["clip"] == 1.0
    assert facts["communication"] == "torch.float32"

    # The export is the float32 masters: what DeepSpeed's own tool makes of the last checkpoint.
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    masters = get_fp32_state_dict_from_zero_checkpoint(str(tmp_path / "run" / "checkpoint-5"))
    exported = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for name, weight in exported.items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, masters[f"backbone.{name}"]), name
    assert any(not torch.equal(one, one.bfloat16().float()) for one in exported.values())
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 5
    assert all(line["loss"] > 0 for line in lines)
