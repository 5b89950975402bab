"""``head``: show, rescale, undo, suggest. Thin: parse, call pyserini_rescale/model, print."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserini_rescale.cli.tables import aligned, number, yes_no
from pyserini_rescale.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pyserini_rescale.model.calibrate import Calibration, Setting, Suggestion
    from pyserini_rescale.model.diagnose import Diagnosis
    from pyserini_rescale.model.head_stats import HeadStats
    from pyserini_rescale.model.texts import Texts

HELP = "The MLM head of a checkpoint: measure it, rescale it, shift its bias, undo both, or be told what would be good."
EXAMPLES = """\
  python -m pyserini_rescale head show bert-base-uncased answerdotai/ModernBERT-base --plot norms.png
  python -m pyserini_rescale head show MODEL --texts builtin
  python -m pyserini_rescale head suggest MODEL --texts pairs.jsonl
  python -m pyserini_rescale head rescale MODEL --factor 16 --scope shared --output MODEL-16
  python -m pyserini_rescale head rescale MODEL --bias-offset auto --texts corpus.jsonl --output MODEL-offset
  python -m pyserini_rescale head undo MODEL-16 --output MODEL-again

MODEL is a folder in Hugging Face format or a Hub id. What each figure and rule means: docs/head.md.
"""

_TEXTS_HELP = (
    "text file with one text a line, JSONL with query and passage (or text), or builtin for sixteen English pairs"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    show = actions.add_parser("show", help="row norms, anisotropy, shape; with --texts what heads do to texts")
    show.add_argument("models", nargs="+", metavar="MODEL")
    show.add_argument("--texts", metavar="FILE", help=_TEXTS_HELP)
    show.add_argument("--plot", metavar="FILE", help="draw a histogram of row norms (.png, .svg or .pdf)")
    _add_common(show)
    show.add_argument("--json", action="store_true", help="print JSON")

    suggest = actions.add_parser("suggest", help="recommend factor, scope and bias offset, with the table behind it")
    suggest.add_argument("model", metavar="MODEL")
    suggest.add_argument("--texts", metavar="FILE", default="builtin", help=_TEXTS_HELP + " (default)")
    suggest.add_argument("--target-active", metavar="SHARE", help="share of the vocabulary active per document (0.015)")
    _add_common(suggest)
    suggest.add_argument("--json", action="store_true", help="print JSON")

    rescale = actions.add_parser("rescale", help="divide the head, shift its bias, or both, into a new folder")
    rescale.add_argument("model", metavar="MODEL")
    rescale.add_argument("--output", metavar="DIR", required=True, help="a new folder")
    rescale.add_argument("--factor", metavar="K", help="divide the head by K, or by what auto finds")
    rescale.add_argument(
        "--scope",
        metavar="shared|balanced|untied",
        help="shared: the paper's, the tied matrix; balanced: also keeps hidden states; untied: the output alone "
        "(default: balanced where there is a tied head and a known backbone, else untied)",
    )
    rescale.add_argument("--rescale-bias", action="store_true", help="divide the decoder bias by the factor too")
    rescale.add_argument(
        "--bias-offset",
        metavar="C|auto|per-term",
        help="subtract C from the decoder bias, or what is found on the texts",
    )
    rescale.add_argument("--target-active", metavar="SHARE", help="share of the vocabulary active per document (0.015)")
    rescale.add_argument("--texts", metavar="FILE", help=_TEXTS_HELP + " (default)")
    _add_common(rescale)

    undo = actions.add_parser("undo", help="give the original head back, into a new folder")
    undo.add_argument("model", metavar="MODEL")
    undo.add_argument("--output", metavar="DIR", required=True, help="a new folder")
    undo.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the model")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", metavar="N", help="read at most N texts or pairs of the file (128)")
    parser.add_argument("--length", metavar="N", help="cut texts to N tokens (the checkpoint's policy, else 256)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the model")


def run(args: argparse.Namespace) -> int:
    return {"show": _show, "suggest": _suggest, "rescale": _rescale, "undo": _undo}[args.action](args)


def _show(args: argparse.Namespace) -> int:
    from pyserini_rescale.model.head_stats import model_head_stats, read_head_stats

    if args.texts is None and args.limit is not None:
        raise ConfigError("--limit goes with --texts")
    texts, length = None if args.texts is None else _texts(args, args.texts), _whole(args.length, "--length")
    plot = None
    if args.plot is not None:
        from pyserini_rescale.cli.head_plot import plot_row_norms
        from pyserini_rescale.figures import check_figure_file

        plot = Path(args.plot)
        check_figure_file(plot, "--plot")
    stats: list[HeadStats] = []
    figures: list[Diagnosis] = []
    for name in args.models:
        if texts is None:
            stats.append(read_head_stats(name, trust_remote_code=args.trust_remote_code))
            continue
        from pyserini_rescale.model.diagnose import diagnose
        from pyserini_rescale.model.pooled import pool_texts

        model, tokenizer = _load(name, args.trust_remote_code)
        stats.append(model_head_stats(name, model))
        figures.append(diagnose(pool_texts(model, tokenizer, texts, length)))
    names = _short_names(args.models)
    if plot is not None:
        plot_row_norms(stats, names, plot)
    if args.json:
        found = [one.to_dict() for one in stats]
        for entry, diagnosis in zip(found, figures, strict=bool(figures)):
            entry["texts"] = diagnosis.to_dict()
        _print_json(found)
        return 0
    print(_stats_table(stats, names))
    for name, one in zip(names, stats, strict=True):
        if one.zero_rows:
            print(f"{name}: {one.zero_rows:,} rows of zeros are left out of the anisotropy")
    if texts is not None:
        print(f"\n{texts.describe()}")
        print(_figures_table(figures, names))
        for name, diagnosis in zip(names, figures, strict=True):
            print(f"{name}: {diagnosis.line()}" if len(names) > 1 else diagnosis.line())
    if plot is not None:
        print(f"row norms drawn to {plot}")
    return 0


def _suggest(args: argparse.Namespace) -> int:
    target, length = _target(args.target_active), _whole(args.length, "--length")
    texts = _texts(args, args.texts)
    from pyserini_rescale.model.calibrate import settings_as_dicts, suggest
    from pyserini_rescale.model.pooled import pool_texts

    model, tokenizer = _load(args.model, args.trust_remote_code)
    suggestion = suggest(model, pool_texts(model, tokenizer, texts, length), share=target)
    if args.json:
        _print_json({"scope": suggestion.scope, "settings": settings_as_dicts(suggestion)})
        return 0
    print(f"{args.model} on {texts.describe()}\n")
    print(_settings_table(suggestion))
    print()
    for line in _advice(args.model, suggestion, args.texts, args.target_active):
        print(line)
    return 0


def _rescale(args: argparse.Namespace) -> int:
    factor = _number(args.factor, "--factor", ("auto",))
    offset = _number(args.bias_offset, "--bias-offset", ("auto", "per-term"))
    target, length = _target(args.target_active), _whole(args.length, "--length")
    if args.target_active is not None and not isinstance(offset, str):
        raise ConfigError("--target-active goes with --bias-offset auto or per-term")
    from pyserini_rescale.model.calibrate import calibrate_head, check_request
    from pyserini_rescale.model.head import check_output_folder, save_model

    check_request(
        factor=factor, scope=args.scope, rescale_bias=args.rescale_bias, bias_offset=offset, target_active=target
    )
    output = check_output_folder(args.output)
    texts = _texts(args, args.texts or "builtin")
    needed = args.texts is not None or factor == "auto" or isinstance(offset, str)
    model, tokenizer = (_load if needed else _load_to_save)(args.model, args.trust_remote_code)
    done = calibrate_head(
        model,
        tokenizer,
        factor=factor,
        scope=args.scope,
        rescale_bias=args.rescale_bias,
        bias_offset=offset,
        target_active=target,
        texts=None if tokenizer is None else texts,
        length=length,
    )
    save_model(model, tokenizer, output)
    measured = "16 fixed token ids, for want of a tokenizer" if tokenizer is None else texts.describe()
    for line in _account(done, factor, offset, measured):
        print(line)
    print(f"saved to {output}; loaded again in a fresh process, it gives the same logits")
    return 0


def _undo(args: argparse.Namespace) -> int:
    from pyserini_rescale.model.head import check_output_folder, save_model
    from pyserini_rescale.model.undo import undo_head

    output = check_output_folder(args.output)
    model, tokenizer = _load_to_save(args.model, args.trust_remote_code)
    undone = undo_head(model)
    save_model(model, tokenizer, output)
    parts = [] if undone.scope is None else [f"the rescale (k = {undone.k:g}, scope {undone.scope})"]
    parts += [] if undone.offset_rule is None else [f"the bias offset ({undone.offset_rule}, {undone.bias_offset:g})"]
    print(f"undone: {' and '.join(parts)}")
    print(f"saved to {output}; loaded again in a fresh process, it gives the same logits")
    return 0


def _load(name: str, trust_remote_code: bool) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    from pyserini_rescale.model.head import load_masked_lm
    from pyserini_rescale.model.policy import split_name
    from pyserini_rescale.model.tokenizer import load_tokenizer

    model = load_masked_lm(name, trust_remote_code=trust_remote_code)
    return model, load_tokenizer(split_name(name)[0], trust_remote_code)


def _load_to_save(name: str, trust_remote_code: bool) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase | None"]:
    """Return a model that is written anew, and its tokenizer or, with a warning, None where it has none."""
    from pyserini_rescale.model.head import load_masked_lm
    from pyserini_rescale.model.policy import split_name
    from pyserini_rescale.model.tokenizer import load_tokenizer

    model = load_masked_lm(name, trust_remote_code=trust_remote_code)
    try:
        return model, load_tokenizer(split_name(name)[0], trust_remote_code)
    except ModelError as error:
        print(f"warning: {error}; the new folder will have none either", file=sys.stderr)
        return model, None


def _texts(args: argparse.Namespace, source: str) -> "Texts":
    limit = _whole(args.limit, "--limit")
    from pyserini_rescale.model.texts import LIMIT, read_texts

    return read_texts(source, LIMIT if limit is None else limit)


def _whole(value: str | None, option: str) -> int | None:
    if value is None:
        return None
    try:
        number_ = int(value)
    except ValueError:
        number_ = 0
    if number_ < 1:
        raise ConfigError(f"{option} {value}: a whole number above 0 is needed")
    return number_


def _number(value: str | None, option: str, words: tuple[str, ...]) -> float | str | None:
    if value is None or value in words:
        return value
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"{option} {value}: give a number, or {' or '.join(words)}") from None


def _target(value: str | None) -> float:
    from pyserini_rescale.model.policy import TARGET_ACTIVE

    if value is None:
        return TARGET_ACTIVE
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"--target-active {value}: a number between 0 and 1 is needed, for example 0.015") from None


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def _short_names(names: Sequence[str]) -> list[str]:
    """Return the last part of each name, or the names as they are if two would be the same."""
    short = [Path(name).name or name for name in names]
    return short if len(set(short)) == len(set(names)) else list(names)


def _calibration(one: "HeadStats") -> str:
    policy = one.policy
    if policy is None or (policy.scope is None and policy.offset_rule is None):
        return "none"
    parts = [] if policy.scope is None else [f"k = {policy.k:g} {policy.scope}"]
    parts += [] if policy.offset_rule is None else [f"{policy.offset_rule} offset {policy.bias_offset:.4g}"]
    return ", ".join(parts)


def _stats_table(stats: Sequence["HeadStats"], names: Sequence[str]) -> str:
    header = (
        "model", "type", "calibration", "|V| x d", "numbers", "tied", "bias", "bias mean", "normalised at once",
        "norm mean", "max", "min", "std", "anisotropy",
    )  # fmt: skip
    rows = [header]
    for name, one in zip(names, stats, strict=True):
        rows.append((
            name, one.model_type, _calibration(one), f"{one.vocabulary:,} x {one.width:,}", one.dtype, yes_no(one.tied),
            yes_no(one.bias), number(one.bias_mean), yes_no(one.normalised_at_once), number(one.row_norm_mean, 4),
            number(one.row_norm_max, 4), number(one.row_norm_min, 4), number(one.row_norm_std, 4),
            number(one.anisotropy, 4),
        ))  # fmt: skip
    return aligned(rows, left=3)


def _figures_table(figures: Sequence["Diagnosis"], names: Sequence[str]) -> str:
    def both(one: "Diagnosis", name: str, digits: int) -> str:
        query = None if one.queries is None else getattr(one.queries, name)
        return f"{number(query, digits)} / {number(getattr(one.documents, name), digits)}"

    lines = {
        "active terms, query / document": lambda one: both(one, "active", 1),
        "... with an impact above zero": lambda one: both(one, "indexed", 1),
        "... share of texts with none": lambda one: both(one, "empty", 2),
        "mean weight, query / document": lambda one: both(one, "weight_mean", 3),
        "largest weight, query / document": lambda one: both(one, "weight_max", 3),
        "score of matching pairs": lambda one: number(one.match_score, 2),
        "score of other pairs": lambda one: number(one.other_score, 2),
        "in-batch loss": lambda one: number(one.loss, 3),
        "ln(candidates)": lambda one: f"{number(one.chance, 3)} ({one.candidates})",
        "matching passage on top": lambda one: number(one.first, 2),
        "cosine of unrelated passages": lambda one: number(one.cosine, 3),
        "weight on special tokens": lambda one: number(one.special_share, 3),
    }
    rows = [("", *names)] + [(label, *(cell(one) for one in figures)) for label, cell in lines.items()]
    return aligned(rows)


def _settings_table(suggestion: "Suggestion") -> str:
    rows = [(
        "setting", "verdict", "offset", "terms q / d", "largest weight", "match", "other", "loss", "ln(C)", "on top",
        "cosine",
    )]  # fmt: skip
    for one in suggestion.settings:
        d = one.diagnosis
        name = f"* {one.name()}" if one is suggestion.recommended else f"  {one.name()}"
        rows.append((
            name, d.verdict, number(None if one.offset is None else one.offset.constant),
            f"{number(None if d.queries is None else d.queries.indexed, 0)} / {number(d.documents.indexed, 0)}", number(d.documents.weight_max, 2),
            number(d.match_score, 1), number(d.other_score, 1), number(d.loss, 2), number(d.chance, 2),
            number(d.first, 2), number(d.cosine, 2),
        ))  # fmt: skip
    return aligned(rows, left=2)


def _advice(model: str, suggestion: "Suggestion", texts: str, target: str | None) -> list[str]:
    best: Setting | None = suggestion.recommended
    if best is None:
        return ["no setting of the table is healthy: is the model a trained one, and are the texts in its language?"]
    if best.k == 1 and best.offset is None:
        return [f"recommended: nothing to change; {best.diagnosis.line()}"]
    options = "" if best.k == 1 else f" --factor {best.k:g} --scope {suggestion.scope}"
    if best.offset is not None:
        options += f" --bias-offset {best.offset.rule}" + ("" if target is None else f" --target-active {target}")
        options += "" if texts == "builtin" else f" --texts {texts}"
    scope = "" if best.k == 1 else f", scope {suggestion.scope}"
    lines = [
        f"recommended (*): {best.name()}{scope}; {best.diagnosis.line()}",
        f"  python -m pyserini_rescale head rescale {model}{options} --output DIR",
    ]
    if texts == "builtin":
        lines.append("the built-in pairs show what is far off; for a collection, give texts of its own (--texts)")
    return lines


def _account(done: "Calibration", factor: float | str | None, offset: float | str | None, measured: str) -> list[str]:
    policy, lines = done.policy, []
    if factor is not None:
        found, bias = " (auto)" if factor == "auto" else "", ", bias too" if policy.rescale_bias else ""
        lines.append(f"head divided by k = {policy.k:g}{found}, scope {policy.scope}{bias}")
    lines.append(f"hidden states moved by {done.movement:.2%} (relative L2 norm) on {measured}")
    if offset is not None:
        share = policy.target_active
        how = "" if share is None else f" for {share:.3g} of the vocabulary active per document"
        first = "each term's own mean, then " if policy.term_offsets is not None else ""
        lines.append(f"subtracted from the decoder bias: {first}{policy.bias_offset:.6g} ({policy.offset_rule}{how})")
    if done.before is not None and done.before.verdict == "healthy":
        lines.append("note: this head was healthy as it was, and `head suggest` would leave it so")
    if done.before is not None and done.after is not None:
        for label, one in (("before", done.before), ("after", done.after)):
            share = one.documents.active / one.vocabulary
            lines.append(f"{label}: {share:.3%} of the vocabulary active per document; {one.line()}")
    return lines
