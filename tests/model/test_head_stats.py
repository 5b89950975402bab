"""Row norms and anisotropy: against plain numpy, from every kind of file, without torch, and from loaded models."""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from pyserini_rescale.errors import ModelError
from pyserini_rescale.model.head import rescale_head
from pyserini_rescale.model.head_stats import model_head_stats, read_head_stats, row_norms_and_anisotropy
from pyserini_rescale.model.policy import Policy
from tests.model.builders import FAMILIES, PROBED, build


def by_pairs(matrix: np.ndarray) -> float:
    """Mean cosine of two different rows the long way, over all pairs."""
    rows = [row / np.linalg.norm(row) for row in matrix if np.linalg.norm(row) > 0]
    return np.mean([a @ b for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j])


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(2, 40),
    width=st.integers(1, 9),
    block=st.integers(1, 50),
    shift=st.floats(-3, 3),
)
def test_closed_form_equals_the_pairs(seed, rows, width, block, shift):
    matrix = np.random.default_rng(seed).normal(shift, 1.0, (rows, width))
    norms, anisotropy = row_norms_and_anisotropy((matrix[i : i + block] for i in range(0, rows, block)), width)
    assert np.allclose(norms, np.linalg.norm(matrix, axis=1))
    assert math.isclose(anisotropy, by_pairs(matrix), rel_tol=1e-9, abs_tol=1e-12)


def test_worked_out_by_hand():
    # cosines: 0 between the first two, 1/sqrt(2) of both with the third; the row of zeros has none
    matrix = np.array([[2.0, 0.0], [0.0, 5.0], [3.0, 3.0], [0.0, 0.0]])
    norms, anisotropy = row_norms_and_anisotropy([matrix], 2)
    assert norms.tolist() == pytest.approx([2, 5, math.sqrt(18), 0])
    assert anisotropy == pytest.approx(2 / math.sqrt(2) / 3)
    assert row_norms_and_anisotropy([matrix[:1], matrix[3:]], 2)[1] is None


def expect(stats, model):
    weight = model.get_output_embeddings().weight.detach().double().numpy()
    norms = np.linalg.norm(weight, axis=1)
    found = (stats.row_norm_mean, stats.row_norm_max, stats.row_norm_min, stats.row_norm_std)
    assert found == pytest.approx((norms.mean(), norms.max(), norms.min(), norms.std()), rel=1e-6)
    assert stats.anisotropy == pytest.approx(by_pairs(weight), rel=1e-6, abs=1e-9)
    assert (stats.vocabulary, stats.width) == weight.shape and stats.model_type == model.config.model_type


@pytest.mark.parametrize("scope", ["shared", "untied"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_file_and_loaded_model_agree(model_type, scope, tmp_path, monkeypatch):
    model = build(model_type)
    rescale_head(model, 2, scope=scope)
    model.save_pretrained(tmp_path / "model")
    monkeypatch.setattr("pyserini_rescale.model.head.load_masked_lm", None)  # the file alone has to do
    stats = read_head_stats(str(tmp_path / "model"))
    expect(stats, model)
    assert stats.tied == (scope == "shared") and stats.bias and stats.dtype == "float32" and stats.zero_rows == 0
    assert stats.bias_mean == pytest.approx(float(model.get_output_embeddings().bias.detach().mean()), abs=1e-6)
    assert stats.normalised_at_once == (model_type == "modernbert")
    assert stats.policy == Policy(k=2, scope=scope, tied_before=True)
    again = model_head_stats(stats.name, model)
    for name, value in stats.to_dict().items():
        same = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        assert again.to_dict()[name] == same, name
    assert read_head_stats(str(tmp_path / "model" / "model.safetensors")).row_norm_mean == stats.row_norm_mean


def test_gte_without_token_types_is_normalised_at_once(tmp_path):
    if "gte" not in FAMILIES:
        pytest.skip("this transformers has no GTE")
    model = build("gte", type_vocab_size=0)
    model.save_pretrained(tmp_path / "model")
    assert (
        read_head_stats(str(tmp_path / "model")).normalised_at_once and model_head_stats("m", model).normalised_at_once
    )


@pytest.mark.parametrize("model_type", PROBED)
def test_models_without_a_row_are_loaded_and_probed(model_type, tmp_path):
    model = build(model_type)
    model.save_pretrained(tmp_path / "model")
    stats = read_head_stats(str(tmp_path / "model"))
    expect(stats, model)
    assert stats.normalised_at_once is None and stats.tied


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_number_types(dtype, tmp_path):
    model = build("bert")
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path / "model")
    stats = read_head_stats(str(tmp_path / "model"))
    expect(stats, model)
    assert stats.dtype == dtype


def test_several_files(tmp_path):
    model = build("bert")
    model.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 1
    expect(read_head_stats(str(tmp_path / "model")), model)
    next((tmp_path / "model").glob("model-00001*")).unlink()
    with pytest.raises(ModelError, match="which is not there"):
        read_head_stats(str(tmp_path / "model"))


def test_pytorch_bin_only(tmp_path):
    model = build("roberta")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    expect(read_head_stats(str(tmp_path)), model)


def test_both_matrices_stored(tmp_path):
    """Tied by the config: equal matrices are one, different ones are two, as transformers 5 has it."""
    model = build("bert")
    tensors = {key: value.clone() for key, value in model.state_dict().items()}
    model.config.save_pretrained(tmp_path)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert read_head_stats(str(tmp_path)).tied
    tensors["cls.predictions.decoder.weight"] += 1.0
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    stats = read_head_stats(str(tmp_path))
    assert not stats.tied
    assert stats.row_norm_mean == pytest.approx(
        float(tensors["cls.predictions.decoder.weight"].norm(dim=1).mean()), rel=1e-6
    )


def test_rows_of_zeros_are_counted(tmp_path):
    model = build("modernbert")
    with torch.no_grad():
        model.get_output_embeddings().weight[7:10] = 0.0
    model.save_pretrained(tmp_path)
    stats = read_head_stats(str(tmp_path))
    assert stats.zero_rows == 3 and stats.row_norm_min == 0.0
    expect(stats, model)


def test_what_has_no_head_is_refused(tmp_path):
    build("bert").base_model.save_pretrained(tmp_path / "bare")
    with pytest.raises(ModelError, match="random numbers"):
        read_head_stats(str(tmp_path / "bare"))
    with pytest.raises(ModelError, match="name the folder"):
        read_head_stats(str(tmp_path / "bare" / "model.safetensors"))
    with pytest.raises(ModelError, match="no model folder"):
        read_head_stats(str(tmp_path / "none"))


def test_damaged_files_are_named(tmp_path):
    model = build("bert")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    for content in (
        whole[:-100],
        whole[:4],
        b"",
        b"\xff" * 64,
        struct.pack("<Q", 8) + b"[1,2,3] ",
        whole[:8] + b"!" + whole[9:],
    ):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="model.safetensors is not a whole safetensors file"):
            read_head_stats(str(tmp_path))
    path.write_bytes(whole)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="config.json"):
        read_head_stats(str(tmp_path))
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelError, match="config.json"):
        read_head_stats(str(path))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(wrong, tmp_path):
    model = build("bert")
    with torch.no_grad():
        model.get_output_embeddings().weight[3, 1] = wrong
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="NaN or infinite"):
        read_head_stats(str(tmp_path))


def test_hub_id_from_the_cache_without_torch(tmp_path):
    """A Hub id that is in the local cache is read from there; neither torch nor transformers is imported."""
    model = build("bert")
    snapshot = tmp_path / "hub" / "models--some--model" / "snapshots" / "abc"
    model.save_pretrained(snapshot)
    (tmp_path / "hub" / "models--some--model" / "refs").mkdir()
    (tmp_path / "hub" / "models--some--model" / "refs" / "main").write_text("abc")
    program = (
        "import sys, json; from pyserini_rescale.model.head_stats import read_head_stats;"
        "mean = read_head_stats('some/model').row_norm_mean;"
        "print(json.dumps([mean, [name for name in ('torch', 'transformers') if name in sys.modules]]))"
    )
    environ = {
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "PATH": "",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    mean, heavy = json.loads(done.stdout.splitlines()[-1])
    assert heavy == [] and mean == pytest.approx(
        float(model.get_output_embeddings().weight.detach().norm(dim=1).mean()), rel=1e-6
    )


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_a_large_head_in_little_memory_and_time(kind, tmp_path):
    """50,000 x 768: below 300 MB at the peak. It takes a fraction of a second; 10 s keeps a busy machine green."""
    rows, width = 50_000, 768
    values = np.random.default_rng(0).standard_normal((rows, width), dtype=np.float32)
    values[: rows // 2] += 1.0
    encode = {
        "F32": lambda x: x.astype("<f4"),
        "F16": lambda x: x.astype("<f2"),
        "BF16": lambda x: (x.view(np.uint32) >> 16).astype("<u2"),
    }[kind]
    parts = {"bert.embeddings.word_embeddings.weight": values, "cls.predictions.bias": np.ones(rows, np.float32)}
    header, data, at = {}, [], 0
    for name, part in parts.items():
        data.append(encode(part).tobytes())
        header[name] = {"dtype": kind, "shape": part.shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    packed = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed + b"".join(data))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": rows}))
    program = (
        "import json, sys, time; start = time.perf_counter();"
        "from pyserini_rescale.model.head_stats import read_head_stats;"
        "stats = read_head_stats(sys.argv[1]);"
        "peak = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'));"
        "found = [time.perf_counter() - start, peak, stats.row_norm_mean, stats.anisotropy, 'torch' in sys.modules];"
        "print(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    seconds, kilobytes, mean, anisotropy, torch_loaded = json.loads(done.stdout.splitlines()[-1])
    assert not torch_loaded and kilobytes < 300_000 and seconds < 10
    assert mean == pytest.approx(float(np.linalg.norm(values, axis=1).mean()), rel=3e-3)
    units = values / np.linalg.norm(values, axis=1, keepdims=True)
    total = units.sum(axis=0, dtype=np.float64)
    assert anisotropy == pytest.approx((total @ total - rows) / (rows * (rows - 1)), rel=3e-3)


def test_splade_tiny(splade_tiny):
    stats = read_head_stats(splade_tiny)
    assert (round(stats.row_norm_mean, 4), round(stats.row_norm_max, 4)) == (0.6819, 1.0220)
    assert (stats.vocabulary, stats.width, stats.tied, stats.bias, stats.normalised_at_once) == (
        30522,
        128,
        True,
        True,
        False,
    )
