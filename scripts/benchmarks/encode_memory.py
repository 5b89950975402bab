"""Resident memory while a corpus of short synthetic documents is encoded: it must not grow with the corpus.

    python scripts/benchmarks/encode_memory.py --documents 1000000 --work /tmp/encode-memory

Makes a small random BERT and a corpus, runs ``python -m pyserini_rescale encode`` in this process, notes the resident memory
after each unit, and exits with 1 if that at the end is more than 10 % away from that after a tenth of the documents. Linux.
"""

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

WORDS = [f"word{number}" for number in range(200)]
LIMIT = 0.10


def make_model(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True, model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16,
            max_position_embeddings=64, initializer_range=0.5,
        )
    )  # fmt: skip
    with torch.no_grad():
        model.get_output_embeddings().bias.sub_(2.0)
    model.save_pretrained(folder)


def make_corpus(path: Path, documents: int) -> None:
    chance = random.Random(0)
    with open(path, "w", encoding="utf-8") as stream:
        for number in range(documents):
            text = " ".join(chance.choices(WORDS, k=chance.randint(3, 9)))
            stream.write(json.dumps({"id": f"document-{number}", "text": text}) + "\n")


def resident() -> int:
    """Return this process's resident memory in bytes."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(documents: int, work: Path) -> list[tuple[int, int]]:
    """Return (documents encoded, resident bytes) after each unit."""
    from pyserini_rescale.cli import main
    from pyserini_rescale.encode import corpus

    seen: list[tuple[int, int]] = []
    plain = corpus._encode_unit

    def encode_unit(number: int, texts: list, *given: object) -> None:
        plain(number, texts, *given)
        seen.append(((seen[-1][0] if seen else 0) + len(texts), resident()))

    corpus._encode_unit = encode_unit
    make_model(work / "model")
    make_corpus(work / "corpus.jsonl", documents)
    status = main([
        "encode", "--corpus", str(work / "corpus.jsonl"), "--model", str(work / "model"), "--output", str(work / "encoded"),
        "--device", "cpu", "--unit", str(max(100, documents // 200)),
    ])  # fmt: skip
    if status:
        sys.exit(status)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--work", type=Path, required=True, help="a new folder")
    args = parser.parse_args()
    args.work.mkdir(parents=True)
    started = time.monotonic()
    seen = measure(args.documents, args.work)
    for share in range(1, 11):
        count, size = next(pair for pair in seen if pair[0] * 10 >= args.documents * share)
        print(f"{count:>12,} documents  {size / 2**20:8.1f} MiB")
    early = next(size for count, size in seen if count * 10 >= args.documents)
    change = seen[-1][1] / early - 1
    print(f"change from a tenth to the end: {change:+.1%} (limit {LIMIT:.0%}); {time.monotonic() - started:.0f} s")
    return 0 if abs(change) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
