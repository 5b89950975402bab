"""A tiny masked language model made on the spot, in seconds and without a network. Made, not trained.

ModernBERT's architecture with a byte-level BPE vocabulary of the documents (lower case), in which

* every token has a random direction, and the rarer it is, the longer its row (square root of its idf);
* all layers keep the small random weights they start with, and the head's dense layer is a multiple of the identity, so
  that at each position the head answers with the token that stands there;
* the rows are scaled to a mean norm of 2.55, ModernBERT-base's according to Table 1 of arXiv 2606.18811, and the
  decoder bias is a constant below zero.

As SPLADE it can therefore do no more than match words. At k = 1 it cannot do that either: scores between unrelated
tokens are random, but with rows this long the largest of them over a text's positions is far above zero for nearly
every term, so vectors are dense and log1p flattens what is left. That is the failure the paper describes, here by
construction: it shows what a rescale does and proves nothing about any trained model. Trained backbones can take this
module's place: the quickstart uses ``make`` and ``SUMMARY``, no more.
"""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import ModernBertConfig, ModernBertForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

SUMMARY = "ModernBERT type, 2 layers x 128, made and not trained: it can match words, no more"
VOCABULARY = 4096
WIDTH = 128
ROW_NORM = 2.55
BIAS = -0.5
MAX_LENGTH = 128
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def make(texts: Sequence[str], seed: int = 0) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return a model and its tokenizer for ``texts``; the same texts and seed give the same weights."""
    tokenizer = _tokenizer(texts)
    return _model(tokenizer, texts, seed), tokenizer


def _tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    # Byte-level, because its training is repeatable; that of WordPiece breaks ties in the order of a hash table.
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.Lowercase()
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)  # the first word's token is that of any other
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.decoder = decoders.ByteLevel()
    bpe.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(name, bpe.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def _model(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], seed: int) -> PreTrainedModel:
    size = len(tokenizer)
    numbers = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIAL}
    config = ModernBertConfig(
        vocab_size=size,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=numbers["[PAD]"],
        bos_token_id=numbers["[CLS]"],
        cls_token_id=numbers["[CLS]"],
        eos_token_id=numbers["[SEP]"],
        sep_token_id=numbers["[SEP]"],
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ModernBertForMaskedLM(config).eval()
        rows = torch.nn.functional.normalize(torch.randn(size, WIDTH), dim=1)
    lengths = _square_root_of_idf(tokenizer, texts)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(rows * (lengths * ROW_NORM / lengths.mean()).unsqueeze(1))
        # A small factor keeps gelu near its linear middle; the LayerNorm after it restores the length.
        model.head.dense.weight.copy_(0.1 * torch.eye(WIDTH))
        model.decoder.bias.fill_(BIAS)
    return model


def _square_root_of_idf(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> torch.Tensor:
    """Return (V,): sqrt(ln((N + 1) / (df + 0.5))), special tokens counted as standing in every text."""
    encodings = tokenizer.backend_tokenizer.encode_batch(list(texts))
    frequency = Counter(number for encoding in encodings for number in set(encoding.ids))
    found = torch.tensor([float(frequency[number]) for number in range(len(tokenizer))])
    found[torch.tensor(tokenizer.all_special_ids)] = float(len(texts))
    idf = torch.log((len(texts) + 1) / (found + 0.5))
    return idf.clamp_min(math.log((len(texts) + 1) / (len(texts) + 0.5))).sqrt()
