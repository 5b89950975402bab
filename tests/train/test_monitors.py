"""Figures against sums done by hand, one process against two, the log after crashes, and the watch for collapse."""

import dataclasses
import json
import math

import pytest
import torch
import torch.distributed
from torch.utils._python_dispatch import TorchDispatchMode

from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.train.monitors import FIGURES, JsonlLog, Totals, Watch, read_log

# Two queries and four documents over a vocabulary of four; every figure below can be counted in them.
QUERIES = torch.tensor([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
DOCUMENTS = torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 7.5, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]])
SCORES = torch.tensor([[3.0, 0.0, 15.0, 1.5], [0.0, 2.0, 1.0, 0.0]])
END = {"epoch": 0.5, "learning_rate": 1e-4, "gradient_norm": torch.tensor(2.5)}


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def add_first(totals):
    totals.add(
        QUERIES, DOCUMENTS, SCORES, torch.tensor([0, 2]), torch.tensor(2.0), torch.tensor(3.0), torch.tensor(5.0),
        lambda_query=0.1, lambda_document=0.01,
    )  # fmt: skip


def add_second(totals):
    """One query and two documents, all dense, at other lambdas."""
    totals.add(
        torch.ones(1, 4), torch.full((2, 4), 9.0), torch.tensor([[-4.0, 36.0]]), torch.tensor([1]), torch.tensor(8.0),
        torch.tensor(6.0), torch.tensor(11.0), lambda_query=0.2, lambda_document=0.02,
    )  # fmt: skip


def test_figures_of_one_micro_batch():
    clock = Clock()
    totals = Totals(step=10, clock=clock)
    add_first(totals)
    clock.now = 4.0
    found = totals.figures(step=12, **END)
    assert tuple(found) == FIGURES
    assert found == pytest.approx({
        "step": 12, "epoch": 0.5, "loss": 2.35, "contrastive": 2.0, "regularizer": 0.35, "flops_query": 3.0,
        "flops_document": 5.0, "lambda_query": 0.1, "lambda_document": 0.01, "learning_rate": 1e-4,
        "query_active": 1.0, "document_active": 2.0, "query_empty": 0.5, "document_empty": 0.25,
        "largest_weight": 7.5, "positive_score": 2.0, "hardest_negative_score": 8.5, "gradient_norm": 2.5,
        "steps_per_second": 0.5,
    })  # fmt: skip
    assert json.loads(json.dumps(found)) == found


def test_micro_batches_count_by_their_queries_and_documents():
    totals = Totals()
    add_first(totals)
    add_second(totals)
    found = totals.figures(step=1, **END)
    assert found["contrastive"] == pytest.approx((2 * 2 + 8) / 3)
    assert found["flops_query"] == pytest.approx((3 * 2 + 6) / 3)
    assert found["flops_document"] == pytest.approx((5 * 2 + 11) / 3)
    assert found["regularizer"] == pytest.approx((2 * 0.35 + 0.2 * 6 + 0.02 * 11) / 3)
    assert found["loss"] == pytest.approx(found["contrastive"] + found["regularizer"])
    assert (found["lambda_query"], found["lambda_document"]) == (0.2, 0.02)
    assert found["query_active"] == pytest.approx(6 / 3) and found["document_active"] == pytest.approx(16 / 6)
    assert found["query_empty"] == pytest.approx(1 / 3) and found["document_empty"] == pytest.approx(1 / 6)
    assert found["positive_score"] == pytest.approx((3 + 1 + 36) / 3)
    assert found["hardest_negative_score"] == pytest.approx((15 + 2 - 4) / 3)
    assert found["largest_weight"] == 9.0


def test_a_logging_step_starts_again():
    clock = Clock()
    totals = Totals(clock=clock)
    add_second(totals)
    clock.now = 10.0
    totals.figures(step=5, **END)
    add_first(totals)
    clock.now = 12.0
    found = totals.figures(step=9, **END)
    assert (found["contrastive"], found["largest_weight"], found["steps_per_second"]) == (2.0, 7.5, 2.0)
    with pytest.raises(ValueError, match="no micro-batch"):
        totals.figures(step=10, **END)


def test_sums_can_be_carried_through_a_checkpoint():
    whole, before, after = Totals(), Totals(), Totals()
    add_first(whole)
    add_second(whole)
    add_first(before)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.state_dict() == before.state_dict() and after.lambdas == (0.1, 0.01)
    add_second(after)
    found, expected = after.figures(step=1, **END), whole.figures(step=1, **END)
    del found["steps_per_second"], expected["steps_per_second"]
    assert found == expected
    after.load_state_dict(Totals().state_dict())
    assert after.micro_batches == 0 and after.sums is None


def test_bfloat16_vectors_are_counted_exactly():
    totals = Totals()
    vectors = torch.ones(3, 1001, dtype=torch.bfloat16)
    totals.add(
        vectors, vectors, torch.full((3, 3), 1e30), torch.arange(3), torch.tensor(1.0), torch.tensor(1.0),
        torch.tensor(1.0), lambda_query=0.0, lambda_document=0.0,
    )  # fmt: skip
    found = totals.figures(step=1, **END)
    assert found["query_active"] == 1001 and found["positive_score"] == pytest.approx(1e30)


def test_what_is_not_finite_stays_visible():
    totals = Totals()
    vectors = torch.tensor([[math.nan, 1.0]])
    totals.add(
        vectors, torch.ones(2, 2), torch.tensor([[math.nan, 1.0]]), torch.tensor([0]), torch.tensor(math.nan),
        torch.tensor(math.inf), torch.tensor(1.0), lambda_query=0.1, lambda_document=0.1,
    )  # fmt: skip
    add_first(totals)
    found = totals.figures(step=1, epoch=0.1, learning_rate=0.1, gradient_norm=None)
    assert math.isnan(found["contrastive"]) and math.isnan(found["loss"]) and math.isnan(found["positive_score"])
    assert found["largest_weight"] == math.inf and found["flops_query"] == math.inf and found["gradient_norm"] is None


def test_scores_of_a_wrong_shape_are_refused():
    one, flops = torch.ones(1, 4), torch.tensor(1.0)
    for scores, positive in (
        (torch.ones(1, 1), [0]),
        (torch.ones(2, 4), [0]),
        (torch.ones(4), [0]),
        (torch.ones(1, 3), [0, 1]),
    ):
        with pytest.raises(ValueError, match=r"not \(B"):
            Totals().add(
                one, one, scores, torch.tensor(positive), flops, flops, flops, lambda_query=0.0, lambda_document=0.0
            )


class NoReading(TorchDispatchMode):
    """Fail where a value is read back from the device: on a GPU that waits for all work before it."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function._overloadpacket not in (
            torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.is_nonzero, torch.ops.aten.equal
        ), function  # fmt: skip
        return function(*args, **(kwargs or {}))


def test_adding_reads_nothing_back_and_keeps_no_graph():
    totals = Totals()
    queries = QUERIES.clone().requires_grad_()
    scores = queries @ DOCUMENTS.T
    loss = scores.sum()
    with NoReading():
        totals.add(
            queries, DOCUMENTS, scores, torch.tensor([0, 2]), loss, loss, loss, lambda_query=0.1, lambda_document=0.1
        )
        totals.add(
            queries, DOCUMENTS, scores, torch.tensor([0, 2]), loss, loss, loss, lambda_query=0.1, lambda_document=0.1
        )
    assert not totals.sums.requires_grad and not totals.largest.requires_grad
    with pytest.raises(AssertionError), NoReading():
        float(torch.ones(()))


# Five queries, ten documents; rank 0 has three queries in two micro-batches, rank 1 two in one.
SHARES = [[(0, 1), (2,)], [(3, 4)]]


def five_queries():
    generator = torch.Generator().manual_seed(3)
    queries, documents = (torch.rand(n, 50, generator=generator) - 0.6 for n in (5, 10))
    queries, documents = queries.relu(), documents.relu()
    queries[1] = 0.0
    documents[7] = 0.0
    documents[9, 4] = 30.0  # the largest weight lies on rank 1
    return queries, documents


def add_share(totals, rows):
    queries, documents = five_queries()
    rows = torch.tensor(rows)
    scores = queries @ documents.T  # positives are documents 0 to 4
    losses = scores.logsumexp(dim=1) - scores.diagonal()
    totals.add(
        queries[rows], documents[torch.cat([rows, rows + 5])], scores[rows], rows, losses[rows].mean(),
        queries.mean(dim=0).square().sum(), documents.mean(dim=0).square().sum(), lambda_query=0.05, lambda_document=0.003,
    )  # fmt: skip


def on_a_rank(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    calls = []
    reduce = torch.distributed.all_reduce

    def counting(tensor, op):
        calls.append(str(op))
        return reduce(tensor, op=op)

    torch.distributed.all_reduce = counting
    clock = Clock()
    totals = Totals(clock=clock)
    clock.now = 2.0
    for rows in SHARES[rank]:
        add_share(totals, rows)
    found = totals.figures(step=1, **END)
    if rank == 0:  # a second logging step, with nothing on rank 1
        add_share(totals, (2,))
    lone = totals.figures(step=2, **END)
    (folder / f"{rank}.json").write_text(json.dumps([found, lone["positive_score"], len(calls)]))
    torch.distributed.destroy_process_group()


def test_two_processes_give_the_figures_of_one(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.multiprocessing.spawn(on_a_rank, args=(tmp_path,), nprocs=2)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert ranks[0] == ranks[1]
    clock = Clock()
    totals = Totals(clock=clock)
    clock.now = 2.0
    add_share(totals, (0, 1, 2, 3, 4))
    expected = totals.figures(step=1, **END)
    found, lone, calls = ranks[0]
    assert found == pytest.approx(expected, rel=1e-6)
    assert found["largest_weight"] == 30.0 and found["query_empty"] == 0.2 and found["document_empty"] == 0.1
    queries, documents = five_queries()
    assert lone == pytest.approx(float(queries[2] @ documents[2]))
    assert calls == 4  # one for sums and one for maxima, per logging step


# ---- the log


def steps_of(path):
    return [record["step"] for record in read_log(path)]


def test_log_is_strict_json_and_names_what_is_not_finite(tmp_path):
    log = JsonlLog(tmp_path / "run" / "log.jsonl")
    log.write({"step": 10, "loss": math.nan, "gradient_norm": -math.inf, "epoch": 0.5, "steps_per_second": None})
    log.write({"step": 20, "loss": 1.5, "epoch": 1.0})
    text = log.path.read_text()
    assert text.count("\n") == 2 and text.endswith("\n") and "NaN" not in text and "Infinity" not in text
    first, second = read_log(log.path)
    assert first == {"step": 10, "loss": None, "gradient_norm": None, "epoch": 0.5, "steps_per_second": None,
                     "not_finite": ["loss", "gradient_norm"]}  # fmt: skip
    assert second == {"step": 20, "loss": 1.5, "epoch": 1.0}
    for figures in ({"loss": 1.0}, {"step": 1.0}, {"step": True}):
        with pytest.raises(ValueError, match="integer step"):
            log.write(figures)
    assert steps_of(log.path) == [10, 20]


def test_a_new_run_does_not_continue_another_log(tmp_path):
    path = tmp_path / "log.jsonl"
    JsonlLog(path).write({"step": 1})
    with pytest.raises(ConfigError, match="earlier run"):
        JsonlLog(path)
    assert steps_of(path) == [1]


@pytest.mark.parametrize("rest", ["", '{"step": 40, "lo', '{"step": 40, "name": "\\u00e9', "{"])
def test_resume_cuts_off_later_steps_and_a_half_line(tmp_path, rest):
    path = tmp_path / "log.jsonl"
    lines = [f'{{"step":   {step}, "loss": 1.0}}\n' for step in (10, 20, 30)]
    path.write_text("".join(lines) + rest)
    assert steps_of(path) == [10, 20, 30]
    log = JsonlLog(path, resume_step=20)
    assert path.read_text() == "".join(lines[:2])  # kept as they were, to the byte
    log.write({"step": 30, "loss": 2.0})
    assert steps_of(path) == [10, 20, 30]
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.jsonl"]


def test_resume_at_the_last_step_drops_the_half_line_alone(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 10}\n{"step": 20, "x": "\xc3')  # cut in the middle of a character
    JsonlLog(path, resume_step=25).write({"step": 30})
    assert path.read_bytes() == b'{"step": 10}\n{"step": 30}\n'
    JsonlLog(path, resume_step=0)
    assert path.read_bytes() == b""
    JsonlLog(tmp_path / "none.jsonl", resume_step=5).write({"step": 6})
    assert steps_of(tmp_path / "none.jsonl") == [6]


def test_a_whole_last_line_without_its_end_is_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 10}\n{"step": 20}')
    JsonlLog(path, resume_step=20).write({"step": 30})
    assert steps_of(path) == [10, 20, 30]


def test_a_failed_cut_leaves_the_log(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 10}\n{"step": 20}\n')

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(ConfigError, match="No space left"):
        JsonlLog(path, resume_step=10)
    assert steps_of(path) == [10, 20]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"step": 2, "loss"', "not JSON"),
        (b'{"step": 2, "loss": NaN}', "NaN is not JSON"),
        (b"[2]", "not a JSON object"),
        (b'{"loss": 2}', 'no integer under "step"'),
        (b'{"step": true}', 'no integer under "step"'),
        (b"", "not JSON"),
        (b'{"step": 2, "name": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_lines_are_named(tmp_path, line, reason):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    for act in (read_log, lambda path: JsonlLog(path, resume_step=1)):
        with pytest.raises(DataError, match=reason) as caught:
            act(path)
        assert f"{path}, line 2: " in str(caught.value) and "\n" not in str(caught.value)


def test_a_log_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.jsonl"):
        read_log(tmp_path / "nothing.jsonl")


# ---- the watch


@dataclasses.dataclass
class Settings:
    action: str = "stop"
    dense: float = 0.5
    empty: float = 0.25
    patience: int = 3
    after: float = 0.1


def figures(step, **changed):
    plain = {
        "step": step, "loss": 1.0, "contrastive": 0.9, "regularizer": 0.1, "gradient_norm": 1.0, "largest_weight": 2.0,
        "query_active": 10.0, "document_active": 20.0, "query_empty": 0.0, "document_empty": 0.0,
    }  # fmt: skip
    return plain | changed


def observe(watch, *changes, first=100):
    return [watch.observe(figures(first + n, **change)) for n, change in enumerate(changes)]


FINE = {}
DENSE = {"document_active": 501.0}
DENSE_QUERIES = {"query_active": 501.0}
EMPTY = {"document_empty": 0.26}
EMPTY_QUERIES = {"query_empty": 0.26}


@pytest.mark.parametrize("beyond", [DENSE, DENSE_QUERIES, EMPTY, EMPTY_QUERIES])
def test_patience_counts_consecutive_steps(beyond):
    found = observe(Watch(Settings(), 1000, 1000), beyond, beyond, FINE, beyond, beyond, beyond, beyond)
    assert [bool(reason) for reason in found] == [False, False, False, False, False, True, True]


def test_limits_themselves_are_within():
    watch = Watch(Settings(patience=1), 1000, 1000)
    assert watch.observe(figures(100, document_active=500.0, query_empty=0.25)) is None


def test_one_side_after_the_other_is_the_same_collapse():
    assert observe(Watch(Settings(), 1000, 1000), DENSE, DENSE_QUERIES, DENSE)[-1].startswith("dense vectors")


def test_dense_and_empty_do_not_add_up():
    assert observe(Watch(Settings(), 1000, 1000), DENSE, EMPTY, DENSE, EMPTY) == [None] * 4


def test_a_dense_start_is_not_counted():
    watch = Watch(Settings(after=0.1), 1000, 1000)
    assert observe(watch, *[DENSE] * 5, first=95) == [None] * 5  # steps 95 to 99 of 1,000
    assert [bool(reason) for reason in observe(watch, *[DENSE] * 3, first=100)] == [False, False, True]
    assert observe(Watch(Settings(), 1000, 1000), EMPTY, EMPTY, EMPTY, first=1)[-1]  # empty counts from the first step


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["loss", "contrastive", "regularizer", "gradient_norm"])
def test_what_is_not_finite_counts_at_once(name, value):
    reason = Watch(Settings(patience=99), 1000, 1000).observe(figures(1, **{name: value}))
    assert reason.startswith("not finite") and f"{name} = {value}" in reason


def test_an_unknown_gradient_norm_is_no_fault():
    assert Watch(Settings(), 1000, 1000).observe(figures(1, gradient_norm=None)) is None


def test_reasons_hold_the_numbers_and_the_cure():
    dense = observe(Watch(Settings(), 1000, 983), *[{"query_active": 40.0, "document_active": 861.0}] * 3)[-1]
    for part in ("queries have 40 terms (4%)", "documents have 861 terms (86%) of 1,000", "more than 50%",
                 "3 logging steps", "step 102 of 983", "larger k or an offset"):  # fmt: skip
        assert part in dense
    empty = observe(Watch(Settings(), 1000, 983), *[{"query_empty": 0.5, "document_empty": 0.75}] * 3)[-1]
    for part in ("50% of queries", "75% of documents", "more than 25%", "smaller k or smaller lambdas"):
        assert part in empty
    lost = Watch(Settings(), 1000, 983).observe(figures(7, loss=math.nan, largest_weight=math.inf))
    assert "step 7 of 983" in lost and "larger k" in lost
    assert not any("\n" in reason for reason in (dense, empty, lost))


def test_warnings_come_once_per_kind():
    watch = Watch(Settings(action="warn"), 1000, 1000)
    both = DENSE | EMPTY
    found = observe(watch, both, both, both, both, both, FINE, *[DENSE] * 4, {"loss": math.nan}, {"loss": math.nan})
    assert [reason and reason.split(":")[0] for reason in found] == [
        None, None, "empty vectors", "dense vectors", *[None] * 6, "not finite", None
    ]  # fmt: skip


@pytest.mark.parametrize("action", ["stop", "warn"])
@pytest.mark.parametrize("cut", range(8))
def test_a_resumed_watch_goes_on_where_it_was(action, cut):
    changes = [DENSE, DENSE, DENSE | EMPTY, DENSE | EMPTY, EMPTY, FINE, DENSE, DENSE]
    expected = observe(Watch(Settings(action), 1000, 1000), *changes)
    first, second = (Watch(Settings(action), 1000, 1000) for _ in range(2))
    found = observe(first, *changes[:cut])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert found + observe(second, *changes[cut:], first=100 + cut) == expected
    with pytest.raises(ValueError, match="not a state"):
        second.load_state_dict({"streaks": {"dense": 1}, "given": []})
