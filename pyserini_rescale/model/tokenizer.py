"""Load a checkpoint's tokenizer, or say that it has none."""

from typing import TYPE_CHECKING

from pyserini_rescale.errors import ModelError, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(name: str, trust_remote_code: bool = False) -> "PreTrainedTokenizerBase":
    """Return the tokenizer of a folder or Hub id; raises ModelError if it has none that can be loaded.

    transformers 5 answers a folder of a BERT without tokenizer files with a tokenizer that knows its five special
    tokens and nothing else, which turns every text into unknown words; that counts as none.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
        words = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise ModelError(f"no tokenizer can be loaded from {name}: {one_line(error)[:300]}") from error
    if not words:
        raise ModelError(f"{name} has no tokenizer files: copy those of the checkpoint that it was made from into it")
    return tokenizer
