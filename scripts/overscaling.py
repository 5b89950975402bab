"""How far hidden states move when a tied head is divided by k: the tables of docs/head.md.

    python scripts/overscaling.py                                  print the tables
    python scripts/overscaling.py --write docs/head.md             put them between the markers of that page
    python scripts/overscaling.py --model DIR [--model DIR ...]    for checkpoints of your own

Without --model: random models of every backbone of arXiv 2606.18811 at their published width, LayerNorm eps and mean
row norm (Table 1), two layers deep, 300 entries of vocabulary, seed 0. Position and token type embeddings are at the
initialisation of the published models (normal, 0.02); GTE has one token type (without any, nothing is added, and shared
is balanced). Depth and training change what the layers make of a moved input; the input itself, after the first
LayerNorm, depends on the published numbers alone.

With --model: the checkpoint as it is, on the built-in texts, and what its SPLADE vectors become.
"""

import argparse
import copy
import dataclasses
import sys
from pathlib import Path

FACTORS = (2, 4, 8, 10, 16)
VARIANTS = ("shared", "balanced, eps left alone", "balanced")
BEGIN, END = "<!-- begin: scripts/overscaling.py -->", "<!-- end: scripts/overscaling.py -->"
VOCABULARY = 300


@dataclasses.dataclass(frozen=True)
class Published:
    """What is known of a published checkpoint: Table 1's mean row norm, the eps and width of its config.json."""

    model_type: str
    row_norm: float
    eps: float
    config: str
    values: dict


def _common(**more):
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 768,
        "num_hidden_layers": 2,
        "num_attention_heads": 12,
        "intermediate_size": 256,
    }
    return {**sizes, "max_position_embeddings": 64, "pad_token_id": 0, **more}


_DISTILBERT = {
    "vocab_size": VOCABULARY, "dim": 768, "n_layers": 2, "n_heads": 12, "hidden_dim": 256,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
_MODERNBERT = {"cls_token_id": 1, "bos_token_id": 1, "sep_token_id": 2, "eos_token_id": 2, "norm_eps": 1e-5}
_ROBERTA = {"type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5}

PUBLISHED = {
    "BERT-base": Published("bert", 1.401, 1e-12, "BertConfig", _common(layer_norm_eps=1e-12)),
    "DistilBERT-base": Published("distilbert", 1.660, 1e-12, "DistilBertConfig", _DISTILBERT),
    "ALBERT-base": Published("albert", 0.407, 1e-12, "AlbertConfig", _common(embedding_size=128, layer_norm_eps=1e-12)),
    "GTE-MLM-base": Published("gte", 1.278, 1e-12, "GteConfig", _common(layer_norm_eps=1e-12, type_vocab_size=1)),
    "RoBERTa-base": Published("roberta", 3.645, 1e-5, "RobertaConfig", _common(**_ROBERTA)),
    "ModernBERT-base": Published("modernbert", 2.553, 1e-5, "ModernBertConfig", _common(**_MODERNBERT)),
    "Ettin-encoder-150m": Published("modernbert", 2.628, 1e-5, "ModernBertConfig", _common(**_MODERNBERT)),
}


def build(name: str, seed: int = 0):
    """Return a random model with the published width, eps and mean row norm, random biases, tied head, in eval mode."""
    import torch
    import transformers

    facts = PUBLISHED[name]
    torch.manual_seed(seed)
    config = getattr(transformers, facts.config)(**facts.values)
    model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        word = model.get_input_embeddings().weight
        word.copy_(torch.randn_like(word))
        word.mul_(facts.row_norm / word.norm(dim=1).mean())
    return model


def available() -> list[str]:
    """Return the backbones that this release of transformers has (GTE's own class came with 5.x)."""
    import transformers

    return [name for name, facts in PUBLISHED.items() if hasattr(transformers, facts.config)]


def rescaled(model, k: float, variant: str):
    """Return a copy of ``model`` after a rescale of one of ``VARIANTS``."""
    import torch

    from pyserini_rescale.model.backbones import backbone_for
    from pyserini_rescale.model.head import rescale_head

    model = copy.deepcopy(model)
    key = backbone_for(model.config.model_type).eps_key
    eps = getattr(model.config, key) if key else None
    rescale_head(model, k, scope=variant.split(",")[0])
    if "," in variant and key:
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm) and module.eps == getattr(model.config, key):
                module.eps = eps
    return model


def inputs_and_outputs(model, sequences):
    """Return (after the first LayerNorm (T, d), what the projection is fed with (T, d)) for lists of token ids."""
    import torch

    from pyserini_rescale.model.backbones import backbone_for
    from pyserini_rescale.model.pooled import hidden_states

    seen: list[torch.Tensor] = []
    norm = model.get_submodule(backbone_for(model.config.model_type).norm)
    hook = norm.register_forward_hook(lambda module, given, result: seen.append(result.flatten(0, -2)))
    try:
        fed = torch.cat([hidden_states(model, [sequence]) for sequence in sequences])  # one at a time: no padding
    finally:
        hook.remove()
    return torch.cat(seen), fed


def movements(model, sequences) -> dict[tuple[str, float], tuple[float, float]]:
    """Return (variant, k) -> relative L2 movement (after the first LayerNorm, at the projection)."""
    from pyserini_rescale.model.pooled import relative_movement

    before = inputs_and_outputs(model, sequences)
    found = {}
    for variant in VARIANTS:
        for k in FACTORS:
            after = inputs_and_outputs(rescaled(model, k, variant), sequences)
            found[variant, k] = tuple(relative_movement(*pair) for pair in zip(before, after, strict=True))
    return found


def random_sequences(count: int = 32, length: int = 16, seed: int = 1) -> list[list[int]]:
    """Return lists of random token ids, none of them a special one of the models above."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCABULARY, (count, length), generator=generator).tolist()


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, numbers to the right."""
    line = "|" + "|".join("---" if column < 2 else "---:" for column in range(len(header))) + "|"
    return "\n".join(["| " + " | ".join(header) + " |", line, *("| " + " | ".join(row) + " |" for row in rows)])


def percent(value: float) -> str:
    """Return a share in per cent with two figures, or "< 0.01" where it is rounding."""
    return "< 0.01" if value < 1e-4 else f"{100 * value:.2g}" if value < 0.1 else f"{100 * value:.0f}"


def movement_table(title: str, models: dict[str, object], sequences, part: int) -> str:
    """Return one table: a line per model and variant, a column per k; part 0 is the input, 1 the projection."""
    rows = []
    for name, found in models.items():
        rows += [[name, variant, *(percent(found[variant, k][part]) for k in FACTORS)] for variant in VARIANTS]
    return f"{title}\n\n" + markdown(["backbone", "scope", *(f"k = {k}" for k in FACTORS)], rows)


def published_tables() -> str:
    """Return the tables for the random models at published numbers."""
    sequences = random_sequences()
    models = {}
    for name in available():
        print(f"{name} ...", file=sys.stderr)
        models[name] = movements(build(name), sequences)
    return "\n\n".join([
        movement_table("Movement in per cent (relative L2 norm) **after the first LayerNorm**:", models, sequences, 0),
        movement_table("... and **where the head reads it**, two random layers later:", models, sequences, 1),
    ])  # fmt: skip


def checkpoint_tables(folder: str) -> str:
    """Return the tables of a real checkpoint: movement, and SPLADE figures on the built-in texts."""
    from pyserini_rescale.model.backbones import backbone_for
    from pyserini_rescale.model.diagnose import diagnose
    from pyserini_rescale.model.head import load_masked_lm
    from pyserini_rescale.model.pooled import LENGTH, pool_texts, token_ids, usable_length
    from pyserini_rescale.model.texts import builtin_texts
    from pyserini_rescale.model.tokenizer import load_tokenizer

    model, tokenizer, texts = load_masked_lm(folder), load_tokenizer(folder), builtin_texts()
    name = Path(folder).name
    if backbone_for(model.config.model_type) is None:
        sys.exit(f"error: {folder} is a {model.config.model_type} model, which has no scope balanced to compare with")
    print(f"{name} ...", file=sys.stderr)
    sequences = token_ids(model, tokenizer, texts.documents, usable_length(model, tokenizer, None) or LENGTH)
    found = movements(model, sequences)
    rows = []
    for scope in ("shared", "balanced"):
        for k in (1, *FACTORS):
            figures = diagnose(pool_texts(rescaled(model, k, scope) if k > 1 else model, tokenizer, texts))
            terms = f"{figures.queries.indexed:,.0f} / {figures.documents.indexed:,.0f}"
            rows.append([
                scope, str(k), terms, f"{figures.match_score:.1f}", f"{figures.other_score:.1f}", f"{figures.loss:.2f}",
                f"{figures.cosine:.2f}", f"{figures.first:.0%}",
            ])  # fmt: skip
    head = ["scope", "k", "terms q / d", "match", "other", f"loss (ln C = {figures.chance:.2f})", "cosine", "on top"]
    return "\n\n".join([
        movement_table(f"{name}, movement in per cent **where the head reads it**:", {name: found}, sequences, 1),
        f"{name}, vectors of {texts.describe()}, untrained after the rescale:\n\n" + markdown(head, rows),
    ])  # fmt: skip


def main() -> int:
    """Parse, measure, print or write; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", metavar="DIR", action="append", default=[], help="a checkpoint of your own (repeatable)"
    )
    parser.add_argument("--write", metavar="PAGE", type=Path, help="put the tables of the random models into this page")
    args = parser.parse_args()
    if args.write is None:
        print("\n\n".join(map(checkpoint_tables, args.model)) if args.model else published_tables())
        return 0
    text = args.write.read_text(encoding="utf-8") if args.write.is_file() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        print(f"error: {args.write} lacks the lines {BEGIN} and {END}", file=sys.stderr)
        return 2
    tables = "\n\n".join([published_tables(), *map(checkpoint_tables, args.model)])
    start, rest = text.split(BEGIN)
    args.write.write_text(f"{start}{BEGIN}\n\n{tables}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
    print(f"written to {args.write}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
