"""A corpus of random words that the small models know."""

import json
import random
from pathlib import Path

from tests.model.builders import SIZE, WORDS

FILLERS = [f"filler{number}" for number in range(SIZE - 5 - len(WORDS))]


def write_corpus(path: Path, documents: int, seed: int = 0) -> str:
    """Write a JSONL corpus of documents of 1 to 30 words, some with a title, every 50th without any text."""
    chance = random.Random(seed)
    with open(path, "w", encoding="utf-8") as stream:
        for number in range(documents):
            words = chance.choices(WORDS + FILLERS, k=chance.randint(1, 30)) if number % 50 != 49 else []
            title = " ".join(chance.choices(WORDS, k=2)) if words and number % 3 else ""
            stream.write(json.dumps({"_id": f"d{number}", "title": title, "text": " ".join(words)}) + "\n")
    return str(path)
