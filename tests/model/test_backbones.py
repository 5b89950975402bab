"""The table of backbones against the library: every path exists and means what the row says."""

from types import SimpleNamespace

import pytest
import torch

from pyserini_rescale.model.backbones import BACKBONES
from pyserini_rescale.model.head import find_head, position_limit
from tests.model.builders import FAMILIES, PROBED, build, texts


@pytest.mark.parametrize("model_type", FAMILIES)
def test_row_names_the_modules_of_the_model(model_type):
    model = build(model_type)
    row = BACKBONES[model_type]
    assert model.config.model_type == model_type
    assert model.get_submodule(row.projection) is model.get_output_embeddings()
    assert model.get_submodule(row.word) is model.get_input_embeddings()
    assert isinstance(model.get_submodule(row.norm), torch.nn.LayerNorm)
    names = set(model.state_dict())
    assert set(row.weight_keys()) <= names and set(row.bias_keys()) <= names
    if row.eps_key:
        assert model.get_submodule(row.norm).eps == getattr(model.config, row.eps_key)
    else:
        assert model.get_submodule(row.norm).eps <= 1e-12


@pytest.mark.parametrize("model_type", FAMILIES)
def test_summed_embeddings_are_all_that_reaches_the_first_norm(model_type):
    """The input of ``norm`` is the word embedding plus one vector of each ``summed`` table, and nothing else."""
    model = build(model_type)
    row = BACKBONES[model_type]
    ids, mask = texts(model, (7,))
    seen, looked_up = [], []
    model.get_submodule(row.norm).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    for path in (row.word, *row.summed):
        model.get_submodule(path).register_forward_hook(lambda module, inputs, output: looked_up.append(output))
    with torch.inference_mode():
        model(input_ids=ids, attention_mask=mask)
    assert len(looked_up) == 1 + len(row.summed)
    torch.testing.assert_close(seen[0], sum(looked_up).expand_as(seen[0]))


@pytest.mark.parametrize("model_type", [*FAMILIES, *PROBED])
def test_the_position_limit_is_where_the_model_still_runs(model_type):
    model = build(model_type)
    limit = position_limit(model)
    ids, mask = texts(model, (limit,))
    with torch.inference_mode():
        assert model(input_ids=ids, attention_mask=mask).logits.shape[1] == limit
    if model_type not in ("modernbert", "gte", "deberta-v2"):  # rotary or clipped positions go on
        ids, mask = texts(model, (limit + 1,))
        with pytest.raises((IndexError, RuntimeError)), torch.inference_mode():
            model(input_ids=ids, attention_mask=mask)


def test_published_roberta_takes_512_tokens():
    model = build("roberta", max_position_embeddings=514)
    assert position_limit(model) == 512
    assert position_limit(build("bert", max_position_embeddings=512)) == 512
    assert position_limit(build("mpnet", max_position_embeddings=514)) == 512


@pytest.mark.parametrize("value", [None, 0, -1, "512"])
def test_without_a_number_in_the_config_there_is_no_limit(value):
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=value, model_type="bert"))
    assert position_limit(model) is None


@pytest.mark.parametrize("model_type", FAMILIES)
def test_find_head_takes_the_row(model_type):
    head = find_head(build(model_type))
    assert head.backbone is BACKBONES[model_type] and head.tied
