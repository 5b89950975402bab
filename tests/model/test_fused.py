"""The fused head with gradients: against the plain form, and against float64 worked out text by text."""

import contextlib
import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyserini_rescale.model import fused, splade
from pyserini_rescale.model.fused import fused_pool, training_vectors
from pyserini_rescale.model.head import find_head
from pyserini_rescale.model.splade import max_positions, plain_pool, splade_vectors
from tests.model.builders import FAMILIES, PROBED, build, texts

LENGTHS = [7, 3, 0, 11, 1]
WAYS = {"sparse": 0, "dense": 10**9, "chosen": fused._ENTRY_CPU}
FORMS = ["_max_packed", "_max_padded"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Each way through the backward in turn."""
    monkeypatch.setattr(fused, "_ENTRY_CPU", WAYS[request.param])
    return request.param


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    """The forward for a CPU and the one for accelerators in turn."""
    monkeypatch.setattr(splade, "_max_packed", getattr(splade, request.param))
    return request.param


def case(lengths=LENGTHS, width=8, size=300, seed=0, dtype=torch.float32):
    """Return hidden (B, L, d), mask (B, L), weight (V, d), bias (V) of which about half the maxima are above 0."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    hidden = torch.randn(*mask.shape, width, generator=generator)
    weight = torch.randn(size, width, generator=generator)
    bias = torch.randn(size, generator=generator) * 3 - 4
    return hidden.to(dtype), mask, weight.to(dtype), bias.to(dtype)


def exact_pool(hidden, mask, weight, bias):
    """Eq. 1 and 2 in float64, text by text, over its real tokens only; differentiable."""
    rows = []
    for text, real in zip(hidden.double(), mask.bool(), strict=True):
        logits = text[real] @ weight.double().T + (0 if bias is None else bias.double())
        rows.append(torch.log1p(torch.relu(logits)).amax(0) if len(logits) else logits.sum(0))
    return torch.stack(rows)


def plain(hidden, mask, weight, bias):
    return plain_pool(torch.nn.functional.linear(hidden, weight, bias), mask)


def run(pool, hidden, mask, weight, bias, upstream=None):
    """Return the vectors and the gradients of hidden, weight and bias for a fixed gradient from above."""
    leaves = [None if tensor is None else tensor.clone().requires_grad_() for tensor in (hidden, weight, bias)]
    vectors = pool(leaves[0], mask, leaves[1], leaves[2])
    if upstream is None:
        upstream = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(9))
    vectors.backward(upstream.to(vectors.dtype))
    return vectors.detach(), [None if leaf is None else leaf.grad for leaf in leaves]


def relative(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-30))


def assert_same(got, want, tolerance=1e-6):
    """Vectors and gradients equal to ``tolerance`` relative (L2), and no single number far off."""
    torch.testing.assert_close(got[0].double(), want[0].double(), rtol=0, atol=10 * tolerance)
    for ours, theirs in zip(got[1], want[1], strict=True):
        if theirs is None:
            assert ours is None
            continue
        assert relative(ours, theirs) <= tolerance
        worst = 10 * tolerance * max(1e-30, float(theirs.abs().max()))
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=0, atol=worst)


@pytest.mark.parametrize("with_bias", [True, False])
def test_vectors_and_gradients_equal_the_plain_form_and_float64(way, form, with_bias):
    hidden, mask, weight, bias = case()
    bias = bias if with_bias else None
    got = run(fused_pool, hidden, mask, weight, bias)
    assert got[0].dtype == torch.float32
    assert 0.2 < (got[0] > 0).float().mean() < 0.8  # both sides of the ReLU
    assert_same(got, run(plain, hidden, mask, weight, bias))
    assert_same(got, run(exact_pool, hidden, mask, weight, bias))


@pytest.mark.parametrize("shift", [-7.0, -2.0, 3.0])
def test_any_share_of_active_terms(way, shift):
    hidden, mask, weight, bias = case(size=2000)
    assert_same(
        run(fused_pool, hidden, mask, weight, bias + shift), run(exact_pool, hidden, mask, weight, bias + shift)
    )


@pytest.mark.parametrize("cells", [1, 300, 2**19])
@pytest.mark.parametrize("tokens", [1, 12, 512])
def test_blocks_of_any_size_give_the_same(monkeypatch, way, form, cells, tokens):
    monkeypatch.setattr(splade, "_CELLS_CPU", cells)
    monkeypatch.setattr(splade, "_CELLS_DEVICE", cells)
    monkeypatch.setattr(splade, "_TOKENS_AT_ONCE", tokens)
    hidden, mask, weight, bias = case(size=700)
    assert_same(run(fused_pool, hidden, mask, weight, bias), run(exact_pool, hidden, mask, weight, bias))


def test_positions_are_where_the_largest_logits_are(form):
    hidden, mask, weight, bias = case()
    mask = mask & (torch.rand(mask.shape, generator=torch.Generator().manual_seed(3)) < 0.7)
    largest, where = max_positions(hidden, mask, weight, bias)
    logits = (hidden @ weight.T + bias).masked_fill(~mask[..., None], -torch.inf)
    some = mask.any(1)
    torch.testing.assert_close(largest, logits.amax(1))
    assert where.dtype == torch.int32
    assert torch.equal(where[some].long(), logits.argmax(1)[some])
    assert max_positions(hidden, mask, weight, bias, positions=False)[1] is None


@settings(deadline=None, max_examples=60)
@given(
    masks=st.integers(1, 9).flatmap(
        lambda positions: st.lists(
            st.lists(st.booleans(), min_size=positions, max_size=positions), min_size=1, max_size=5
        )
    ),
    size=st.integers(1, 400),
    width=st.integers(1, 9),
    seed=st.integers(0, 2**16),
    entry=st.sampled_from(sorted(WAYS.values())),
    kind=st.sampled_from(FORMS),
)
def test_any_shape_and_any_mask(masks, size, width, seed, entry, kind):
    mask = torch.tensor(masks)
    hidden, _, weight, bias = case([mask.shape[1]] * len(mask), width, size, seed, torch.float64)
    hidden[~mask] = torch.nan
    before = fused._ENTRY_CPU, splade._max_packed
    try:
        fused._ENTRY_CPU, splade._max_packed = entry, getattr(splade, kind)
        got = run(fused_pool, hidden, mask.long(), weight, bias)
    finally:
        fused._ENTRY_CPU, splade._max_packed = before
    assert got[0].dtype == torch.float64
    assert_same(got, run(exact_pool, hidden, mask, weight, bias), 1e-12)


def test_gradcheck(way):
    hidden, mask, weight, bias = case([4, 2, 0, 1], width=3, size=20, dtype=torch.float64)
    leaves = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]
    torch.autograd.gradcheck(lambda h, w, b: fused_pool(h, mask, w, b), leaves, eps=1e-7, atol=1e-6)


def test_a_second_derivative_is_refused():
    hidden, mask, weight, bias = case()
    hidden.requires_grad_()
    (first,) = torch.autograd.grad(fused_pool(hidden, mask, weight, bias).square().sum(), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("poison", [torch.inf, -torch.inf, torch.nan])
def test_numbers_in_padding_are_never_seen(way, form, poison):
    hidden, mask, weight, bias = case()
    want = run(exact_pool, hidden, mask, weight, bias)
    hidden[~mask] = poison
    got = run(fused_pool, hidden, mask, weight, bias)
    assert_same(got, want)
    assert got[1][0][~mask].eq(0).all()


def test_nan_in_a_token_comes_through(way, form):
    hidden, mask, weight, bias = case()
    hidden[1, 0] = torch.nan
    vectors, (of_hidden, of_weight, of_bias) = run(fused_pool, hidden, mask, weight, bias)
    assert vectors[1].isnan().all() and not vectors[[0, 2, 3, 4]].isnan().any()
    assert of_hidden[1, 0].isnan().all() and not of_hidden[0].isnan().any()
    assert of_weight.isnan().all() and of_bias.isnan().all()


def test_inf_in_a_token_comes_through(form):
    hidden, mask, weight, bias = case()
    hidden[1, 0, 0] = torch.inf
    vectors, (_, of_weight, _) = run(fused_pool, hidden, mask, weight, bias)
    up = weight[:, 0] > 0
    assert vectors[1, up].eq(torch.inf).all() and vectors[0].isfinite().all()
    assert of_weight[up].isnan().any(1).all()  # inf * 0, as in the plain form


@pytest.mark.parametrize("lengths", [[0], [0, 0], [1], [1, 1, 1], [2, 0]])
def test_texts_without_tokens_and_of_one_position(way, form, lengths):
    hidden, mask, weight, bias = case([*lengths, 1])
    hidden, mask = hidden[:-1], mask[:-1]
    got = run(fused_pool, hidden, mask, weight, bias)
    assert_same(got, run(exact_pool, hidden, mask, weight, bias))
    for row, length in enumerate(lengths):
        if length == 0:
            assert got[0][row].eq(0).all() and got[1][0][row].eq(0).all()


def test_every_vector_zero(way, form):
    hidden, mask, weight, bias = case()
    vectors, gradients = run(fused_pool, hidden, mask, weight, bias - 1000)
    assert vectors.eq(0).all() and all(gradient.eq(0).all() for gradient in gradients)
    vectors, gradients = run(fused_pool, hidden, mask, weight * 0, None)  # at 0 the ReLU has gradient 0
    assert vectors.eq(0).all() and gradients[0].eq(0).all() and gradients[1].eq(0).all()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_at_all(way, form, shape):
    _, _, weight, bias = case()
    vectors, gradients = run(fused_pool, torch.zeros(*shape, 8), torch.zeros(*shape), weight, bias)
    assert vectors.shape == (shape[0], 300) and vectors.eq(0).all()
    assert [gradient.shape for gradient in gradients] == [(*shape, 8), weight.shape, bias.shape]
    assert all(gradient.eq(0).all() for gradient in gradients)


def test_a_text_without_tokens_gives_zeros_whatever_the_bias(form):
    hidden, mask, weight, bias = case()
    bias[:2] = torch.tensor([torch.inf, torch.nan])
    assert fused_pool(hidden, mask, weight, bias)[LENGTHS.index(0)].eq(0).all()


def test_a_mask_of_another_shape_is_refused():
    hidden, mask, weight, bias = case()
    with pytest.raises(ValueError, match="does not fit"):
        fused_pool(hidden, mask[:1], weight, bias)


def test_one_position_that_wins_many_terms_is_added_up_exactly_enough(monkeypatch):
    monkeypatch.setattr(fused, "_ENTRY_CPU", WAYS["sparse"])
    generator = torch.Generator().manual_seed(0)
    hidden = torch.rand(1, 16, 32, generator=generator) * 0.1
    hidden[0, 3] = torch.rand(32, generator=generator) + 1
    weight = torch.rand(50_000, 32, generator=generator)
    numbers = hidden, torch.ones(1, 16), weight, torch.zeros(len(weight)), torch.ones(1, len(weight))
    assert_same(run(fused_pool, *numbers), run(exact_pool, *numbers), 5e-7)


@pytest.mark.parametrize("offset", [0.0, 20.0])
def test_bf16_adds_a_large_float32_bias_as_it_is(form, offset):
    """A bias as an offset leaves it, of which bfloat16 holds three digits."""
    hidden, mask, weight, bias = case()
    weight = weight.bfloat16()
    got = max_positions(hidden.bfloat16(), mask, weight, bias + offset)[0]
    want = max_positions(hidden.bfloat16().float(), mask, weight.float(), bias + offset)[0]
    largest = float(want[want.isfinite()].abs().max())
    torch.testing.assert_close(got, want, rtol=0, atol=largest * 2**-8)  # the rounding of one sum, not of the bias too
    rest = (bias + offset) - (bias + offset).bfloat16().float()
    without = max_positions(hidden.bfloat16(), mask, weight, (bias + offset).bfloat16())[0]
    torch.testing.assert_close(got, without + rest, rtol=0, atol=1e-6 * largest)


def test_a_gradient_that_is_not_finite_is_not_seen_where_the_relu_is_shut(way):
    hidden, mask, weight, bias = case()
    shut = exact_pool(hidden, mask, weight, bias) == 0
    upstream = torch.where(shut, torch.inf, 1.0)
    got = run(fused_pool, hidden, mask, weight, bias, upstream)
    assert_same(got, run(fused_pool, hidden, mask, weight, bias, torch.ones_like(upstream)), 1e-12)


def test_a_tie_of_equal_positions_gives_the_weights_the_same_gradient_and_the_first_position_all_of_its_own(way, form):
    hidden, mask, weight, bias = case([6, 6])
    hidden[0, 2] = hidden[0, 4]
    hidden[1, 1:] = hidden[1, :1]
    vectors, (of_hidden, of_weight, of_bias) = run(fused_pool, hidden, mask, weight, bias)
    want_vectors, (want_hidden, want_weight, want_bias) = run(plain, hidden, mask, weight, bias)
    torch.testing.assert_close(vectors, want_vectors)
    assert relative(of_weight, want_weight) <= 1e-6 and relative(of_bias, want_bias) <= 1e-6
    assert relative(of_hidden.sum(1), want_hidden.sum(1)) <= 1e-6
    assert of_hidden[0, 4].eq(0).all() and of_hidden[1, 1:].eq(0).all()
    assert relative(of_hidden[0, 2], want_hidden[0, 2] + want_hidden[0, 4]) <= 1e-6
    assert relative(want_hidden[0, 2], want_hidden[0, 4]) <= 1e-6  # the plain form spreads


@pytest.mark.parametrize("needed", range(8))
def test_only_the_gradients_that_are_asked_for(way, needed):
    tensors = case()
    wanted = [bool(needed >> place & 1) for place in range(3)]
    everything = run(fused_pool, *tensors)
    leaves = [
        tensor.clone().requires_grad_(want) for tensor, want in zip((tensors[0], *tensors[2:]), wanted, strict=True)
    ]
    vectors = fused_pool(leaves[0], tensors[1], leaves[1], leaves[2])
    torch.testing.assert_close(vectors.detach(), everything[0], rtol=0, atol=0)
    assert vectors.requires_grad == any(wanted)
    if not any(wanted):
        return
    vectors.backward(torch.randn(vectors.shape, generator=torch.Generator().manual_seed(9)))
    for leaf, want, gradient in zip(leaves, wanted, everything[1], strict=True):
        assert (leaf.grad is not None) == want
        if want:
            assert torch.equal(leaf.grad, gradient)


def test_without_gradients_positions_are_not_looked_for(monkeypatch):
    hidden, mask, weight, bias = case()
    weight.requires_grad_()
    want = fused_pool(hidden, mask, weight, bias)
    monkeypatch.delattr(splade, "_argmax")
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            got = fused_pool(hidden, mask, weight, bias)
        assert not got.requires_grad and torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_float32_vectors_and_gradients_of_its_own_type(way, form, dtype):
    hidden, mask, weight, bias = case(width=32, size=500, dtype=dtype)
    tensors = hidden / 4, mask, weight, bias
    got, theirs, exact = (run(pool, *tensors) for pool in (fused_pool, plain, exact_pool))
    assert got[0].dtype == torch.float32 and all(gradient.dtype == dtype for gradient in got[1])
    torch.testing.assert_close(got[0].double(), exact[0], rtol=0, atol=4 * torch.finfo(dtype).eps)
    # Rounded logits tie or change places, so that another position of nearly the same logit gets the gradient.
    for ours, other, true in zip(got[1], theirs[1], exact[1], strict=True):
        assert relative(ours, true) <= 3 * relative(other, true)


def test_scores_of_half_precision_models_do_not_overflow():
    hidden, mask, weight, bias = case(width=32, size=2000, dtype=torch.float16)
    vectors, gradients = run(fused_pool, hidden * 30, mask, weight * 30, bias)
    scores = vectors @ vectors.T
    assert scores.isfinite().all() and scores.max() > torch.finfo(torch.float16).max
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("backward_inside", [True, False])
def test_autocast_runs_the_product_in_bfloat16_and_the_rest_in_float32(way, form, backward_inside):
    hidden, mask, weight, bias = case(width=32, size=500)
    tensors = hidden / 4, mask, weight, bias
    seen = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), named=None):
            result = function(*arguments, **(named or {}))
            if function.__name__.split(".")[0] in ("mm", "bmm", "addmm", "log1p_", "relu"):
                seen.add((function.__name__.split(".")[0].strip("_"), result.dtype))
            return result

    leaves = [tensor.clone().requires_grad_() for tensor in (tensors[0], *tensors[2:])]
    with torch.autocast("cpu", torch.bfloat16), Watch():
        vectors = fused_pool(leaves[0], tensors[1], leaves[1], leaves[2])
    assert ("log1p", torch.float32) in seen and ("relu", torch.float32) in seen
    products = {dtype for name, dtype in seen if "mm" in name}
    assert products == {torch.bfloat16}
    assert vectors.dtype == torch.float32
    upstream = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(9))
    with torch.autocast("cpu", torch.bfloat16) if backward_inside else contextlib.nullcontext():
        vectors.backward(upstream)

    def plain_autocast(*inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return plain(*inputs)

    want = run(plain_autocast, *tensors)
    exact = run(exact_pool, *tensors)
    torch.testing.assert_close(vectors.detach(), want[0], rtol=0, atol=1e-6)
    for leaf, theirs, true in zip(leaves, want[1], exact[1], strict=True):
        assert leaf.grad.dtype == torch.float32
        assert relative(leaf.grad, true) <= 3 * relative(theirs, true)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(fused_pool(*tensors), vectors.detach(), rtol=0, atol=0)


def test_autocast_leaves_float64_alone():
    tensors = case(dtype=torch.float64)
    want = run(exact_pool, *tensors)
    with torch.autocast("cpu", torch.bfloat16):
        got = run(fused_pool, *tensors)
    assert_same(got, want, 1e-12)


def test_the_same_bits_run_after_run(way):
    tensors = case(size=900)
    first = run(fused_pool, *tensors)
    for _ in range(3):
        again = run(fused_pool, *tensors)
        assert torch.equal(first[0], again[0])
        assert all(torch.equal(one, other) for one, other in zip(first[1], again[1], strict=True))


def test_the_sparse_and_the_dense_way_are_chosen_by_share_and_length(monkeypatch):
    taken = []
    for name in ("_sparse", "_dense"):
        inner = getattr(fused, name)
        monkeypatch.setattr(fused, name, lambda *values, name=name, inner=inner: taken.append(name) or inner(*values))
    for length, shift in ((40, 0.0), (2, 100.0), (2, -4.0)):
        hidden, mask, weight, bias = case([length] * 3)
        run(fused_pool, hidden, mask, weight, bias + shift)
    assert taken == ["_sparse", "_dense", "_sparse"]


def loss_of(vectors):
    return (vectors * torch.linspace(-1, 2, vectors.numel()).view_as(vectors)).sum()


def model_gradients(model, pool):
    model.zero_grad()
    vectors = pool(model)
    loss_of(vectors).backward()
    gradients = {
        name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    return vectors.detach(), gradients


@pytest.mark.parametrize("model_type", [*FAMILIES, *PROBED])
def test_training_vectors_of_every_backbone_equal_the_plain_form(model_type):
    model = build(model_type).double()
    head = find_head(model)
    ids, mask = texts(model, (9, 5, 12, 1))

    def exact(model):
        logits = model(input_ids=ids, attention_mask=mask).logits
        return torch.log1p(torch.relu(logits)).masked_fill(~mask.bool()[..., None], 0).amax(1)

    got, ours = model_gradients(model, lambda model: training_vectors(model, head, ids, mask))
    want, theirs = model_gradients(model, exact)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    assert ours.keys() == theirs.keys() and len(ours) > 10
    assert "forward" not in head.projection.__dict__
    for name, gradient in ours.items():
        torch.testing.assert_close(
            gradient, theirs[name], rtol=1e-9, atol=1e-9, msg=lambda text, name=name: name + text
        )


@pytest.mark.parametrize("fused_form", [True, False])
def test_training_vectors_equal_those_of_inference_in_the_form_that_is_asked_for(monkeypatch, fused_form):
    model = build("bert")
    head = find_head(model)
    ids, mask = texts(model)
    want = splade_vectors(model, head, ids, mask)
    monkeypatch.delattr(splade, "plain_pool" if fused_form else "max_positions")
    vectors = training_vectors(model, head, ids, mask, fused=fused_form)
    assert vectors.requires_grad and vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.detach(), want, rtol=0, atol=2e-6)


@pytest.mark.parametrize("tie", [True, False])
def test_a_tied_weight_gets_the_gradients_of_both_its_uses(tie):
    model = build("bert", tie_word_embeddings=tie)
    head = find_head(model)
    assert head.tied == tie
    ids, mask = texts(model)
    gradients = {}
    for form in (True, False):
        pool = functools.partial(training_vectors, fused=form)
        _, gradients[form] = model_gradients(model, lambda model, pool=pool: pool(model, head, ids, mask))
        _, twice = model_gradients(  # two uses in one graph, as for queries and documents
            model,
            lambda model, pool=pool: torch.cat(
                [pool(model, head, ids[:2], mask[:2]), pool(model, head, ids[2:], mask[2:])]
            ),
        )
        for name, gradient in gradients[form].items():
            if "key.bias" not in name:  # its gradient is 0 but for rounding
                assert relative(twice[name], gradient) < 1e-5, name
    for name, gradient in gradients[False].items():
        if "key.bias" not in name:
            assert relative(gradients[True][name], gradient) < 5e-6, name


def test_gradients_accumulate():
    hidden, mask, weight, bias = case()
    weight.requires_grad_()
    for _ in range(2):
        fused_pool(hidden, mask, weight, bias).sum().backward()
    twice = weight.grad.clone()
    weight.grad = None
    fused_pool(hidden, mask, weight, bias).sum().backward()
    assert torch.equal(twice, 2 * weight.grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(reentrant):
    model = build("bert").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    head = find_head(model)
    ids, mask = texts(model)
    _, want = model_gradients(model, lambda model: training_vectors(model, head, ids, mask))
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    calls = []
    model.bert.encoder.layer[0].attention.register_forward_hook(lambda *_: calls.append(1))
    _, got = model_gradients(model, lambda model: training_vectors(model, head, ids, mask))
    assert len(calls) == 2
    for name, gradient in want.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-5, atol=1e-6)

    tensors = case()
    checked = run(
        lambda h, m, w, b: torch.utils.checkpoint.checkpoint(fused_pool, h, m, w, b, use_reentrant=reentrant), *tensors
    )
    assert_same(checked, run(fused_pool, *tensors), 1e-12)


@pytest.mark.parametrize("shift", [0.0, -4.0])
def test_logits_of_all_positions_are_never_made(monkeypatch, way, form, shift):
    """In forward and backward no tensor is as large as one text's logits, but for what is (B, V) or (V, d)."""
    lengths, width, size = [40, 40, 40], 8, 2000
    hidden, mask, weight, bias = case(lengths, width, size)
    monkeypatch.setattr(splade, "_CELLS_CPU", 2**12)
    monkeypatch.setattr(splade, "_CELLS_DEVICE", 2**12)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), named=None):
            nonlocal largest
            result = function(*arguments, **(named or {}))
            for tensor in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return result

    leaves = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]
    with Watch():
        vectors = fused_pool(leaves[0], mask, leaves[1], leaves[2] + shift)
        vectors.sum().backward()
    assert 0 < largest <= max(256 * 120, size * width * 2) < size * 40


def test_a_module_under_distributed_data_parallel(tmp_path):
    """One process of gloo: every parameter's gradient arrives, the tied one's too, step after step."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = build("bert")
        head = find_head(model)
        ids, mask = texts(model)

        class Vectors(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, ids, mask):
                return training_vectors(self.model, head, ids, mask)

        _, want = model_gradients(model, lambda model: training_vectors(model, head, ids, mask))
        wrapped = torch.nn.parallel.DistributedDataParallel(Vectors())
        for _ in range(2):
            model.zero_grad()
            loss_of(wrapped(ids, mask)).backward()
            for name, parameter in model.named_parameters():
                if name in want:
                    torch.testing.assert_close(parameter.grad, want[name], rtol=1e-5, atol=1e-6)
    finally:
        distributed.destroy_process_group()


@pytest.mark.gpu
@pytest.mark.parametrize("entry", sorted(WAYS.values()))
def test_on_a_gpu(monkeypatch, entry):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    monkeypatch.setattr(fused, "_ENTRY_DEVICE", entry)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    tensors = case(size=5000, width=64)
    got = run(fused_pool, *(tensor.cuda() for tensor in tensors), torch.ones(len(LENGTHS), 5000).cuda())
    want = run(exact_pool, *tensors, torch.ones(len(LENGTHS), 5000))
    assert got[0].is_cuda
    assert_same((got[0].cpu(), [gradient.cpu() for gradient in got[1]]), want, 2e-6)
