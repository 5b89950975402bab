"""One training step: sentence-transformers' SparseEncoderTrainer with SpladeLoss, our plain form, our fused form.

    python scripts/benchmarks/training_step.py --model FOLDER
    python scripts/benchmarks/training_step.py --random modernbert

Needs sentence-transformers. Same texts, same loss (in-batch candidates and FLOPS on both sides, arXiv 2606.18811, Eq. 4
and 5), AdamW and the loop of transformers.Trainer for all three, on the CPU in float32. First loss and gradients
are compared, with dropout off. Then the three take turns; a step is timed from the end of the one before to its own
end, tokenising included, and medians are printed, of the clock's seconds and of the processor's (user and system), which
depend less on what else the machine does. Peak memory is the kernel's high-water mark of resident memory (VmHWM,
reset before the step) over what was resident before the step, in a process of its own for each form; that step is the
optimizer's first, so the optimizer's state is in the figure, for all three alike. Linux only.
"""

import argparse
import importlib.metadata
import itertools
import json
import logging
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PrinterCallback, Trainer, TrainerCallback

from pyserini_rescale.cli.tables import aligned
from pyserini_rescale.model.fused import training_vectors
from pyserini_rescale.model.head import find_head, load_masked_lm

THEIRS, PLAIN, FUSED = "sentence-transformers", "plain", "fused"
FORMS = (THEIRS, PLAIN, FUSED)
LAMBDA_QUERY, LAMBDA_DOCUMENT = 5e-2, 3e-3
COLUMNS = ("query", "positive", "negative")

RANDOM = {
    "modernbert": (
        "ModernBertConfig",
        {
            "vocab_size": 50368,
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 384,
            "max_position_embeddings": 512,
            "pad_token_id": 0,
            "bos_token_id": 2,
            "cls_token_id": 2,
            "eos_token_id": 3,
            "sep_token_id": 3,
        },
    )
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="folder of a masked language model or SPLADE model")
    which.add_argument("--random", choices=sorted(RANDOM), help="a random model: 4 layers x 256, |V| 50,368")
    parser.add_argument("--triples", type=int, default=16, help="triples in a step (default 16)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of every text (default 128)")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch (default 1)")
    parser.add_argument("--turns", type=int, default=3, help="turns of each form (default 3)")
    parser.add_argument(
        "--steps", type=int, default=2, help="counted steps in a turn, after one that is not (default 2)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--memory-of", choices=FORMS, help=argparse.SUPPRESS)  # the process that measures one form
    return parser.parse_args()


def write_random_model(name: str, folder: str) -> None:
    """Save a random model and a tokenizer of whole words to ``folder``."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    kind, values = RANDOM[name]
    torch.manual_seed(0)
    model = transformers.AutoModelForMaskedLM.from_config(getattr(transformers, kind)(**values))
    model.save_pretrained(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = "abcdefghijklmnop"  # a word for each number, in base 16
    words = [
        "".join(letters[int(digit, 16)] for digit in f"{i:04x}") for i in range(values["vocab_size"] - len(special))
    ]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(special + words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=512, **names).save_pretrained(folder)


def make_texts(tokenizer: PreTrainedTokenizerBase, count: int, tokens: int, seed: int = 0) -> list[str]:
    """Return texts of exactly ``tokens`` tokens, special ones included, of words that are one token each."""
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and word.islower())
    length = tokens - tokenizer.num_special_tokens_to_add()
    drawn = random.Random(seed)
    texts = [" ".join(drawn.choices(words, k=length)) for _ in range(count)]
    if {len(ids) for ids in tokenizer(texts)["input_ids"]} != {tokens}:
        raise SystemExit("error: this tokenizer splits its own lower-case words, so texts of one length cannot be made")
    return texts


def training_loss(vectors: torch.Tensor) -> torch.Tensor:
    """Return contrastive loss and FLOPS of vectors (3 B, V), queries, then positives, then negatives."""
    queries, documents = vectors[: len(vectors) // 3], vectors[len(vectors) // 3 :]
    loss = nn.functional.cross_entropy(queries @ documents.T, torch.arange(len(queries)))
    loss = loss + LAMBDA_QUERY * queries.mean(0).square().sum()
    return loss + LAMBDA_DOCUMENT * documents.mean(0).square().sum()


class Ours(nn.Module):
    """What transformers.Trainer trains: ids and mask of 3 B texts in, the loss out."""

    def __init__(self, folder: str, fused: bool) -> None:
        super().__init__()
        self.model = load_masked_lm(folder)
        self.head = find_head(self.model)
        self.fused = fused

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": training_loss(training_vectors(self.model, self.head, input_ids, attention_mask, self.fused))}


class Form:
    """One of the three, with a model of its own."""

    def __init__(self, name: str, folder: str, tokens: int) -> None:
        self.name, self.folder = name, folder
        if name == THEIRS:
            from sentence_transformers import SparseEncoder
            from sentence_transformers.sparse_encoder import losses

            self.model = SparseEncoder(folder, device="cpu", model_kwargs={"dtype": torch.float32})
            self.model.max_seq_length = tokens
            self.tokenizer = self.model.tokenizer
            self.loss = losses.SpladeLoss(
                self.model,
                losses.SparseMultipleNegativesRankingLoss(self.model, scale=1.0),
                document_regularizer_weight=LAMBDA_DOCUMENT,
                query_regularizer_weight=LAMBDA_QUERY,
            )
        else:
            self.model = Ours(folder, fused=name == FUSED)
            self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def collate(self, rows: list[dict[str, str]]) -> dict[str, torch.Tensor]:
        texts = [row[column] for column in COLUMNS for row in rows]
        batch = self.tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
        return dict(batch)

    def loss_and_gradients(self, rows: list[dict[str, str]]) -> tuple[float, torch.Tensor, float]:
        """Return loss, all gradients as one vector, and the mean number of active terms, with dropout off."""
        modules = [module for module in self.model.modules() if isinstance(module, nn.Dropout)]
        before = [module.p for module in modules]
        for module in modules:
            module.p = 0.0
        self.model.train()
        if self.name == THEIRS:
            features = [dict(self.model.preprocess([row[column] for row in rows])) for column in COLUMNS]
            loss = torch.stack(list(self.loss(features).values())).sum()
        else:
            loss = self.model(**self.collate(rows))["loss"]
        loss.backward()
        named = dict(find_inner(self.model).named_parameters())
        gradients = torch.cat([named[name].grad.flatten() for name in sorted(named) if named[name].grad is not None])
        active = 0.0
        if self.name == FUSED:
            with torch.no_grad():
                vectors = training_vectors(self.model.model, self.model.head, **self.collate(rows))
            active = float((vectors > 0).sum(1).float().mean())
        self.model.zero_grad()
        for module, p in zip(modules, before, strict=True):
            module.p = p
        return loss.item(), gradients, active

    def trainer(self, rows: list[dict[str, str]], steps: int, scratch: str, callback: TrainerCallback) -> Trainer:
        from datasets import Dataset

        options = {
            "output_dir": scratch,
            "per_device_train_batch_size": len(rows),
            "max_steps": steps,
            "learning_rate": 1e-6,  # so that the model, and with it the share of active terms, stays what it is
            "use_cpu": True,
            "save_strategy": "no",
            "logging_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
        }
        data = Dataset.from_list(rows)
        if self.name == THEIRS:
            from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments

            trainer = SparseEncoderTrainer(
                model=self.model, args=SparseEncoderTrainingArguments(**options), train_dataset=data, loss=self.loss
            )
        else:
            trainer = Trainer(
                model=self.model,
                args=transformers.TrainingArguments(**options, remove_unused_columns=False),
                train_dataset=data,
                data_collator=self.collate,
            )
        trainer.add_callback(callback)
        trainer.remove_callback(PrinterCallback)
        return trainer


def find_inner(model: nn.Module) -> nn.Module:
    """Return the transformers model inside."""
    return next(module for module in model.modules() if isinstance(module, transformers.PreTrainedModel))


class Clock(TrainerCallback):
    """Seconds from the end of each step to the end of the next: the clock's and the processor's."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def on_step_end(self, *args: Any, **named: Any) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))

    @property
    def seconds(self) -> list[tuple[float, float]]:
        return [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(self.ends)]


class Memory(TrainerCallback):
    """Resident memory before the step, and its peak within the step, in bytes."""

    before = peak = 0

    def on_step_begin(self, *args: Any, **named: Any) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew from here
        self.before = status("VmRSS")

    def on_step_end(self, *args: Any, **named: Any) -> None:
        self.peak = status("VmHWM")


def status(key: str) -> int:
    """Return a figure of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"error: the kernel does not tell {key}")


def make_rows(folder: str, triples: int, tokens: int) -> list[dict[str, str]]:
    texts = make_texts(AutoTokenizer.from_pretrained(folder), 3 * triples, tokens)
    return [dict(zip(COLUMNS, texts[3 * i : 3 * i + 3], strict=True)) for i in range(triples)]


def memory_of(name: str, folder: str, triples: int, tokens: int) -> int:
    """Return the bytes that one step adds at its peak; texts of 8 tokens first, for what is set up only once."""
    form = Form(name, folder, tokens)
    memory = Memory()
    with tempfile.TemporaryDirectory() as scratch:
        form.trainer(make_rows(folder, triples, 8), 1, scratch, TrainerCallback()).train()
        form.model.zero_grad()
        form.trainer(make_rows(folder, triples, tokens), 1, scratch, memory).train()
    return memory.peak - memory.before


def memory_in_a_process(name: str, folder: str, args: argparse.Namespace) -> int:
    options = ["--triples", str(args.triples), "--tokens", str(args.tokens), "--threads", str(args.threads)]
    # Large blocks go back to the system when freed: what is resident is what is held.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, __file__, "--model", folder, "--memory-of", name, *options],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"error: memory of {name} could not be measured:\n{done.stderr[-2000:]}")
    return int(done.stdout.splitlines()[-1])


def measure(folder: str, args: argparse.Namespace) -> dict[str, Any]:
    rows = make_rows(folder, args.triples, args.tokens)
    forms = {name: Form(name, folder, args.tokens) for name in FORMS}

    results = {name: form.loss_and_gradients(rows) for name, form in forms.items()}
    loss, gradients, active = results[FUSED]
    same = {}
    for name in (THEIRS, PLAIN):
        other_loss, other_gradients, _ = results[name]
        same[name] = {
            "loss": abs(other_loss - loss) / abs(loss),
            "gradients": float((other_gradients.double() - gradients).norm() / gradients.double().norm()),
        }
        if not (same[name]["loss"] < 1e-5 and same[name]["gradients"] < 1e-3):
            raise SystemExit(f"error: {name} computes something else than fused: relative differences {same[name]}")

    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in FORMS}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(args.turns):
            for name, form in forms.items():
                clock = Clock()
                form.trainer(rows, args.steps + 1, scratch, clock).train()
                seconds[name] += clock.seconds
    median = {name: statistics.median(clock for clock, _ in values) for name, values in seconds.items()}
    worked = {name: statistics.median(cpu for _, cpu in values) for name, values in seconds.items()}
    added = {name: memory_in_a_process(name, folder, args) for name in FORMS}
    return {
        "loss": loss,
        "active_terms": active,
        "relative_difference_to_fused": same,
        "seconds_of_a_step": median,
        "shortest_and_longest": {name: [min(values)[0], max(values)[0]] for name, values in seconds.items()},
        "processor_seconds_of_a_step": worked,
        "added_peak_bytes": added,
        "fused_times_as_fast_as": {name: median[name] / median[FUSED] for name in (THEIRS, PLAIN)},
        "fused_times_as_fast_as_by_processor_time": {name: worked[name] / worked[FUSED] for name in (THEIRS, PLAIN)},
        "fused_share_of_the_memory_of": {name: added[FUSED] / added[name] for name in (THEIRS, PLAIN)},
        "set_up": {
            "model": args.random and f"random {args.random}" or Path(folder).name,
            "step": f"{args.triples} triples of {args.tokens} tokens, float32",
            "sentence-transformers": importlib.metadata.version("sentence-transformers"),
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "cpu": cpu_name(),
            "threads": torch.get_num_threads(),
            "load": [round(value, 1) for value in os.getloadavg()],
            "steps": f"{args.turns} turns of {args.steps}",
        },
    }


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def report(result: dict[str, Any]) -> str:
    rows = [["", "ms a step", "shortest - longest", "processor ms", "added peak MiB",
             "fused is faster by", "by processor time", "fused needs of its memory"]]  # fmt: skip
    for name in FORMS:
        low, high = result["shortest_and_longest"][name]
        row = [name, f"{result['seconds_of_a_step'][name] * 1000:.0f}", f"{low * 1000:.0f} - {high * 1000:.0f}"]
        row += [f"{result['processor_seconds_of_a_step'][name] * 1000:.0f}"]
        row += [f"{result['added_peak_bytes'][name] / 2**20:.0f}"]
        if name == FUSED:
            row += ["-", "-", "-"]
        else:
            row += [f"{result['fused_times_as_fast_as'][name]:.2f} x"]
            row += [f"{result['fused_times_as_fast_as_by_processor_time'][name]:.2f} x"]
            row += [f"1/{1 / result['fused_share_of_the_memory_of'][name]:.1f}"]
        rows.append(row)
    lines = [f"loss {result['loss']:.6g}, active terms {result['active_terms']:.0f} a text"]
    for name, same in result["relative_difference_to_fused"].items():
        lines.append(f"{name} against fused: loss {same['loss']:.1e}, gradients {same['gradients']:.1e} (relative)")
    lines += ["", aligned(rows), ""]
    return "\n".join(lines + [f"{name:<21} {value}" for name, value in result["set_up"].items()])


def main() -> int:
    args = arguments()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    if args.memory_of:
        print(memory_of(args.memory_of, args.model, args.triples, args.tokens))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.model
        if args.random:
            folder = scratch
            write_random_model(args.random, scratch)
        result = measure(folder, args)
    print(json.dumps(result, indent=2) if args.json else report(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
