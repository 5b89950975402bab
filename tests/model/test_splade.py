"""The SPLADE vector: the fused form against the plain one, and the plain one against numpy in float64."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyserini_rescale.model import splade
from pyserini_rescale.model.head import bypassed, find_head
from pyserini_rescale.model.splade import ScreenedHead, max_logits, micro_batches, pad, plain_pool, splade_vectors
from tests.model.builders import FAMILIES, PROBED, build, texts

FORMS = ["_max_packed", "_max_padded"]  # for a CPU, for accelerators


def by_hand(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Eq. 1 and 2 in float64, text by text, over real tokens only."""
    rows = []
    for text, real in zip(logits.astype(np.float64), mask.astype(bool), strict=True):
        rows.append(np.log1p(np.maximum(text[real], 0)).max(axis=0))
    return np.array(rows)


def random_case(lengths, d=8, size=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    hidden = torch.randn(*mask.shape, d, generator=generator)
    return hidden, mask, torch.randn(size, d, generator=generator), torch.randn(size, generator=generator)


def test_plain_pool_on_numbers_worked_out_by_hand():
    logits = torch.tensor([[[1.0, -2.0, 0.0], [0.5, -1.0, 3.0], [9.0, 9.0, 9.0]]])
    mask = torch.tensor([[1, 1, 0]])
    np.testing.assert_allclose(plain_pool(logits, mask), [[np.log(2), 0, np.log(4)]], rtol=1e-6)


@pytest.mark.parametrize("model_type", [*FAMILIES, *PROBED])
def test_fused_equals_plain_equals_numpy(model_type):
    model = build(model_type)
    ids, mask = texts(model, (9, 5, 12, 1))
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask).logits
    want = by_hand(logits.numpy(), mask.numpy())
    assert (want > 0).any() and (want == 0).any()
    np.testing.assert_allclose(plain_pool(logits, mask), want, atol=1e-6)
    got = splade_vectors(model, find_head(model), ids, mask)
    assert got.dtype == torch.float32 and got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=2e-6)


@pytest.mark.parametrize("cells", [1, 300, 2**19])
@pytest.mark.parametrize("tokens", [1, 12, 512])
@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_any_size_give_the_same(monkeypatch, cells, tokens, form):
    monkeypatch.setattr(splade, "_max_packed", getattr(splade, form))
    monkeypatch.setattr(splade, "_CELLS_CPU", cells)
    monkeypatch.setattr(splade, "_CELLS_DEVICE", cells)
    monkeypatch.setattr(splade, "_TOKENS_AT_ONCE", tokens)
    hidden, mask, weight, bias = random_case([7, 3, 0, 11, 1], size=700)
    logits = (hidden @ weight.T + bias).masked_fill(~mask[..., None], -torch.inf)
    torch.testing.assert_close(max_logits(hidden, mask, weight, bias), logits.amax(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("poison", [torch.inf, -torch.inf, torch.nan])
def test_numbers_in_padding_are_never_seen_and_in_tokens_always(monkeypatch, form, poison):
    monkeypatch.setattr(splade, "_max_packed", getattr(splade, form))
    hidden, mask, weight, _ = random_case([7, 3])
    clean = max_logits(hidden, mask, weight, None)
    dirty = hidden.clone()
    dirty[1, 3:] = poison
    torch.testing.assert_close(max_logits(dirty, mask, weight, None), clean, rtol=0, atol=1e-6)
    dirty[1, 0] = torch.nan
    assert max_logits(dirty, mask, weight, None)[1].isnan().all()
    assert plain_pool(torch.full((1, 2, 3), poison), torch.tensor([[0, 0]])).eq(0).all()


def test_a_text_without_tokens_has_no_terms():
    hidden, mask, weight, bias = random_case([3, 0])
    assert max_logits(hidden, mask, weight, bias)[1].eq(-torch.inf).all()
    assert plain_pool(hidden @ weight.T + bias, mask)[1].eq(0).all()


@pytest.mark.parametrize("model_type", FAMILIES)
def test_padding_and_company_do_not_change_a_vector(model_type):
    model = build(model_type)
    head = find_head(model)
    ids, mask = texts(model, (6, 15, 3))
    together = splade_vectors(model, head, ids, mask)
    for row, length in enumerate((6, 15, 3)):
        alone = splade_vectors(model, head, ids[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(alone[0], together[row], rtol=1e-5, atol=2e-6)


def test_logits_of_all_positions_are_never_made(monkeypatch):
    """No tensor of V columns and more than one block of rows comes out of any operation."""
    model = build("bert")
    ids, mask = texts(model, (16, 16, 16))
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), named=None):
            nonlocal largest
            result = function(*arguments, **(named or {}))
            if isinstance(result, torch.Tensor) and "t" != function.__name__.split(".")[0]:
                largest = max(largest, result.numel() if model.config.vocab_size in result.shape else 0)
            return result

    monkeypatch.setattr(splade, "_TOKENS_AT_ONCE", 16)
    with Watch():
        splade_vectors(model, find_head(model), ids, mask)
    size = model.config.vocab_size
    assert 0 < largest <= size * model.config.hidden_size < 3 * 16 * size  # the weights; 16 x V for one text


# ---- The screen ------------------------------------------------------------------------------------------------------


def screenable(lengths=(300, 200, 0, 40), d=32, size=3000, seed=0):
    """A head as trained ones are (weights and hidden states lie in few directions, most logits below 0) and texts."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    scale = 0.75 ** torch.arange(d)
    hidden = torch.randn(*mask.shape, d, generator=generator) * scale
    projection = torch.nn.Linear(d, size)
    with torch.no_grad():
        projection.weight.copy_(torch.randn(size, d, generator=generator) * scale)
        projection.bias.copy_(torch.randn(size, generator=generator) * 0.5 - 5)
    return hidden, mask.long(), SimpleNamespace(weight=projection.weight, bias=projection.bias)


@pytest.fixture
def soon(monkeypatch):
    """Make screens at the first call."""
    monkeypatch.setattr(splade, "_SCREEN_AFTER", 0)


def relu_of(head, hidden, mask):
    return max_logits(hidden, mask, head.weight.detach(), None if head.bias is None else head.bias.detach()).relu()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_screened_head_gives_the_same(soon, seed, with_bias):
    hidden, mask, head = screenable(seed=seed)
    if not with_bias:
        hidden[..., 0], head = 3.0, SimpleNamespace(weight=head.weight, bias=None)
        with torch.no_grad():
            head.weight[:, 0].sub_(2)  # below 0 by the product alone
    screened = ScreenedHead(head)
    for scale in (1.0, 0.3, 2.0):  # made from the first, right for all
        got, want = screened.max_logits(hidden * scale, mask).relu(), relu_of(head, hidden * scale, mask)
        assert screened._screen is not None
        assert scale == 0.3 or 0.001 < (want > 0).float().mean() < 0.5
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    tokens = hidden[mask.bool()]
    bound = screened._screen.left(tokens) @ screened._screen.right.T
    assert (bound.double() >= tokens.double() @ head.weight.detach().double().T).all()


@pytest.mark.parametrize("common", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("rank", [4, 16])
def test_a_screen_is_a_bound_where_much_cancels(soon, monkeypatch, common, rank):
    """Few directions, one of them far larger than the others, and logits about 0: rounding is all that is left."""
    monkeypatch.setattr(splade, "_SCREEN_PAYS", math.inf)
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(128, 128, generator=generator))[0][:rank]
    tokens, weight = torch.randn(2000, rank, generator=generator), torch.randn(3000, rank, generator=generator)
    tokens[:, 0] += common
    weight[:, 0] /= max(common, 1.0)
    tokens, weight = tokens @ basis, weight @ basis
    screen = splade._make_screen(tokens, weight, None)
    bound = (screen.left(tokens) @ screen.right.T).double()
    assert (bound >= tokens.double() @ weight.double().T).all()
    assert (bound >= (tokens @ weight.T).double()).all()


def test_a_screen_leaves_terms_out(soon, monkeypatch):
    hidden, mask, head = screenable()
    screened = ScreenedHead(head)
    got = screened.max_logits(hidden, mask)
    left = got[[0, 1, 3]].isneginf().float().mean()
    assert left > 0.3 and not relu_of(head, hidden, mask)[got.isneginf()].any()


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_a_screen_hides_no_number_that_is_none(soon, poison):
    hidden, mask, head = screenable()
    screened = ScreenedHead(head)
    screened.max_logits(hidden, mask)
    dirty = hidden.clone()
    dirty[1, 7] = poison
    got = screened.max_logits(dirty, mask)
    assert screened._screen is not None and not torch.isfinite(got[1]).any(), "the whole text"
    torch.testing.assert_close(got[3].relu(), relu_of(head, hidden, mask)[3], rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        head.bias[5] = poison
    assert not torch.isfinite(screened.max_logits(hidden, mask)[0, 5])
    with torch.no_grad():
        head.weight[5] = poison
    assert not torch.isfinite(screened.max_logits(hidden, mask)[0, 5])


def test_changed_weights_get_another_screen(soon):
    hidden, mask, head = screenable()
    screened = ScreenedHead(head)
    screened.max_logits(hidden, mask)
    first = screened._screen
    with torch.no_grad():
        head.weight.copy_(head.weight.flip(0))
    torch.testing.assert_close(
        screened.max_logits(hidden, mask).relu(), relu_of(head, hidden, mask), rtol=1e-5, atol=1e-5
    )
    assert screened._screen is not first


def test_weights_changed_behind_autograds_back_get_another_screen(soon):
    hidden, mask, head = screenable()
    screened = ScreenedHead(head)
    screened.max_logits(hidden, mask)
    head.weight.data.copy_(head.weight.data.flip(0))  # neither address nor version changes
    torch.testing.assert_close(
        screened.max_logits(hidden, mask).relu(), relu_of(head, hidden, mask), rtol=1e-5, atol=1e-5
    )


def test_a_screen_of_weights_made_for_inference_and_of_another_default_type(soon):
    with torch.inference_mode():
        hidden, mask, head = screenable()
        screened = ScreenedHead(head)
        torch.set_default_dtype(torch.float64)
        try:
            got = screened.max_logits(hidden, mask).relu()
        finally:
            torch.set_default_dtype(torch.float32)
        assert screened._screen is not None and got.dtype == torch.float32
        torch.testing.assert_close(got, relu_of(head, hidden, mask), rtol=1e-5, atol=1e-5)


def test_there_is_no_screen_where_it_does_not_pay(soon, monkeypatch):
    hidden, mask, head = screenable()
    few = ScreenedHead(head)
    few.max_logits(hidden[:, :20], mask[:, :20])
    assert few._screen is None  # a query, say
    half = ScreenedHead(SimpleNamespace(weight=head.weight.bfloat16(), bias=head.bias.bfloat16()))
    half.max_logits(hidden.bfloat16(), mask)
    assert half._screen is None
    with torch.no_grad():
        head.bias.add_(9)  # every term is active
    dense = ScreenedHead(head)
    torch.testing.assert_close(dense.max_logits(hidden, mask).relu(), relu_of(head, hidden, mask), rtol=0, atol=0)
    assert dense._screen is None
    monkeypatch.setattr(splade, "_SCREEN_AFTER", 10**6)
    later = ScreenedHead(screenable()[2])
    later.max_logits(hidden, mask)
    assert later._screen is None


def test_the_projection_is_itself_again_after_a_failure():
    model = build("bert")
    projection = find_head(model).projection
    with pytest.raises(ZeroDivisionError), bypassed(projection):
        assert projection(torch.ones(2, 24)).shape == (2, 24)
        raise ZeroDivisionError
    assert projection(torch.ones(2, 24)).shape == (2, 103) and "forward" not in projection.__dict__
    projection.forward = replaced = lambda hidden: hidden + 1  # as accelerate's hooks do
    with bypassed(projection):
        pass
    assert projection.forward is replaced


def test_threads_that_share_a_model_take_turns():
    model = build("bert")
    head, (ids, mask) = find_head(model), texts(model)
    want = splade_vectors(model, head, ids, mask)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: splade_vectors(model, head, ids, mask), range(100)))
    finally:
        sys.setswitchinterval(interval)
    assert all(torch.equal(one, want) for one in found)
    assert "forward" not in head.projection.__dict__


def test_half_precision_models_give_float32_vectors():
    model = build("bert").to(torch.bfloat16)
    ids, mask = texts(model, (6, 4))
    with torch.inference_mode():
        want = plain_pool(model(input_ids=ids, attention_mask=mask).logits, mask)
    got = splade_vectors(model, find_head(model), ids, mask)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_micro_batches_hold_every_text_once_within_their_bounds(seed):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 60, size=generator.integers(0, 50)).tolist()
    most_texts, most_tokens = int(generator.integers(1, 9)), int(generator.integers(1, 200))
    batches = list(micro_batches(lengths, most_texts, most_tokens))
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= most_texts
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) <= most_tokens
    flat = [lengths[number] for batch in batches for number in batch]
    assert flat == sorted(flat, reverse=True)


def test_pad_fills_on_the_right():
    ids, mask = pad([[5, 6, 7], [8], [9, 10]], 1)
    assert ids.tolist() == [[5, 6, 7], [8, 1, 1], [9, 10, 1]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert ids.dtype == mask.dtype == torch.int64
