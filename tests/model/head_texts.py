"""A random model with 2,000 words, a tokenizer for it, and random pairs: a head that starts dense and saturated."""

import random

import torch

from pyserini_rescale.model.texts import Texts
from tests.model.builders import build, make_word_tokenizer

WORDS = [f"w{number}" for number in range(1900)]


def model_and_tokenizer(model_type: str = "bert", **changes):
    model = build(model_type, vocab_size=2000, **changes)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1.5)
    return model, make_word_tokenizer(model, WORDS)


def pairs(count: int = 12, negatives: int = 0, seed: int = 0) -> Texts:
    chance = random.Random(seed)
    queries = tuple(" ".join(chance.choices(WORDS, k=3 + number % 4)) for number in range(count))
    passages = tuple(" ".join(chance.choices(WORDS, k=8 + number % 9)) for number in range(count))
    wrong = tuple(" ".join(chance.choices(WORDS, k=10)) for _ in range(negatives))
    return Texts("test", passages + wrong, queries, passages, wrong)
