"""How the mini backbones of the package were made: texts, tokenizer, masked-language modelling. 40 minutes of one core each.

    python scripts/pretrain_mini.py texts --work runs/mini               # fetches packages, extracts what they explain
    python scripts/pretrain_mini.py train modernbert --work runs/mini
    python scripts/pretrain_mini.py train bert --work runs/mini

The recipe (packages with exact versions, caps, sizes, steps) is pretrain_mini.yaml beside this file; packages come
through pip and npm, nothing of them is run or installed. A text is a docstring, a description out of an API's JSON, or
a paragraph of prose. Docstrings of the standard library are left out, since they are the test collection: every text
that holds a query's or a document's words of that collection is dropped, whoever wrote it (packages carry copies).
texts.json and log.jsonl say what came out. Float16 weights and the tokenizer end in WORK/TYPE/model.

A type may go through several stages, first short pieces in small batches, then longer ones. BERT needs that at this size: its
positions are learned one by one, and with 256 tokens a piece and 1,200 steps it stayed at the loss of single words.
"""

import argparse
import gzip
import hashlib
import html
import inspect
import json
import random
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from array import array
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from pyserini_rescale.docstrings import Overlap, docstrings_of, read_passages
from pyserini_rescale.files import write_json

RECIPE = Path(__file__).with_suffix(".yaml")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_TAG = re.compile(r"<[^>]+>")
_SPACE = re.compile(r"\s+")
_CODE = re.compile(r"^\s*(>>>|\.\.\.|\$ |#|@)")
_WORD = re.compile(r"[A-Za-z][a-z]+")
_HELD_OUT = 512  # chunks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    texts = actions.add_parser("texts", help="fetch packages and extract texts")
    train = actions.add_parser("train", help="make a tokenizer and pretrain")
    train.add_argument("type", choices=("modernbert", "bert"))
    for action in (texts, train):
        action.add_argument("--work", type=Path, required=True, metavar="DIR")
        action.add_argument("--recipe", type=Path, default=RECIPE, metavar="FILE")
    args = parser.parse_args()
    recipe = yaml.safe_load(args.recipe.read_text(encoding="utf-8"))
    if args.action == "texts":
        make_texts(recipe["texts"], args.work)
    else:
        pretrain(args.type, recipe, args.work)
    return 0


# Texts


def make_texts(recipe: dict[str, Any], work: Path) -> None:
    """Write WORK/texts.jsonl, one text a line, shuffled, and WORK/texts.json with counts and a fingerprint."""
    archives = work / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    hidden = Overlap(text for passage in read_passages() for text in (passage.query, passage.text))
    seen: set[str] = set()
    kept: list[str] = []
    counts: dict[str, dict[str, int]] = {}
    for requirement in recipe["packages"]:
        archive = fetch(requirement, archives)
        texts, dropped = [], 0
        for text in texts_of(archive):
            key = " ".join(_WORD.findall(text.lower()))
            if key in seen or not is_prose(text, recipe["fewest_words"]):
                continue
            seen.add(key)
            if hidden.with_text(text):
                dropped += 1
                continue
            texts.append(text)
        # Where a package has more than its share, an even sample of it stays.
        order = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
        total, chosen = 0, []
        for text in order:
            if total + len(text) > recipe["most_characters"]:
                break
            chosen.append(text)
            total += len(text)
        kept += chosen
        counts[requirement] = {
            "found": len(texts), "kept": len(chosen), "characters": total, "left_out_as_test_text": dropped
        }  # fmt: skip
        print(f"{requirement}: {len(chosen):,} of {len(texts):,} texts, {total / 1e6:.1f} M characters", flush=True)
    random.Random(0).shuffle(kept)
    lines = "".join(json.dumps(text) + "\n" for text in kept).encode()
    (work / "texts.jsonl").write_bytes(lines)
    summary = {
        "texts": len(kept),
        "characters": sum(map(len, kept)),
        "sha256": hashlib.sha256(lines).hexdigest(),
        "packages": counts,
    }
    write_json(work / "texts.json", summary)
    print(f"{summary['texts']:,} texts, {summary['characters'] / 1e6:.1f} M characters, sha256 {summary['sha256']}")


def fetch(requirement: str, folder: Path) -> Path:
    """Return the archive of NAME==VERSION (PyPI) or npm:NAME@VERSION, fetched into ``folder`` unless it is there."""
    place = folder / re.sub(r"[^A-Za-z0-9.=-]+", "_", requirement)
    place.mkdir(exist_ok=True)
    if not any(place.iterdir()):
        if requirement.startswith("npm:"):
            command = ["npm", "pack", "--silent", requirement.removeprefix("npm:"), "--pack-destination", str(place)]
        else:
            # A wheel of any platform and Python will do: only its sources are read.
            command = [
                sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check",
                "--only-binary", ":all:", "--dest", str(place), requirement,
            ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next(place.iterdir())


def texts_of(archive: Path) -> Iterator[str]:
    """Yield the texts of a wheel or npm archive, white space made plain, lines of code left out."""
    for name, content in members(archive):
        if name.endswith(".py"):
            module = name.removesuffix(".py").replace("/", ".")
            for _, docstring in docstrings_of(content, module):
                yield from paragraphs(docstring)
        elif name.endswith(".json.gz"):
            yield from descriptions(json.loads(gzip.decompress(content)))
        elif name.endswith(".json") and "/documents/" in name:
            yield from descriptions(json.loads(content))
        elif name.endswith(".json") and "/data/" in name:
            found = json.loads(content)
            if isinstance(found, dict) and isinstance(found.get("text"), str):
                yield from paragraphs(found["text"])
        elif "/dict/data." in name:  # WordNet: the gloss stands behind the bar
            for line in content.decode("utf-8", "replace").splitlines():
                words = line.split(" | ")
                if len(words) == 2:
                    entry = words[0].split()
                    lemmas = [entry[4 + 2 * number].replace("_", " ") for number in range(int(entry[3], 16))]
                    yield _SPACE.sub(" ", f"{', '.join(lemmas)}: {words[1]}").strip()


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in sorted(wheel.namelist()):
                if name.endswith((".py", ".json", ".json.gz")):
                    yield name, wheel.read(name)
    else:
        with tarfile.open(archive) as packed:
            for member in sorted(packed.getmembers(), key=lambda member: member.name):
                if member.isfile():
                    yield member.name, packed.extractfile(member).read()


def descriptions(node: Any) -> Iterator[str]:
    """Yield every "documentation" and "description" of a JSON document, without its tags."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("documentation", "description") and isinstance(value, str):
                yield _SPACE.sub(" ", html.unescape(_TAG.sub(" ", value))).strip()
            else:
                yield from descriptions(value)
    elif isinstance(node, list):
        for value in node:
            yield from descriptions(value)


def paragraphs(text: str) -> Iterator[str]:
    """Yield a docstring as one text, or in pieces of about 1,500 characters cut at empty lines; examples left out."""
    piece, size = [], 0
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = [line for line in block.splitlines() if not _CODE.match(line) and not re.fullmatch(r"[\W_]*", line)]
        plain = _SPACE.sub(" ", " ".join(lines)).strip()
        if size + len(plain) > 1500 and piece:
            yield " ".join(piece)
            piece, size = [], 0
        if plain:
            piece.append(plain)
            size += len(plain)
    if piece:
        yield " ".join(piece)


def is_prose(text: str, fewest: int) -> bool:
    """Whether most of ``text`` is words."""
    words = _WORD.findall(text)
    return len(words) >= fewest and sum(map(len, words)) > 0.6 * len(text)


# Pretraining


def pretrain(kind: str, recipe: dict[str, Any], work: Path) -> None:
    """Make tokenizer and model of ``kind`` from WORK/texts.jsonl and train it; write WORK/kind/{log.jsonl,model}."""
    import torch
    from transformers import DataCollatorForLanguageModeling
    from transformers.utils import logging

    sizes, stages = recipe["pretraining"], recipe["stages"][kind]
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.manual_seed(sizes["seed"])
    folder = work / kind
    folder.mkdir(parents=True, exist_ok=True)
    texts = [json.loads(line) for line in (work / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    longest = stages[-1]["length"]
    tokenizer = make_tokenizer(kind, texts, sizes["vocabulary"], longest)
    chunks, sources = tokenized(tokenizer, texts, longest)
    held_out, first = chunks[:_HELD_OUT], sources[_HELD_OUT - 1] + 1  # of the texts held out, no stage sees anything
    model = make_model(kind, tokenizer, recipe["models"][kind])
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{kind}: {parameters:,} parameters, {len(chunks):,} chunks, {sum(map(len, chunks)):,} tokens", flush=True)

    # 80 % [MASK], 10 % another token, 10 % the token itself: the last two make unmasked positions informative, and
    # those are what SPLADE reads.
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=sizes["masked"])
    decay = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": sizes["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=sizes["learning_rate"][kind],
        betas=(0.9, 0.98),
    )
    rates = learning_rates(stages, sizes["warm_up"][kind], sizes["learning_rate"][kind])
    steps, chance = len(rates), random.Random(sizes["seed"])
    started = last = time.monotonic()
    step = tokens = recent = 0
    losses: list[float] = []
    with (folder / "log.jsonl").open("w", encoding="utf-8") as log:
        for stage in stages:
            if stage["length"] == longest:
                batches = endless_batches(chunks[_HELD_OUT:], stage["tokens_a_batch"], chance)
            else:
                batches = endless_batches(
                    tokenized(tokenizer, texts[first:], stage["length"])[0], stage["tokens_a_batch"], chance
                )
            for _ in range(stage["steps"]):
                for group in optimizer.param_groups:
                    group["lr"] = rates[step]
                step += 1
                batch = collator([{"input_ids": chunk.tolist()} for chunk in next(batches)])
                model.train()
                loss = masked_loss(model, kind, batch)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                losses.append(loss.item())
                recent += int((batch["input_ids"] != tokenizer.pad_token_id).sum())
                if step % sizes["log_every"] == 0 or step == steps:
                    tokens += recent
                    now = time.monotonic()
                    line = {
                        "step": step,
                        "length": stage["length"],
                        "loss": round(sum(losses) / len(losses), 4),
                        "learning_rate": rates[step - 1],
                        "tokens": tokens,
                        "tokens_per_second": round(recent / (now - last)),
                        "minutes": round((now - started) / 60, 1),
                    }
                    if step % (10 * sizes["log_every"]) == 0 or step == steps:
                        save(model, tokenizer, folder / "model")
                        line.update(held_out_figures(model, kind, tokenizer, collator, held_out))
                    print(json.dumps(line), flush=True)
                    log.write(json.dumps(line) + "\n")
                    log.flush()
                    last, recent, losses = now, 0, []


def learning_rates(stages: list[dict[str, int]], warm_up: int, highest: float) -> list[float]:
    """Return the rate of every step: up linearly in steps, then down linearly in tokens, whatever the stages' batches."""
    done = list(accumulate(stage["tokens_a_batch"] for stage in stages for _ in range(stage["steps"])))
    warm = done[warm_up - 1]
    return [
        highest * min(step / warm_up, (done[-1] - before) / (done[-1] - warm))
        for step, before in enumerate([0, *done[:-1]], 1)
    ]


def make_tokenizer(kind: str, texts: list[str], size: int, length: int) -> Any:
    """Return a cased byte-level BPE tokenizer (modernbert) or an uncased WordPiece one (bert)."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertTokenizerFast, PreTrainedTokenizerFast

    if kind == "modernbert":
        made = Tokenizer(models.BPE())
        made.normalizer = normalizers.NFC()
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(SPECIAL),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        made.decoder = decoders.ByteLevel()
    else:
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(SPECIAL), show_progress=False)
        made.decoder = decoders.WordPiece()
    made.train_from_iterator(texts, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    inputs = ["input_ids", "attention_mask"]
    if kind == "bert":
        return BertTokenizerFast(tokenizer_object=made, model_max_length=length, do_lower_case=True, **names)
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=length, model_input_names=inputs, **names)


def make_model(kind: str, tokenizer: Any, sizes: dict[str, Any]) -> Any:
    from transformers import BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

    common = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
    }
    if kind == "bert":
        for name in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
            del common[name]
        return BertForMaskedLM(BertConfig(**common, **sizes))
    return ModernBertForMaskedLM(ModernBertConfig(**common, **sizes))


def tokenized(tokenizer: Any, texts: list[str], length: int) -> tuple[list[array], list[int]]:
    """Return texts as token ids with [CLS] and [SEP], long ones in pieces of ``length``, and whose pieces they are.

    16 bits an id.
    """
    chunks, sources = [], []
    for start in range(0, len(texts), 1000):
        encoded = tokenizer(texts[start : start + 1000], add_special_tokens=False, verbose=False)["input_ids"]
        for source, ids in enumerate(encoded, start):
            for begin in range(0, len(ids), length - 2):
                piece = ids[begin : begin + length - 2]
                if len(piece) >= 8:
                    chunks.append(array("H", [tokenizer.cls_token_id, *piece, tokenizer.sep_token_id]))
                    sources.append(source)
    return chunks, sources


def endless_batches(chunks: list[array], most: int, chance: random.Random) -> Iterator[list[array]]:
    """Yield batches of about ``most`` tokens, of chunks of nearly one length, in a new order in every epoch."""
    while True:
        order = list(range(len(chunks)))
        chance.shuffle(order)
        order.sort(key=lambda number: len(chunks[number]) // 8)  # stable: within a length the shuffled order stays
        batches, batch = [], []
        for number in order:
            batch.append(chunks[number])
            if len(batch) * len(batch[-1]) >= most:
                batches.append(batch)
                batch = []
        chance.shuffle(batches)
        yield from batches


def masked_loss(model: Any, kind: str, batch: Any, reduction: str = "mean") -> Any:
    """Return the cross-entropy at the chosen positions alone: the head is not run on the others."""
    import torch

    chosen = batch["labels"] != -100
    attention = batch["attention_mask"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.base_model(input_ids=batch["input_ids"], attention_mask=attention).last_hidden_state[chosen]
        logits = model.cls(hidden) if kind == "bert" else model.decoder(model.head(hidden))
    return torch.nn.functional.cross_entropy(logits.float(), batch["labels"][chosen], reduction=reduction)


def held_out_figures(model: Any, kind: str, tokenizer: Any, collator: Any, chunks: list[array]) -> dict[str, float]:
    """Loss at masked positions of held-out text, and how often the head ranks an unmasked token first at its place."""
    import torch

    model.eval()
    losses, own = [], []
    state = torch.get_rng_state()
    torch.manual_seed(0)  # the same positions every time
    with torch.no_grad():
        for start in range(0, len(chunks), 32):
            features = [{"input_ids": chunk.tolist()} for chunk in chunks[start : start + 32]]
            batch = collator(features)
            losses.append(masked_loss(model, kind, batch).item())
            plain = tokenizer.pad(features, return_tensors="pt")
            found = model(input_ids=plain["input_ids"], attention_mask=plain["attention_mask"]).logits.argmax(-1)
            own.append((found == plain["input_ids"])[plain["attention_mask"].bool()].float().mean().item())
    torch.set_rng_state(state)
    return {
        "held_out_loss": round(sum(losses) / len(losses), 4),
        "own_token_first": round(sum(own) / len(own), 3),
    }


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write float16 weights and the tokenizer; the model in memory stays as it is."""
    import copy

    import torch

    copy.deepcopy(model).to(torch.float16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(main())
