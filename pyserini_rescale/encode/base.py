"""Texts in, term weights or impacts out, for any masked language model: all of the encoders that needs no Pyserini.

``DocumentTexts`` and ``QueryTexts`` do the work of the classes that Pyserini uses (encoder.py), and of corpus-scale encoding
(corpus.py), which so needs no Java.

How texts become impacts is the checkpoint's ``Policy``. A length that somebody typed wins over it; a default that
nobody typed does not: callers mark those ``UntypedInt`` (and an untyped device ``UntypedStr``).

The head's matrix product, most of the work on a small model, can be made in bfloat16 (``head="bf16"``, or the
environment variable PYSERINI_RESCALE_HEAD for those who type a command of Pyserini's): faster where the processor has
instructions for it; impacts then differ from those in float32.

Letters: B texts, L positions, V vocabulary.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyserini_rescale.encode.quantize import sparse_impacts
from pyserini_rescale.encode.terms import index_terms, special_ids
from pyserini_rescale.encode.untyped import UntypedInt, UntypedStr
from pyserini_rescale.errors import ConfigError, DataError, ModelError
from pyserini_rescale.model.head import find_head, load_masked_lm, position_limit, stored_policy
from pyserini_rescale.model.policy import Policy, split_name
from pyserini_rescale.model.splade import ScreenedHead, micro_batches, pad, splade_vectors
from pyserini_rescale.model.tokenizer import load_tokenizer

# Tokens in one forward pass, padding included. A CPU is fastest while activations stay in its caches; an accelerator
# is fastest when it has much to do.
_TOKENS_CPU = 4096
_TOKENS_DEVICE = 2**16

# Kinds of device for which the next texts are tokenized while the model computes. Not a CPU: there both want the same
# cores, and tokenizing is 2 % of the work of a BERT of 2 layers x 128, less of any larger model.
_OVERLAPPED = ("cuda", "mps")
_BATCHES_AT_ONCE = 4
"""How many batches are tokenized, and sorted by length, at once where tokenizing overlaps with the model."""

HEAD_SWITCH = "PYSERINI_RESCALE_HEAD"
_HEADS = ("fp32", "bf16", "bf16-anyway")


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``: cpu, cuda, cuda:N or mps.

    Raises ConfigError for any other name, and for one that this machine does not have, unless it is an ``UntypedStr``.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"unknown device {name!r}: use cpu, cuda, cuda:N or mps")
    missing = None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            missing = "PyTorch sees no CUDA device here"
        elif (device.index or 0) >= torch.cuda.device_count():
            missing = f"PyTorch sees {torch.cuda.device_count()} CUDA devices here, counted from 0"
    elif device.type == "mps" and not torch.backends.mps.is_available():
        missing = "PyTorch sees no Apple GPU here"
    if missing is None:
        return device
    if isinstance(name, UntypedStr):
        return torch.device("cpu")
    raise ConfigError(f"device {name!r} is not available: {missing}; use cpu")


def has_bf16(device: torch.device, cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether ``device`` multiplies bfloat16 in hardware; for a CPU as Linux tells it, elsewhere False."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0) or torch.version.hip is not None
    if device.type != "cpu":
        return True
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()}
    return not flags.isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})  # the last is ARM's


def choose_head(asked: str | None, device: torch.device) -> torch.dtype | None:
    """Return the type of the head's product, None for the model's own, from fp32, bf16 or bf16-anyway.

    asked: None takes what the environment variable PYSERINI_RESCALE_HEAD says, fp32 where it says nothing.

    Raises ConfigError for any other value, and for bf16 where it is emulated, which is slower than float32.
    """
    name = f"head {asked!r}"
    if asked is None:
        asked = os.environ.get(HEAD_SWITCH) or "fp32"
        name = f"{HEAD_SWITCH}={asked}"
    if asked not in _HEADS:
        raise ConfigError(f"{name} is not known: use {', '.join(_HEADS[:-1])} or {_HEADS[-1]}")
    if asked == "bf16" and not has_bf16(device):
        raise ConfigError(
            f"{name}: no bf16 instructions are found on {device}, where it would be emulated and slower than fp32; "
            "leave it out, or use bf16-anyway"
        )
    return None if asked == "fp32" else torch.bfloat16


class SpladeTexts:
    """What documents and queries share: the model, its terms, and token ids to impacts.

    Attributes that Pyserini's own classes have too: ``model``, ``tokenizer``, ``device`` (a string). Ours: ``name``,
    ``policy``, ``terms`` (V), ``empty_count`` (texts so far whose vector had no term left).
    """

    def _load(
        self,
        name: str,
        tokenizer_name: str | None,
        device: str,
        trust_remote_code: bool = False,
        head: str | None = None,
    ) -> None:
        chosen = choose_device(device)
        product = choose_head(head, chosen)
        self.name, _ = split_name(str(name))
        self.model = load_masked_lm(self.name, trust_remote_code=trust_remote_code)
        self.model.to(chosen)  # type: ignore[arg-type]  # the library's decorator takes ``self`` for an argument
        self.tokenizer = load_tokenizer(tokenizer_name or self.name, trust_remote_code)
        self.device = str(chosen)
        self.policy = stored_policy(self.model) or Policy()
        self.empty_count = 0
        self._head = find_head(self.model)
        self._weight = None if product is None else self._head.weight.detach().to(product)
        self._screened: ScreenedHead | None = None
        self._limit = position_limit(self.model)
        size = self._head.weight.shape[0]
        self.terms = index_terms(self.tokenizer, size)
        self._special = special_ids(self.tokenizer, size)
        self._filler = self.tokenizer.pad_token_id or 0

    @property
    def vocabulary_size(self) -> int:
        """V: the number of terms a vector can have."""
        return len(self.terms)

    @property
    def head_dtype(self) -> torch.dtype:
        """The type that the head's product is made in."""
        return self._head.weight.dtype if self._weight is None else self._weight.dtype

    def _length(self, asked: int, stored: int | None, pairs: bool = False) -> int:
        """Return the length to cut texts to, from the one asked for, the policy's, and what the model can take."""
        typed = not isinstance(asked, UntypedInt)
        length = int(asked) if typed or stored is None else stored
        if self._limit is not None and length > self._limit:
            if typed:
                raise ConfigError(
                    f"max length {length} is beyond the {self._limit} positions of {self.name}: ask for fewer"
                )
            length = self._limit
        reserved = self.tokenizer.num_special_tokens_to_add(pair=pairs)
        if length <= reserved:
            raise ConfigError(
                f"max length {length} leaves no room for text beside {reserved} special tokens: ask for more"
            )
        return length

    def own_terms(self, text: str, length: int) -> set[str]:
        """Return the terms of a text's own tokens, special ones included: what is active beside them is expansion."""
        return set(self.terms[self._token_ids(text, length)].tolist())

    def _token_ids(self, texts: Any, length: int, text_pair: Any = None) -> Any:
        return self.tokenizer(
            texts,
            text_pair=text_pair,
            truncation=True,
            max_length=length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]

    def _vectors(self, sequences: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the vectors (B, V), float32, of sequences of token ids, in one forward pass."""
        if max(map(max, sequences)) >= len(self.terms):
            raise ModelError(
                f"the tokenizer gives ids beyond the {len(self.terms)} entries of {self.name}'s vocabulary"
            )
        ids, mask = pad(sequences, self._filler)
        ids, mask = ids.to(self.device), mask.to(self.device)
        vectors = splade_vectors(self.model, self._head, ids, mask, self._weight, self._screened).cpu().numpy()
        if not self.policy.special_tokens:
            vectors[:, self._special] = 0.0
        return vectors

    def _impacts(self, sequences: Sequence[Sequence[int]]) -> list[dict[str, int]]:
        """Return term -> impact for each sequence of token ids, in one forward pass."""
        pairs = sparse_impacts(self._vectors(sequences), self.policy.weight_range, self.policy.quant_range)
        self.empty_count += sum(not len(numbers) for numbers, _ in pairs)
        return [dict(zip(self.terms[numbers].tolist(), impacts.tolist(), strict=True)) for numbers, impacts in pairs]


class DocumentTexts(SpladeTexts):
    """Documents to impacts, or to weights.

    model_name: folder or Hub id of any masked language model, with or without ``splade-rescaled:`` in front.
    tokenizer_name: where to load the tokenizer from, the model by default. prefix: put before every text, as in
    Pyserini. batch_size: texts in one forward pass at most; short texts of one ``encode`` call share passes. head: see
    ``choose_head``.

    Raises ModelError and ConfigError (unknown or missing device, a head that cannot be used).
    """

    def __init__(
        self,
        model_name: str,
        tokenizer_name: str | None = None,
        device: str = UntypedStr("cuda:0"),
        prefix: str | None = None,
        batch_size: int = 64,
        trust_remote_code: bool = False,
        head: str | None = None,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError(f"batch size {batch_size!r} cannot be used: it is a whole number above 0")
        self._load(model_name, tokenizer_name, device, trust_remote_code, head)
        if self._weight is None:
            self._screened = ScreenedHead(self._head)
        self.prefix = prefix
        self.batch_size = batch_size

    def encode(
        self,
        texts: Sequence[str | None],
        titles: Sequence[str | None] | None = None,
        max_length: int = UntypedInt(512),
        add_sep: bool = False,
        fp16: bool = False,
        **fields: Any,
    ) -> list[dict[str, int]]:
        """Return term -> impact (1 or more) for each document, in order; {} where no term is left.

        max_length: tokens, special ones included. add_sep: title and text as a pair, not joined by a space. fp16:
        half precision, on CUDA only.

        Raises ConfigError for options that cannot be followed, ModelError for weights that are no numbers.
        """
        if fields:
            raise ConfigError(
                f"fields {', '.join(sorted(fields))} cannot be encoded: a document is its title and text "
                "(--fields title text)"
            )
        precision = self._precision(fp16)
        inputs = _join_fields([texts] if isinstance(texts, str) else texts, titles, self.prefix, add_sep)
        length = self._length(max_length, self.policy.document_length, pairs=add_sep and titles is not None)
        result: list[dict[str, int]] = []
        with precision, contextlib.closing(self._tokenized(inputs, length)) as parts:
            for sequences in parts:
                result += self._encode_sequences(sequences)
        return result

    def document_length(self, asked: int) -> int:
        """Return the tokens that documents are cut to: what was typed, else the policy's, the model's limit at most."""
        return self._length(asked, self.policy.document_length)

    def start_afresh(self) -> None:
        """Forget what earlier texts taught, so that what follows is computed as in a new process, to the last bit.

        Which terms a screened head multiplies out depends on the texts that it has seen; that may move the last bit of a
        logit, since a product of another shape is added up in another order.
        """
        if self._screened is not None:
            self._screened = ScreenedHead(self._head)

    def weights(
        self, texts: Sequence[str], max_length: int = UntypedInt(512), watch: Callable[[int], object] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (ids, ascending, int32; weights, float32) of the terms of each text, in order, before any quantiser.

        ``terms`` spells the ids. watch: is told after each forward pass how many texts it had. Raises what ``encode``
        raises.
        """

        def make(sequences: list[list[int]]) -> list[tuple[np.ndarray, np.ndarray]]:
            found = [_sparse(row) for row in self._vectors(sequences)]
            if watch is not None:
                watch(len(found))
            return found

        length = self.document_length(max_length)
        result: list[tuple[np.ndarray, np.ndarray]] = []
        with contextlib.closing(self._tokenized(list(texts), length)) as parts:
            for sequences in parts:
                result += self._in_batches(sequences, make, _nothing)
        return result

    def _encode_sequences(self, sequences: list[list[int]]) -> list[dict[str, int]]:
        """Return term -> impact for each sequence of token ids, in order."""
        self.empty_count += sum(not len(sequence) for sequence in sequences)
        return self._in_batches(sequences, self._impacts, dict)

    def _in_batches(
        self, sequences: list[list[int]], make: Callable[[list[list[int]]], list[Any]], empty: Callable[[], Any]
    ) -> list[Any]:
        """Return what ``make`` gives for each sequence of token ids, in order, ``empty()`` for those without tokens.

        ``make`` gets batches of similar length, each for one forward pass.
        """
        result: list[Any] = [None] * len(sequences)
        filled = [number for number, sequence in enumerate(sequences) if len(sequence)]
        most_tokens = _TOKENS_CPU if self.device == "cpu" else _TOKENS_DEVICE
        for batch in micro_batches([len(sequences[number]) for number in filled], self.batch_size, most_tokens):
            numbers = [filled[index] for index in batch]
            found = make([sequences[number] for number in numbers])
            for number, one in zip(numbers, found, strict=True):
                result[number] = one
        return [empty() if one is None else one for one in result]

    def _tokenized(self, inputs: list[str | tuple[str, str]], length: int) -> Generator[list[list[int]], None, None]:
        """Yield the token ids of all inputs, in order: at once, or for many texts and ``_OVERLAPPED`` devices in parts,
        of which a thread makes the next one while the caller is busy with this one."""
        size = _BATCHES_AT_ONCE * self.batch_size
        if len(inputs) <= size or torch.device(self.device).type not in _OVERLAPPED:
            yield self._sequences(inputs, length)
            return
        with ThreadPoolExecutor(1, "tokenizer") as worker:
            following = worker.submit(self._sequences, inputs[:size], length)
            for start in range(size, len(inputs), size):
                current = following.result()
                following = worker.submit(self._sequences, inputs[start : start + size], length)
                yield current
            yield following.result()

    def _precision(self, fp16: bool) -> contextlib.AbstractContextManager:
        if not fp16:
            return contextlib.nullcontext()
        if self._weight is not None:
            raise ConfigError("fp16 and a bf16 head are two types for one product: leave one of them out")
        if not self.device.startswith("cuda"):
            raise ConfigError(
                f"fp16 needs a CUDA device, and the device is {self.device}: half precision is slower there"
            )
        return torch.autocast("cuda", dtype=torch.float16)

    def _sequences(self, inputs: list[str | tuple[str, str]], length: int) -> list[list[int]]:
        """Return the token ids of every input; a pair (title, text) becomes one sequence with a separator."""
        sequences: list[list[int]] = [[] for _ in inputs]
        single = [number for number, value in enumerate(inputs) if isinstance(value, str)]
        paired = [number for number, value in enumerate(inputs) if not isinstance(value, str)]
        if single:
            found = self._token_ids([inputs[number] for number in single], length)
            for number, ids in zip(single, found, strict=True):
                sequences[number] = ids
        if paired:
            titles, texts = ([inputs[number][part] for number in paired] for part in (0, 1))
            for number, ids in zip(paired, self._token_ids(titles, length, texts), strict=True):
                sequences[number] = ids
        return sequences


def _sparse(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids, int32, and values of what is not zero in a vector (V)."""
    ids = np.flatnonzero(vector).astype(np.int32)
    return ids, vector[ids]


def _nothing() -> tuple[np.ndarray, np.ndarray]:
    return _sparse(np.zeros(0, dtype=np.float32))


def _join_fields(
    texts: Sequence[str | None], titles: Sequence[str | None] | None, prefix: str | None, add_sep: bool
) -> list[str | tuple[str, str]]:
    """Return what is tokenized for each document: a string, or (title, text) with ``add_sep``, less empty fields."""
    if titles is not None and len(titles) != len(texts):
        raise DataError(f"{len(titles)} titles for {len(texts)} texts: every document has one of each, or an empty one")
    inputs: list[str | tuple[str, str]] = []
    for number, text in enumerate(texts):
        title = titles[number] if titles is not None else None
        for value in (title, text):
            if value is not None and not isinstance(value, str):
                raise DataError(
                    f"document {number} of the batch has a {type(value).__name__} where text is expected: {value!r:.60}"
                )
        if prefix is not None:
            text = f"{prefix} {text}" if text else prefix
        if title and text:
            inputs.append((title, text) if add_sep else f"{title} {text}")
        else:
            inputs.append(title or text or "")
    return inputs


class QueryTexts(SpladeTexts):
    """Queries to impacts.

    head: see ``choose_head``.

    Raises ModelError and ConfigError (unknown or missing device, a head that cannot be used).
    """

    def __init__(
        self,
        model_name_or_path: str,
        tokenizer_name: str | None = None,
        device: str = "cpu",
        head: str | None = None,
    ) -> None:
        super().__init__()  # Pyserini's class, where there is one
        self._load(model_name_or_path, tokenizer_name, device, head=head)
        self.has_model = True

    def encode(self, text: str, max_length: int = UntypedInt(256), **kwargs: Any) -> dict[str, int]:
        """Return term -> impact (1 or more) of one query; {} where no term is left.

        max_length: tokens, special ones included. Other keywords are ignored, as Pyserini's classes do.
        """
        ids = self._query_ids(text, max_length)
        if not ids:
            self.empty_count += 1
            return {}
        return self._impacts([ids])[0]

    def query_length(self, asked: int) -> int:
        """Return the tokens that queries are cut to: what was typed, else the policy's, the model's limit at most."""
        return self._length(asked, self.policy.query_length)

    def weights(self, text: str, max_length: int = UntypedInt(256)) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids, ascending, int32; weights, float32) of one query's terms, before any quantiser."""
        ids = self._query_ids(text, max_length)
        return _sparse(self._vectors([ids])[0]) if ids else _nothing()

    def _query_ids(self, text: str, max_length: int) -> list[int]:
        if not isinstance(text, str):
            raise DataError(f"a query is a string, not a {type(text).__name__}")
        return self._token_ids(text, self.query_length(max_length))
