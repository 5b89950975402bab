"""A checkpoint's tokenizer: loaded, or said to be missing; and given the text policy that its own files can carry."""

import json
from typing import TYPE_CHECKING, Any

from pyserini_rescale.errors import ConfigError, ModelError, one_line
from pyserini_rescale.model.policy import split_name

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(name: str, trust_remote_code: bool = False) -> "PreTrainedTokenizerBase":
    """Return the tokenizer of a folder or Hub id; raises ModelError if it has none that can be loaded.

    transformers 5 answers a folder of a BERT without tokenizer files with a tokenizer that knows its five special
    tokens and nothing else, which turns every text into unknown words; that counts as none.
    """
    from transformers import AutoTokenizer

    name, _ = split_name(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
        words = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise ModelError(f"no tokenizer can be loaded from {name}: {one_line(error)[:300]}") from error
    if not words:
        raise ModelError(f"{name} has no tokenizer files: copy those of the checkpoint that it was made from into it")
    return tokenizer


def apply_text_policy(
    tokenizer: "PreTrainedTokenizerBase", *, lowercase: bool = False, prefix_space: bool = False
) -> None:
    """Make ``tokenizer`` lower-case every text, or take every text's first word as one after a space; in place.

    Both become part of tokenizer.json, so that plain transformers and sentence-transformers obey them too. Byte-level
    tokenizers (RoBERTa, ModernBERT) have another token for a word at the start of a text than for the same word later.
    Raises ConfigError where the tokenizer has no such file, or knows no prefix space.
    """
    if not (lowercase or prefix_space):
        return
    import tokenizers

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(f"{type(tokenizer).__name__} has no tokenizer.json, which could carry a text policy")
    state = json.loads(backend.to_str())
    if lowercase:
        before = state.get("normalizer")
        steps = [{"type": "Lowercase"}, *([] if before is None else [before])]
        state["normalizer"] = {"type": "Sequence", "normalizers": steps}
    if prefix_space:
        if not _set_prefix_space(state.get("pre_tokenizer")):
            raise ConfigError(f"{type(tokenizer).__name__} has no prefix space: leave text.prefix_space out")
        # transformers makes some classes' pre-tokenizer anew from this argument.
        tokenizer.init_kwargs["add_prefix_space"] = True
        tokenizer.add_prefix_space = True
    tokenizer._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))


def _set_prefix_space(part: Any) -> bool:
    """Set the prefix space wherever a pre-tokenizer, given as JSON, has one; return whether any has."""
    if isinstance(part, list):
        return any([_set_prefix_space(item) for item in part])
    if not isinstance(part, dict):
        return False
    found = any([_set_prefix_space(value) for value in part.values()])
    if "add_prefix_space" in part:
        part["add_prefix_space"] = True
        return True
    return found
