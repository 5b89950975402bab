"""How fast our encoders are beside Pyserini's own ``splade`` classes and sentence-transformers' SparseEncoder.

    python scripts/benchmarks/encode_speed.py --model MODEL --corpus FOLDER/corpus.jsonl [--queries FILE]

Same process, same threads, same batches; without sentence-transformers, beside Pyserini alone. The output is compared
first: impacts of zero dropped from Pyserini's, SparseEncoder's weights quantised by our rule, the share of documents
(and queries) that are identical to ours, and the largest difference of the others. Then they take turns, each with a
model of its own, and medians are printed. Pyserini's classes and ours are timed from text to impacts, SparseEncoder
from text to its sparse tensors. Pyserini 2.3 and later refuse safetensors; there its classes are given a
temporary copy of the weights as pytorch_model.bin, which changes nothing that is timed.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyserini_rescale.cli.tables import aligned
from pyserini_rescale.errors import RescaleError
from pyserini_rescale.plugin import hook

Vectors = list[dict[str, int]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a SPLADE model")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.jsonl in BEIR layout")
    parser.add_argument("--queries", type=Path, help="queries.jsonl in BEIR layout (default: beside the corpus)")
    parser.add_argument("--docs", type=int, default=400, help="documents, from the start of the corpus (default 400)")
    parser.add_argument("--query-count", type=int, default=200, help="queries, encoded one by one (default 200)")
    parser.add_argument("--max-length", type=int, default=256, help="tokens of a document (default 256)")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="documents in a call, Pyserini's default (default 64)"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch (default 2)")
    parser.add_argument("--runs", type=int, default=3, help="counted runs of each (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def read_lines(path: Path, most: int) -> list[dict[str, Any]]:
    """Return the first ``most`` objects of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in itertools.islice(lines, most)]


def folder_for_pyserini(model: str, scratch: str) -> str:
    """Return a folder with the model as pytorch_model.bin, beside its own config and tokenizer, for Pyserini >= 2.3."""
    import torch
    from safetensors.torch import load_file

    for path in Path(model).iterdir():
        if path.suffix != ".safetensors":
            os.symlink(path.resolve(), Path(scratch, path.name))
    torch.save(load_file(Path(model, "model.safetensors")), Path(scratch, "pytorch_model.bin"))
    return scratch


def compare(theirs: Vectors, ours: Vectors) -> dict[str, Any]:
    """Return the share of identical vectors, and the most terms and the most steps by which any other differs."""
    terms, steps, same = 0, 0, 0
    for their, our in zip(theirs, ours, strict=True):
        their = {term: weight for term, weight in their.items() if weight}
        differences = [abs(their.get(term, 0) - our.get(term, 0)) for term in {*their, *our}]
        differences = [difference for difference in differences if difference]
        same += not differences
        terms, steps = max(terms, len(differences)), max([steps, *differences])
    return {"identical": same, "of": len(ours), "most_terms_that_differ": terms, "largest_difference": steps}


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(kinds: dict[str, Callable[[], Any]], runs: int) -> dict[str, float]:
    """Return the median seconds of each kind of work over ``runs`` turns."""
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(runs):
        for name, work in kinds.items():
            times[name].append(timed(work))
    return {name: statistics.median(values) for name, values in times.items()}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    hook.install()
    import torch

    torch.set_num_threads(args.threads)
    import pyserini.encode

    from pyserini_rescale.encode.encoder import SpladeRescaledDocumentEncoder, SpladeRescaledQueryEncoder
    from pyserini_rescale.encode.quantize import sparse_impacts

    documents = read_lines(args.corpus, args.docs)
    queries = [
        line["text"] for line in read_lines(args.queries or args.corpus.with_name("queries.jsonl"), args.query_count)
    ]
    batches = [documents[start : start + args.batch_size] for start in range(0, len(documents), args.batch_size)]
    version = importlib.metadata.version("pyserini")

    with tempfile.TemporaryDirectory() as scratch:
        copied = tuple(int(part) for part in version.split(".")[:2]) >= (2, 3)
        their_model = folder_for_pyserini(args.model, scratch) if copied else args.model
        encoders = {
            "pyserini": pyserini.encode.SpladeDocumentEncoder(their_model, device="cpu"),
            "ours": SpladeRescaledDocumentEncoder(args.model, device="cpu", batch_size=args.batch_size),
        }
        query_encoders = {
            "pyserini": pyserini.encode.SpladeQueryEncoder(their_model, device="cpu"),
            "ours": SpladeRescaledQueryEncoder(args.model, device="cpu"),
        }
    if importlib.util.find_spec("sentence_transformers"):
        from sentence_transformers import SparseEncoder

        encoders["sentence-transformers"] = query_encoders["sentence-transformers"] = sparse_encoder = SparseEncoder(
            args.model, device="cpu", model_kwargs={"dtype": torch.float32}
        )
        sparse_encoder.max_seq_length = args.max_length

    def to_impacts(tensors: list[torch.Tensor]) -> Vectors:
        """Return sparse tensors (V) as Pyserini writes vectors."""
        ours = encoders["ours"]
        dense = torch.stack([tensor.to_dense() for tensor in tensors]).numpy()
        pairs = sparse_impacts(dense, ours.policy.weight_range, ours.policy.quant_range)
        return [dict(zip(ours.terms[ids].tolist(), impacts.tolist(), strict=True)) for ids, impacts in pairs]

    def encode_documents(name: str) -> Any:
        if name == "sentence-transformers":
            texts = [f"{line['title']} {line['text']}" if line.get("title") else line["text"] for line in documents]
            return list(sparse_encoder.encode_document(texts, batch_size=args.batch_size, show_progress_bar=False))
        vectors: Vectors = []
        for batch in batches:
            texts, titles = [line["text"] for line in batch], [line.get("title", "") for line in batch]
            vectors += encoders[name].encode(texts=texts, titles=titles, max_length=args.max_length)
        return vectors

    def encode_queries(name: str) -> Any:
        if name == "sentence-transformers":
            return [sparse_encoder.encode_query(text, show_progress_bar=False) for text in queries]
        return [query_encoders[name].encode(text) for text in queries]

    result: dict[str, Any] = {"documents": {}, "queries": {}}
    others = [name for name in encoders if name != "ours"]
    for what, encode in (("documents", encode_documents), ("queries", encode_queries)):
        ours = encode("ours")
        same = {}
        for name in others:
            found = encode(name)
            same[name] = compare(to_impacts(found) if name == "sentence-transformers" else found, ours)
        seconds = in_turns({name: functools.partial(encode, name) for name in encoders}, args.runs)
        ratios = {name: seconds[name] / seconds["ours"] for name in others}
        result[what].update(same_output=same, seconds=seconds, times_as_fast=ratios)
    result["matrix_product"] = share_of_peak(
        encoders["ours"], documents, args.max_length, result["documents"]["seconds"]["ours"]
    )
    result["set_up"] = {
        "pyserini": version + (" (given the weights as pytorch_model.bin)" if copied else ""),
        "sentence-transformers": importlib.metadata.version("sentence-transformers") if len(others) > 1 else None,
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "load": [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "runs": args.runs,
        "max_length": args.max_length,
        "batch_size": args.batch_size,
    }
    return result


def share_of_peak(encoder: Any, documents: list[dict[str, Any]], length: int, seconds: float) -> dict[str, float]:
    """Return the matrix products of encoding the documents, in GFLOP, the rate they ran at and the machine's peak.

    Counted: two operations for each weight of a linear layer and token, and attention's products, whether they are made
    or not: our encoder leaves out terms that cannot be active, so its share may pass 100 %. The peak is the best
    of five products of two square matrices of 2,048.
    """
    import torch

    texts = [f"{line['title']} {line['text']}" if line.get("title") else line["text"] for line in documents]
    lengths = [len(ids) for ids in encoder.tokenizer(texts, truncation=True, max_length=length)["input_ids"]]
    head = encoder.model.get_output_embeddings()
    weights = sum(module.weight.numel() for module in encoder.model.modules() if isinstance(module, torch.nn.Linear))
    width, layers = encoder.model.config.hidden_size, encoder.model.config.num_hidden_layers
    work = sum(2 * weights * tokens + 4 * layers * width * tokens**2 for tokens in lengths)
    square = torch.rand(2048, 2048)
    best = min(timed(lambda: torch.mm(square, square)) for _ in range(5))
    peak = 2 * 2048**3 / best
    return {
        "gflop": work / 1e9,
        "of_it_head": 2 * head.weight.numel() * sum(lengths) / work,
        "gflop_per_second": work / seconds / 1e9,
        "peak_gflop_per_second": peak / 1e9,
        "share_of_peak": work / seconds / peak,
    }


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def report(result: dict[str, Any]) -> str:
    rows = [["", "theirs", "ours", "times as fast", "identical", "others differ by"]]
    for what in ("documents", "queries"):
        part = result[what]
        seconds = part["seconds"]
        for name, same in part["same_output"].items():
            unit, scale = ("s", 1) if what == "documents" else ("ms each", 1000 / same["of"])
            differs = (
                f"{same['largest_difference']} in {same['most_terms_that_differ']} terms"
                if same["identical"] < same["of"]
                else "-"
            )
            rows.append(
                [f"{name}, {same['of']} {what}, {unit}", f"{seconds[name] * scale:.2f}",
                 f"{seconds['ours'] * scale:.2f}", f"{part['times_as_fast'][name]:.1f}",
                 f"{same['identical']} of {same['of']}", differs]
            )  # fmt: skip
    product = result["matrix_product"]
    share = (
        f"matrix products: {product['gflop']:.0f} GFLOP for the documents, {product['of_it_head']:.0%} of them the head's; "
        f"{product['gflop_per_second']:.0f} GFLOP/s, {product['share_of_peak']:.0%} of this machine's "
        f"{product['peak_gflop_per_second']:.0f}"
    )
    return (
        aligned(rows)
        + f"\n\n{share}\n\n"
        + "\n".join(f"{name:<21} {value}" for name, value in result["set_up"].items())
    )


def finish(
    args: argparse.Namespace,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    report: Callable[[dict[str, Any]], str],
) -> int:
    """Measure and print, as a table or as JSON; return the exit status."""
    try:
        result = measure(args)
    except (RescaleError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, indent=2) if args.json else report(result))
    return 0


if __name__ == "__main__":
    sys.exit(finish(arguments(), measure, report))
