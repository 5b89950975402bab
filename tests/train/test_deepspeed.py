"""Real DeepSpeed on two CPU processes, with the shipped recipe and the shipped DeepSpeed file."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.train.conftest import launch, save_triples

pytestmark = pytest.mark.slow


def test_shipped_recipe_runs_in_zero_1_with_float32_masters(tmp_path, backbone):
    """Of table2:bert.k1 only batch, world size and device are overridden; backbone and data are local ones."""
    triples = save_triples(tmp_path / "triples.jsonl", rows=40)
    # The small backbone has 32 positions where the recipe asks for 256: its lengths come with it.
    local = ["--backbone", backbone, "--triples", triples, "--output", tmp_path / "run", "--set", "text.query_length=32",
             "--set", "text.document_length=32"]  # fmt: skip
    overrides = ["--set", "batch.per_device=4", "--set", "batch.world_size=2", "--set", "compute.device=cpu"]
    arguments = ["--config", "table2:bert.k1", *local, *overrides, "--set", "checkpoints.every=5"]
    launch(arguments, 2, {"facts": str(tmp_path / "facts.json")})
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
