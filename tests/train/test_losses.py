"""Loss and regulariser: by hand, against loops in float64, and over processes against one process."""

import math

import pytest
import torch

from pyserini_rescale.model.head import load_masked_lm
from pyserini_rescale.model.tokenizer import load_tokenizer
from pyserini_rescale.train import losses
from pyserini_rescale.train.config import resolve
from pyserini_rescale.train.data import Collator, load_triples, order
from pyserini_rescale.train.log import read_log
from tests.train.conftest import launch, save_backbone

BOTH = {"temperature": 1.0, "candidates": "rank", "batch": "rank"}


def test_flops_by_hand():
    # Means of the three terms: 2, 0, 1/2.
    assert losses.flops(torch.tensor([[1.0, 0.0, 1.0], [3.0, 0.0, 0.0]])) == pytest.approx(4 + 0 + 0.25)


def test_contrastive_by_hand():
    queries = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    documents = torch.tensor([[3.0, 0.0], [1.0, 1.0], [2.0, 0.0], [0.0, 1.5]])  # two positives, two negatives
    parts = losses.splade_loss(queries, documents, **BOTH, lambda_query=0, lambda_document=0)
    first = -math.log(math.exp(3) / (math.exp(3) + math.exp(1) + math.exp(2) + 1))
    second = -math.log(math.exp(2) / (1 + math.exp(2) + 1 + math.exp(3)))
    assert parts.contrastive.item() == pytest.approx((first + second) / 2)
    assert parts.scores.tolist() == [[3, 1, 2, 0], [0, 2, 0, 3]]
    assert parts.positive.tolist() == [0, 1]
    assert parts.backward.item() == pytest.approx(parts.contrastive.item())


def by_loops(queries, documents, temperature, lambda_query, lambda_document):
    """Eq. 4 and 5 in loops: 2B candidates, mean activations squared and summed."""
    size = len(queries)
    loss = torch.zeros((), dtype=queries.dtype)
    for i in range(size):
        scores = [(queries[i] * documents[j]).sum() / temperature for j in range(2 * size)]
        loss = loss - (scores[i] - torch.logsumexp(torch.stack(scores), dim=0))
    flops = [sum(vectors[:, j].mean() ** 2 for j in range(vectors.shape[1])) for vectors in (queries, documents)]
    return loss / size, flops[0], flops[1], loss / size + lambda_query * flops[0] + lambda_document * flops[1]


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_values_and_gradients_against_loops_in_float64(temperature):
    torch.manual_seed(0)
    queries = torch.rand(3, 7, requires_grad=True)
    documents = torch.rand(6, 7, requires_grad=True)
    options = {**BOTH, "temperature": temperature, "lambda_query": 0.3, "lambda_document": 0.05}
    parts = losses.splade_loss(queries, documents, **options)
    parts.backward.backward()
    exact = [vectors.detach().double().requires_grad_() for vectors in (queries, documents)]
    contrastive, flops_query, flops_document, total = by_loops(*exact, temperature, 0.3, 0.05)
    total.backward()
    assert parts.contrastive.item() == pytest.approx(contrastive.item(), rel=1e-6)
    assert parts.flops_query.item() == pytest.approx(flops_query.item(), rel=1e-6)
    assert parts.flops_document.item() == pytest.approx(flops_document.item(), rel=1e-6)
    for vectors, reference in zip((queries, documents), exact, strict=True):
        torch.testing.assert_close(vectors.grad.double(), reference.grad, rtol=1e-5, atol=1e-7)


def test_scores_are_float32_under_autocast_and_for_half_vectors():
    queries = torch.full((2, 4), 300.0, dtype=torch.float16)  # 300 x 300 is beyond float16
    documents = torch.full((4, 4), 300.0, dtype=torch.float16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parts = losses.splade_loss(queries, documents, **BOTH, lambda_query=1e-6, lambda_document=0)
    assert parts.scores.dtype == torch.float32
    assert parts.scores.unique().tolist() == [4 * 300.0 * 300.0]
    assert parts.contrastive.item() == pytest.approx(math.log(4))


def test_columns_of_positives_over_processes():
    assert losses.positives(2, 3, torch.device("cpu")).tolist() == [0, 1, 4, 5, 8, 9]


def gradients(config, tmp_path, name, processes, **sections):
    """Return the gradients of the first step, by name, after checking that all processes hold the same."""
    regularizer = {"ramp": 0.0, **sections.pop("regularizer", {})}
    path = config(name, max_steps=1, optimizer={"max_grad_norm": 0.0}, regularizer=regularizer, **sections)
    folder = tmp_path / f"{name}-gradients"
    folder.mkdir()
    launch(["--config", path], processes, {"gradients": str(folder)})
    found = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(processes)]
    for other in found[1:]:
        assert all(torch.equal(found[0][key], other[key]) for key in found[0])
    return found[0]


def close(one, other):
    assert set(one) == set(other)
    largest = max(value.abs().max() for value in other.values())
    assert largest > 0
    for name in other:
        torch.testing.assert_close(one[name].double(), other[name].double(), rtol=1e-5, atol=1e-5 * float(largest))


def first_losses(tmp_path, name):
    return read_log(tmp_path / name / "log.jsonl")[0]


@pytest.fixture
def no_dropout(tmp_path):
    folder = tmp_path / "no-dropout"
    return save_backbone(folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [1, 2])
def test_global_loss_is_the_same_on_one_and_two_processes(config, tmp_path, no_dropout, accumulation):
    """Also of two micro-batches, each of the same eight triples here and there."""
    found = {}
    for processes, per_device in ((1, 8), (2, 4)):
        found[processes] = gradients(
            config, tmp_path, f"global-{processes}", processes, backbone={"name": no_dropout},
            loss={"candidates": "global"}, regularizer={"batch": "global"},
            batch={"per_device": per_device, "world_size": processes, "accumulation": accumulation},
        )  # fmt: skip
    close(found[2], found[1])
    one, two = (first_losses(tmp_path, f"global-{processes}") for processes in (1, 2))
    for key in ("loss", "contrastive", "flops_query", "flops_document", "positive_score", "hardest_negative_score"):
        assert two[key] == pytest.approx(one[key], rel=1e-5), key


def exact_vectors(model, collator, rows):
    """Return query vectors (B, V) and document vectors (2B, V) in float64, with gradients, by the plain formula."""
    batch = collator(rows)
    vectors = []
    for kind in ("query", "document"):
        ids, mask = batch[f"{kind}_ids"], batch[f"{kind}_mask"]
        logits = model(input_ids=ids, attention_mask=mask).logits
        hidden = ~mask.bool().unsqueeze(-1)
        vectors.append(torch.log1p(torch.relu(logits)).masked_fill(hidden, 0.0).amax(dim=1))
    return vectors


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["rank", "global"])
@pytest.mark.parametrize("candidates", ["rank", "global"])
def test_what_two_processes_compute(config, tmp_path, no_dropout, candidates, batch):
    """Gradients and figures against float64: the mean of two halves ("rank"), or all eight triples at once ("global")."""
    name = f"{candidates}-{batch}"
    found = gradients(
        config, tmp_path, name, 2, backbone={"name": no_dropout}, batch={"per_device": 4, "world_size": 2},
        loss={"candidates": candidates}, regularizer={"batch": batch, "query": 0.5, "document": 0.25},
    )  # fmt: skip
    settings, started = resolve(str(tmp_path / f"{name}.yaml")), tmp_path / name / "start"
    model = load_masked_lm(str(started)).double()
    collator = Collator(load_tokenizer(str(started)), 8, 12)
    rows = load_triples(settings.data, print)
    chosen = [rows[number] for number in order(len(rows), settings.seed, 0)[:8].tolist()]
    (queries, documents), (more_queries, more_documents) = (
        exact_vectors(model, collator, half) for half in (chosen[:4], chosen[4:])
    )
    halves = [by_loops(queries, documents, 1.0, 0, 0), by_loops(more_queries, more_documents, 1.0, 0, 0)]
    per_rank = [(one + other) / 2 for one, other in zip(*halves, strict=True)]
    positives_first = [documents[:4], more_documents[:4], documents[4:], more_documents[4:]]
    whole = by_loops(torch.cat([queries, more_queries]), torch.cat(positives_first), 1.0, 0, 0)
    for one, other in zip(per_rank, whole, strict=True):
        assert abs(one - other) > 1e-4 * abs(other)  # what is compared below can be told apart
    contrastive = (whole if candidates == "global" else per_rank)[0]
    flops_query, flops_document = (whole if batch == "global" else per_rank)[1:3]
    total = contrastive + 0.5 * flops_query + 0.25 * flops_document
    total.backward()
    close(found, {name: one.grad for name, one in model.named_parameters() if one.grad is not None})
    logged = first_losses(tmp_path, name)
    for key, value in (
        ("contrastive", contrastive), ("flops_query", flops_query), ("flops_document", flops_document), ("loss", total),
    ):  # fmt: skip
        assert logged[key] == pytest.approx(value.item(), rel=1e-5), key
