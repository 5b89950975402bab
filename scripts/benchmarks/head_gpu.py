"""The fused SPLADE head beside the plain form on a GPU: head forward and backward alone, and whole training steps.

    PYTHONPATH=. python scripts/benchmarks/head_gpu.py
    PYTHONPATH=. python scripts/benchmarks/head_gpu.py --device cpu --small

Needs PyTorch and transformers, nothing else; the package need not be installed. Random models of base size: BERT
(|V| 30,522) and ModernBERT (|V| 50,368). A step is 64 triples of 256 tokens under bf16 autocast with float32 weights
(``--weights bfloat16``: the model itself in bf16, as DeepSpeed holds it): in-batch loss and FLOPS (arXiv 2606.18811, Eq. 4
and 5), AdamW. First both forms are compared in float32. Then they take turns; medians are printed. Memory is what
PyTorch's allocator holds at its peak over what it held before. The head alone is run with the bias lowered until a
given share of the (B, |V|) entries is above 0, since the fused backward depends on it, and with each of its two ways.

``--device cpu --small`` is for trying the script, not for figures.
"""

import argparse
import contextlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from torch import nn

from pyserini_rescale.model import fused
from pyserini_rescale.model.head import find_head
from pyserini_rescale.model.splade import max_logits, plain_pool

MODELS = {
    "bert": ("BertConfig", {"vocab_size": 30522}),
    "modernbert": ("ModernBertConfig", {"vocab_size": 50368}),
}
SMALL = {
    "vocab_size": 500,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
NEVER, ALWAYS = 0, 2**62  # values of fused._ENTRY_*: never the dense way, always


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS), help="default: all")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ..., or cpu with --small (default cuda)")
    parser.add_argument("--small", action="store_true", help="tiny models and steps, to try the script")
    parser.add_argument("--triples", type=int, default=64, help="triples in a step (default 64)")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of every text (default 256)")
    parser.add_argument("--weights", choices=("float32", "bfloat16"), default="float32", help="type of the weights")
    parser.add_argument(
        "--shares", nargs="+", type=float, default=[0.01, 0.1, 1.0], help="active entries (default 0.01 0.1 1)"
    )
    parser.add_argument("--runs", type=int, default=10, help="counted turns of each form (default 10)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def build(name: str, small: bool) -> transformers.PreTrainedModel:
    kind, values = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{**values, **(SMALL if small else {})})
    return transformers.AutoModelForMaskedLM.from_config(config)


@contextlib.contextmanager
def entry_cost(value: int | None) -> Iterator[None]:
    """Within this context the backward's choice is made with ``value``; None leaves it alone."""
    before = fused._ENTRY_CPU, fused._ENTRY_DEVICE
    if value is not None:
        fused._ENTRY_CPU = fused._ENTRY_DEVICE = value
    try:
        yield
    finally:
        fused._ENTRY_CPU, fused._ENTRY_DEVICE = before


class Device:
    """What is asked of a device: to finish its work, and how much memory it holds (0 on a CPU)."""

    def __init__(self, name: str) -> None:
        self.device = torch.device(name)
        self.cuda = self.device.type == "cuda"

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def held(self) -> int:
        if not self.cuda:
            return 0
        torch.cuda.reset_peak_memory_stats(self.device)
        return torch.cuda.memory_allocated(self.device)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self.device) if self.cuda else 0


def in_turns(
    works: dict[str, Callable[[], tuple[float, ...]]], runs: int, device: Device
) -> dict[str, dict[str, Any] | None]:
    """Return for each work the medians of the milliseconds it reports and its added peak bytes; None: out of memory."""
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in works}
    added: dict[str, int] = {}
    failed = set()
    for turn in range(runs + 2):  # two to warm up
        for name, work in works.items():
            if name in failed:
                continue
            before = device.held()
            try:
                result = work()
            except torch.OutOfMemoryError:
                failed.add(name)
                torch.cuda.empty_cache()
                continue
            added[name] = device.peak() - before
            if turn >= 2:
                times[name].append(result)
    return {
        name: None
        if name in failed
        else {
            "ms": [statistics.median(column) * 1000 for column in zip(*times[name], strict=True)],
            "added_peak_bytes": added[name],
        }
        for name in works
    }


def plain(hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return plain_pool(nn.functional.linear(hidden, weight, bias), mask)


def compare(model: transformers.PreTrainedModel, tokens: int, device: Device) -> dict[str, float]:
    """Return relative differences between the forms in float32, for vectors and for the gradient of the weights."""
    head = find_head(model)
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(6, tokens, head.weight.shape[1], generator=generator).to(device.device)
    mask = torch.ones(6, tokens, dtype=torch.long, device=device.device)
    mask[3:, tokens // 2 :] = 0
    weight = head.weight.detach().float()
    upstream = torch.randn(6, len(weight), generator=generator).to(device.device)
    found = {}
    for name, form in (("plain", plain), ("fused", fused.fused_pool)):
        leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
        vectors = form(leaves[0], mask, leaves[1], None)
        vectors.backward(upstream)
        found[name] = [vectors.detach(), leaves[0].grad, leaves[1].grad]
    names = ("vectors", "hidden", "weight")
    return {
        what: float((ours - theirs).norm() / theirs.norm())
        for what, ours, theirs in zip(names, found["fused"], found["plain"], strict=True)
    }


def head_alone(
    model: transformers.PreTrainedModel, share: float, args: argparse.Namespace, device: Device
) -> dict[str, Any]:
    """Time forward and backward of the head with ``share`` of the entries (B, V) active."""
    head = find_head(model)
    dtype = getattr(torch, args.weights)
    texts = 3 * args.triples
    hidden = torch.randn(texts, args.tokens, head.weight.shape[1], device=device.device).to(dtype)
    mask = torch.ones(texts, args.tokens, dtype=torch.long, device=device.device)
    weight = head.weight.detach().to(dtype)
    with torch.no_grad(), torch.autocast(device.device.type, torch.bfloat16):
        some = max_logits(hidden[:8], mask[:8], weight, None).flatten()
    cut = some.sort().values[min(len(some) - 1, int((1 - share) * len(some)))]
    bias = torch.full((len(weight),), -float(cut) + (1.0 if share >= 1 else 0.0), device=device.device, dtype=dtype)
    upstream = torch.randn(texts, len(weight), device=device.device)
    leaves = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]
    active = {}

    def run(name: str, form: Callable[..., torch.Tensor], cost: int | None) -> tuple[float, ...]:
        for leaf in leaves:
            leaf.grad = None
        with entry_cost(cost):
            device.wait()
            start = time.perf_counter()
            with torch.autocast(device.device.type, torch.bfloat16):
                vectors = form(leaves[0], mask, leaves[1], leaves[2])
            device.wait()
            middle = time.perf_counter()
            vectors.backward(upstream)
            device.wait()
        end = time.perf_counter()
        active[name] = float((vectors.detach() > 0).float().mean())
        for leaf in leaves:
            leaf.grad = None
        return middle - start, end - middle

    works = {
        "plain": lambda: run("plain", plain, None),
        "fused": lambda: run("fused", fused.fused_pool, None),
        "fused, sparse way": lambda: run("fused, sparse way", fused.fused_pool, NEVER),
        "fused, dense way": lambda: run("fused, dense way", fused.fused_pool, ALWAYS),
    }
    return {"share": active.get("fused", share), "columns": ["forward", "backward"]} | {
        "forms": in_turns(works, args.runs, device)
    }


def whole_step(model: transformers.PreTrainedModel, args: argparse.Namespace, device: Device) -> dict[str, Any]:
    """Time forward, backward and optimizer of a whole step."""
    head = find_head(model)
    texts = 3 * args.triples
    ids = torch.randint(5, model.config.vocab_size, (texts, args.tokens), device=device.device)
    mask = torch.ones_like(ids)
    labels = torch.arange(args.triples, device=device.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-7)
    model.train()

    def run(form: bool) -> tuple[float, ...]:
        device.wait()
        start = time.perf_counter()
        with torch.autocast(device.device.type, torch.bfloat16):
            vectors = fused.training_vectors(model, head, ids, mask, fused=form)
        queries, documents = vectors[: args.triples], vectors[args.triples :]
        loss = nn.functional.cross_entropy(queries @ documents.T, labels)
        loss = loss + 5e-2 * queries.mean(0).square().sum() + 3e-3 * documents.mean(0).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        device.wait()
        return (time.perf_counter() - start,)

    works = {"plain": lambda: run(False), "fused": lambda: run(True)}
    return {"columns": ["step"], "forms": in_turns(works, args.runs, device)}


def measure(name: str, args: argparse.Namespace, device: Device) -> dict[str, Any]:
    model = build(name, args.small).to(device.device, getattr(torch, args.weights))
    result: dict[str, Any] = {"vocabulary": model.config.vocab_size, "difference": compare(model, args.tokens, device)}
    if max(result["difference"].values()) > 1e-4:
        raise SystemExit(f"error: {name}: plain and fused differ: {result['difference']}")
    result["head"] = [head_alone(model, share, args, device) for share in args.shares]
    result["step"] = whole_step(model, args, device)
    return result


def lines_of(part: dict[str, Any]) -> list[str]:
    lines = []
    base = part["forms"]["plain"]
    for name, found in part["forms"].items():
        if found is None:
            lines.append(f"    {name:<18} out of memory")
            continue
        times = ", ".join(f"{what} {ms:.2f} ms" for what, ms in zip(part["columns"], found["ms"], strict=True))
        line = f"    {name:<18} {times}, added peak {found['added_peak_bytes'] / 2**20:,.0f} MiB"
        if base is not None and name != "plain":
            line += f"; {sum(base['ms']) / sum(found['ms']):.2f} x as fast"
            if base["added_peak_bytes"]:
                line += f", {found['added_peak_bytes'] / base['added_peak_bytes']:.3f} of the memory"
        lines.append(line)
    return lines


def report(result: dict[str, Any]) -> str:
    lines = [f"{name:<13} {value}" for name, value in result["set_up"].items()]
    for name, found in result["models"].items():
        lines += ["", f"{name}, |V| {found['vocabulary']:,}"]
        differs = ", ".join(f"{what} {value:.1e}" for what, value in found["difference"].items())
        lines.append(f"  fused against plain in float32, relative: {differs}")
        for part in found["head"]:
            lines += [f"  head alone, {part['share']:.1%} of the entries active", *lines_of(part)]
        lines += ["  whole step", *lines_of(found["step"])]
    return "\n".join(lines)


def main() -> int:
    args = arguments()
    device = Device(args.device)
    if device.cuda and not torch.cuda.is_available():
        print("error: no GPU here: use --device cpu --small to try the script", file=sys.stderr)
        return 2
    if not device.cuda and not args.small:
        print("error: on a CPU only with --small: figures of a GPU are what this is for", file=sys.stderr)
        return 2
    if args.small:
        args.triples, args.tokens, args.runs = 2, 16, 2
    torch.backends.cuda.matmul.allow_tf32 = False  # the comparison is in float32
    card = torch.cuda.get_device_name(device.device) if device.cuda else f"none ({platform.machine()} CPU)"
    result = {
        "set_up": {
            "card": card,
            "step": f"{args.triples} triples of {args.tokens} tokens, bf16 autocast, {args.weights} weights",
            "runs": args.runs,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "models": {name: measure(name, args, device) for name in args.models},
    }
    print(json.dumps(result, indent=2) if args.json else report(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
