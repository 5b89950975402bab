"""Load a saved model with plain transformers and hand back its logits, in a fresh interpreter or in this one.

As a program it shows that nothing of ours, and nothing in memory, helps the model to load.
Usage: reload.py FOLDER LOGITS_FILE < REQUEST, with a JSON object on standard input:
``input_ids`` and ``attention_mask`` (B, L), ``text`` (a string, or null when no tokenizer was saved) and
``trust_remote_code``. Writes LOGITS_FILE (npy, (B, L, V), float32) and prints the tokenizer's ids of ``text`` as JSON.
Imports nothing of this package, since the interpreter may be one that lacks it.
"""

import json
import sys
from typing import Any


def answer(folder: str, request: dict[str, Any]) -> tuple[Any, list[int] | None]:
    """Return (logits (B, L, V) as a float32 array, the token ids of the text); raises what transformers raises."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    trust = request["trust_remote_code"]
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=trust).eval()
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor(request["input_ids"]), attention_mask=torch.tensor(request["attention_mask"])
        ).logits
    ids = None
    if request["text"] is not None:
        ids = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)(request["text"])["input_ids"]
    return logits.float().numpy(), ids


def main(folder: str, logits_file: str) -> None:
    """Do what the module says; errors are left to the interpreter, whose last line the parent reads."""
    import numpy as np

    logits, ids = answer(folder, json.load(sys.stdin))
    np.save(logits_file, logits)
    print(json.dumps(ids))


if __name__ == "__main__":
    main(*sys.argv[1:])
