"""Load a saved model in a fresh interpreter, with plain transformers, and hand back its logits.

Run as a program by ``save_model`` (never imported): the point is that nothing of ours helps the model to load.
Usage: reload.py FOLDER LOGITS_FILE < REQUEST, with a JSON object on standard input:
``input_ids`` and ``attention_mask`` (B, L), ``text`` (a string, or null when no tokenizer was saved) and
``trust_remote_code``. Writes LOGITS_FILE (npy, (B, L, V), float32) and prints the tokenizer's ids of ``text`` as JSON.
"""

import json
import sys


def main(folder: str, logits_file: str) -> None:
    """Do what the module says; errors are left to the interpreter, whose last line the parent reads."""
    import numpy as np
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    request = json.load(sys.stdin)
    trust = request["trust_remote_code"]
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=trust).eval()
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor(request["input_ids"]), attention_mask=torch.tensor(request["attention_mask"])
        ).logits
    np.save(logits_file, logits.float().numpy())
    ids = None
    if request["text"] is not None:
        ids = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)(request["text"])["input_ids"]
    print(json.dumps(ids))


if __name__ == "__main__":
    main(*sys.argv[1:])
