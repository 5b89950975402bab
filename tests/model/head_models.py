"""Random models at published width, eps and row norm: the ones that scripts/overscaling.py measures."""

import copy
import importlib.util
from pathlib import Path

import torch

_SCRIPT = Path(__file__).parents[2] / "scripts" / "overscaling.py"
_spec = importlib.util.spec_from_file_location("overscaling", _SCRIPT)
overscaling = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(overscaling)

PUBLISHED = overscaling.available()
SEQUENCES = overscaling.random_sequences(count=2, length=12)
_built = {}


def published(name: str):
    """Return a fresh copy of the random model of that name."""
    if name not in _built:
        _built[name] = overscaling.build(name)
    return copy.deepcopy(_built[name])


def run(model, sequences=SEQUENCES):
    """Return (last hidden states (T, d), logits (T, V)) by plain transformers, one text at a time, in float32."""
    entries = model.config.vocab_size - 5
    hidden, logits = [], []
    with torch.inference_mode():
        for sequence in sequences:
            ids = 5 + (torch.tensor([sequence]) - 5) % entries
            done = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
            hidden.append(done.hidden_states[-1][0])
            logits.append(done.logits[0])
    return torch.cat(hidden), torch.cat(logits)


def relative(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((after.double() - before.double()).norm() / before.double().norm())


def bias_of(model) -> torch.Tensor:
    return model.get_output_embeddings().bias.detach().clone()
