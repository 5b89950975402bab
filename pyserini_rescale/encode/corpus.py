"""A whole corpus to impacts: streamed, in units, by one process or many, and taken up again where it was stopped.

Memory holds one unit of documents and does not grow with the corpus. The corpus is read once before anything is encoded,
so that a line that cannot be used is found at the start and the time left is known. Process i of n does the units i, i + n, ...
(folder.py says why no lock is needed). Batches never cross a unit, and the encoder forgets between units what it has seen,
so a unit's vectors depend on nothing but its documents, the settings, device, dtype and threads.

Needs no Pyserini and no Java.
"""

import dataclasses
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from pyserini_rescale.corpora import Corpus, Scan, Text, existing, open_corpus, open_topics, scan
from pyserini_rescale.encode import quantize
from pyserini_rescale.encode.folder import Folder, read_settings, settings_digest, unit_count, unit_range
from pyserini_rescale.encode.prune import Pruning
from pyserini_rescale.encode.quantize import Quantizer
from pyserini_rescale.encode.untyped import UntypedInt, UntypedStr
from pyserini_rescale.encode.vectors import EMPTY_IDS_LISTED
from pyserini_rescale.environment import installed
from pyserini_rescale.errors import ConfigError, DataError, ModelError
from pyserini_rescale.processes import Place

if TYPE_CHECKING:
    from pyserini_rescale.encode.base import DocumentTexts, SpladeTexts
    from pyserini_rescale.encode.calibrate import Weights

LENGTH = 256
"""Tokens of a document where neither the user nor the model says it, as in ``pyserini.encode``."""
LARGEST_UNIT, SMALLEST_UNIT, UNITS_AT_LEAST = 10_000, 256, 64
SAMPLE = 1_000
VERSIONED = ("pyserini-rescale", "torch", "transformers", "tokenizers")


@dataclasses.dataclass(frozen=True)
class Options:
    """What to encode, and how. corpus, fields, id_field: as ``open_corpus`` takes them. quantizer: a name of quantize.py.

    unit: documents in one; None is a 64th of the corpus, from 256 to 10,000. max_length: tokens, special ones included;
    None leaves it to the model. sample, sample_topics: what a scale is calibrated on; without topics the first half of some
    documents' texts. device: None is this process's GPU, or a CPU where there is none.
    """

    corpus: str
    model: str
    output: Path
    fields: tuple[str, ...] = ()
    id_field: str | None = None
    quantizer: str = quantize.MODEL
    pruning: Pruning = Pruning()
    max_length: int | None = None
    unit: int | None = None
    gzip: bool = False
    sample: int = SAMPLE
    sample_topics: str | None = None
    batch_size: int = 64
    device: str | None = None
    head: str | None = None
    trust_remote_code: bool = False
    resume: bool = False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What this process found and did. manifest: None while units of other processes are missing."""

    units: int
    done_before: int
    done: int
    missing: tuple[int, ...]
    manifest: dict[str, Any] | None


def encode(options: Options, place: Place, say: Callable[[str], None], bar: bool = True) -> Outcome:
    """Encode this process's units that are not finished yet; write the manifest if all units are there then.

    bar: show progress. Raises ConfigError (options; an output folder that holds something else), DataError (the corpus; a
    disk that is full), ModelError. What is finished is kept whatever happens.
    """
    _check(options)
    corpus = open_corpus(options.corpus, options.fields, options.id_field)
    folder = Folder(options.output)
    folder.check()
    encoder = load(options, place)
    settings = _settings(options, corpus, folder, encoder, say, bar)
    scale = quantize.from_json(settings["quantizer"])
    size, documents = settings["asked"]["unit"], settings["corpus"]["documents"]
    count = unit_count(size, documents)
    before = folder.finished(settings)
    mine = range(place.number, count, place.count)
    if not options.resume and (done := [number for number in mine if number in before]):
        raise ConfigError(
            f"{folder.path} holds {len(done):,} finished units: --resume goes on; else remove it, or name another folder"
        )
    wanted = [number for number in mine if number not in before]
    part = sum(len(unit_range(number, size, documents)) for number in wanted)
    say(
        f"process {place.number + 1} of {place.count}: {len(wanted):,} of {count:,} units to do, {part:,} of {documents:,} "
        f"documents, on {encoder.device}"
    )
    state = settings["corpus"]["files"]
    with tqdm(total=part, desc="encoding", unit=" documents", disable=not bar, smoothing=0.05) as progress:
        for number, texts in _units(corpus, size, wanted):
            if len(texts) != len(unit_range(number, size, documents)) or corpus.state() != state:
                raise DataError(f"{corpus.source} has changed since {folder.settings} was written: encode it anew")
            _encode_unit(number, texts, encoder, scale, options, folder, progress, settings_digest(settings))
    records = folder.finished(settings)
    missing = tuple(number for number in range(count) if number not in records)
    manifest = None if missing else folder.finish(settings, records)
    return Outcome(count, len(before), len(wanted), missing, manifest)


def load(options: Options, place: Place) -> "DocumentTexts":
    """Return the encoder of documents on this process's device."""
    from pyserini_rescale.encode.base import DocumentTexts

    return DocumentTexts(
        options.model,
        device=options.device or default_device(place),
        batch_size=options.batch_size,
        trust_remote_code=options.trust_remote_code,
        head=options.head,
    )


def default_device(place: Place) -> str:
    """Return the GPU of this process, where the machine has any: of those that it sees, by its local number."""
    import torch

    return UntypedStr(f"cuda:{place.local % max(1, torch.cuda.device_count())}")


def fingerprint(encoder: "SpladeTexts") -> str:
    """Return a SHA-256 of what turns a text into weights: parameters, tokenizer, terms and policy (without its scale)."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(encoder.model.state_dict().items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
    backend = getattr(encoder.tokenizer, "backend_tokenizer", None)
    digest.update((backend.to_str() if backend is not None else json.dumps(encoder.tokenizer.get_vocab())).encode())
    digest.update("\0".join(encoder.terms).encode())
    digest.update(f"\0{encoder.policy.special_tokens}".encode())
    return digest.hexdigest()


def _check(options: Options) -> None:
    if options.quantizer not in quantize.NAMES:
        raise ConfigError(f"--quantizer {options.quantizer} is not known: use {', '.join(quantize.NAMES)}")
    for name, value, least in (
        ("--unit", options.unit, 1), ("--sample", options.sample, 2), ("--batch-size", options.batch_size, 1),
        ("--max-length", options.max_length, 1),
    ):  # fmt: skip
        if value is not None and value < least:
            raise ConfigError(f"{name} {value}: {least} or more is needed")


# Settings: what belongs to the folder


def _settings(
    options: Options, corpus: Corpus, folder: Folder, encoder: "DocumentTexts", say: Callable[[str], None], bar: bool
) -> dict[str, Any]:
    """Return the folder's settings, made here if no process was faster; raises ConfigError where they are others.

    The folder is made when the corpus has been read to its end.
    """
    length = _length(options, encoder)
    begun = folder.begun()  # asked first: another process may write the settings, and units after that, any time
    stored = read_settings(folder.settings) if folder.settings.exists() else None
    if stored is None and begun:
        raise ConfigError(
            f"{folder.path} holds vectors and no {folder.settings.name}: nothing says how they were made. Put it back, or name "
            "a new folder"
        )
    state = corpus.state()
    if stored is not None and state and stored["corpus"]["files"] == state:
        size = Scan(*(stored["corpus"][name] for name in Scan._fields))
    else:
        say(f"reading {corpus.source} once")
        size = scan(corpus, lambda stream: tqdm(stream, desc="reading", unit=" documents", disable=not bar))
    asked = {
        "model": fingerprint(encoder),
        "policy": encoder.policy.to_dict(),
        "head": str(encoder.head_dtype).removeprefix("torch."),
        "max_length": length,
        "quantizer": options.quantizer,
        "pruning": dataclasses.asdict(options.pruning),
        "fields": list(options.fields),
        "id_field": options.id_field,
        "documents": size.documents,
        "corpus": size.sha256,
        "unit": options.unit or _unit_size(size.documents, stored),
        "gzip": options.gzip,
    }
    if options.quantizer == quantize.CALIBRATED:
        asked.update(sample=options.sample, sample_topics=_topics_digest(options.sample_topics))
    if stored is None:
        scale, record = _scale(options, corpus, size, encoder, length, say)
        folder.prepare()
        folder.write_once(
            folder.settings,
            {
                "asked": asked,
                "model_name": _located(encoder.name),
                "quantizer": dataclasses.asdict(scale),
                "calibration": record,
                "corpus": {"source": _located(corpus.source), **size._asdict(), "files": state},
            },
        )
        stored = read_settings(folder.settings)
    different = [
        f"{name} was {_short(stored['asked'].get(name))}, is {_short(value)}"
        for name, value in asked.items()
        if stored["asked"].get(name) != value
    ]
    if different:
        raise ConfigError(
            f"{folder.settings} says otherwise: {'; '.join(different)}. Resume as it began, or name another folder"
        )
    named = _named_scale(options, encoder)
    if named is not None and stored["quantizer"] != dataclasses.asdict(named):
        raise ConfigError(
            f"{folder.settings} was changed: its scale is not that of {named.name} any more. Put back the file that was written, "
            "or name another folder"
        )
    folder.prepare()
    return {**stored, "corpus": {**stored["corpus"], "files": state}}


def _topics_digest(source: str | None) -> str | None:
    """Return a SHA-256 of the topics' texts: the scale depends on them, wherever they lie."""
    if source is None:
        return None
    return hashlib.sha256("\0".join(topic.text for topic in open_topics(source)).encode()).hexdigest()


def _unit_size(documents: int, stored: dict[str, Any] | None) -> int:
    """Return the size of a unit when none is asked for: the folder's, else one that depends on the corpus alone."""
    if stored is not None:
        return stored["asked"]["unit"]
    return min(LARGEST_UNIT, max(SMALLEST_UNIT, -(-documents // UNITS_AT_LEAST)))


def _located(name: str) -> str:
    """Return a path so that it is found from everywhere; an id as it is."""
    path = existing(name)
    return name if path is None else str(path.absolute())


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:12] + "..."


def _scale(
    options: Options, corpus: Corpus, size: Scan, encoder: "DocumentTexts", length: int, say: Callable[[str], None]
) -> tuple[Quantizer, dict[str, Any] | None]:
    """Return the scale, and how it was found if it was calibrated."""
    named = _named_scale(options, encoder)
    if named is not None:
        return named, None
    from pyserini_rescale.encode.calibrate import calibrate

    say(f"calibrating the scale on {min(options.sample, size.documents):,} documents")
    texts = _sample(corpus, size.documents, options.sample)
    documents = encoder.weights(texts, length)
    if options.sample_topics is None:
        halves = [" ".join(words[: max(1, len(words) // 2)]) for text in texts[::10] if (words := text.split())]
        queries, source = encoder.weights(halves, length), "first halves of documents"
    else:
        queries, source = (
            encoder.weights([topic.text for topic in open_topics(options.sample_topics)], length),
            options.sample_topics,
        )
    scale, record = calibrate(_pruned(documents, options.pruning), queries)
    return scale, {"queries_are": source, **record}


def _named_scale(options: Options, encoder: "DocumentTexts") -> Quantizer | None:
    """Return the scale that the name of a quantizer stands for; None where it is found from a sample."""
    if options.quantizer == quantize.MODEL:
        return quantize.of_policy(encoder.policy)
    return quantize.FIXED.get(options.quantizer)


def _sample(corpus: Corpus, documents: int, number: int) -> list[str]:
    """Return the texts of documents that lie evenly over the corpus."""
    number = min(number, documents)
    chosen = {place * documents // number for place in range(number)}
    found = (corpus.parse(where, item).text for at, (where, item) in enumerate(corpus.items()) if at in chosen)
    return list(found)


def _pruned(vectors: "Sequence[Weights]", pruning: Pruning) -> "list[Weights]":
    return [pruning.apply(ids, weights) for ids, weights in vectors]


# Units


def _units(corpus: Corpus, size: int, wanted: Sequence[int]) -> Iterator[tuple[int, list[Text]]]:
    """Yield (number, documents) of the wanted units, in order; documents of others are read and not parsed."""
    left = set(wanted)
    if not left:
        return
    last = max(left)
    number, texts = -1, list[Text]()
    for position, (where, item) in enumerate(corpus.items()):
        if position % size == 0:
            if number in left:
                yield number, texts
            number, texts = position // size, []
            if number > last:
                return
        if number in left:
            texts.append(corpus.parse(where, item))
    if number in left:
        yield number, texts


def _encode_unit(
    number: int,
    texts: list[Text],
    encoder: "DocumentTexts",
    scale: Quantizer,
    options: Options,
    folder: Folder,
    progress: tqdm,
    settings: str,
) -> None:
    """Write one unit's part file and then its record."""
    encoder.start_afresh()
    vectors = encoder.weights([text.text for text in texts], _length(options, encoder), progress.update)
    name = f"part-{number:06d}.jsonl" + (".gz" if options.gzip else "")
    sums = Counter(dict.fromkeys(("empty_vectors", "postings", "impacts", "clamped", "left_out", "bytes"), 0))
    lengths: list[int] = []
    empty_ids: list[str] = []
    largest, digest = 0, hashlib.sha256()
    packer = zlib.compressobj(wbits=31) if options.gzip else None  # without a name or time: equal vectors, equal file
    with folder.written(folder.vectors / name) as stream:

        def put(data: bytes) -> None:
            digest.update(data)
            sums["bytes"] += len(data)
            stream.write(data)

        for text, (ids, weights) in zip(texts, vectors, strict=True):
            try:
                kept, impacts, clamped = scale.quantize(*options.pruning.apply(ids, weights))
            except ModelError as error:
                raise ModelError(f"document {text.id} of {options.corpus}: {error}") from None
            vector = dict(zip(encoder.terms[kept].tolist(), impacts.tolist(), strict=True))
            line = json.dumps({"id": text.id, "vector": vector}).encode() + b"\n"
            put(line if packer is None else packer.compress(line))
            sums.update(postings=len(kept), impacts=int(impacts.sum()), clamped=clamped, left_out=len(ids) - len(kept))
            sums["empty_vectors"] += not len(kept)
            lengths.append(len(kept))
            largest = max(largest, int(impacts.max(initial=0)))
            if not len(kept) and len(empty_ids) < EMPTY_IDS_LISTED:
                empty_ids.append(text.id)
        if packer is not None:
            put(packer.flush())
    record = {
        "unit": number,
        "file": name,
        "documents": len(texts),
        **sums,
        "least_terms": min(lengths),
        "most_terms": max(lengths),
        "largest_impact": largest,
        "first_empty_ids": empty_ids,
        "sha256": digest.hexdigest(),
        "settings": settings,
        "made_with": {**installed(VERSIONED), "device": encoder.device, "threads": _threads()},
    }
    with folder.written(folder.record(number)) as stream:
        stream.write(json.dumps(record).encode())


def _length(options: Options, encoder: "DocumentTexts") -> int:
    return encoder.document_length(UntypedInt(LENGTH) if options.max_length is None else options.max_length)


def _threads() -> int:
    import torch

    return torch.get_num_threads()
