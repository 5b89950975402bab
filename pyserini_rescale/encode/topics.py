"""Topics to impacts: a file that ``pyserini.search.lucene --impact --topics FILE`` takes without an encoder.

Each query's text is its terms, each repeated impact times and separated by spaces, which Pyserini counts; the form is
topics.json, {query id: {"title": text}}, which keeps every id a string (collections.py). The scale is written beside
(marker.py), and is that of an encoded corpus where one is named.
"""

import dataclasses
from pathlib import Path
from typing import Any

from pyserini_rescale.collections import read_topics
from pyserini_rescale.corpora import open_topics
from pyserini_rescale.encode import quantize
from pyserini_rescale.encode.folder import manifest_of
from pyserini_rescale.encode.marker import beside, marker, topics_marker
from pyserini_rescale.encode.prune import Pruning
from pyserini_rescale.encode.quantize import Quantizer
from pyserini_rescale.encode.untyped import UntypedInt
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import exists, write_json

LENGTH = 256
"""Tokens of a query where neither the user nor the model says it, as in Pyserini."""


@dataclasses.dataclass(frozen=True)
class Options:
    """topics: as ``open_topics`` takes them. like: an encoded corpus, whose model and scale are taken. quantizer: a name of
    quantize.py, but calibrated, which only ``like`` can be. pruning: of queries; it need not be that of the documents."""

    topics: str
    output: Path
    model: str | None = None
    like: Path | None = None
    quantizer: str | None = None
    pruning: Pruning = Pruning()
    max_length: int | None = None
    device: str | None = None


def encode_topics(options: Options) -> dict[str, Any]:
    """Write the topics and their marker; return the marker.

    Raises ConfigError (options), DataError (topics; an output that cannot be written), ModelError.
    """
    if options.output.suffix != ".json":
        raise ConfigError(
            f"--output {options.output}: a name that ends in .json is needed, by which Pyserini knows its form"
        )
    if exists(options.output) and topics_marker(options.output) is None:
        raise ConfigError(f"--output {options.output} is there and was not written by us: choose another name")
    manifest = _manifest(options)
    topics = open_topics(options.topics)
    from pyserini_rescale.encode.base import QueryTexts
    from pyserini_rescale.encode.corpus import default_device, fingerprint
    from pyserini_rescale.processes import Place

    model = options.model or (manifest["model_name"] if manifest else "")
    encoder = QueryTexts(model, device=options.device or default_device(Place()))
    if manifest is not None and fingerprint(encoder) != manifest["asked"]["model"]:
        raise ConfigError(f"{model} is not the model that encoded {options.like}: name that by --model")
    scale = _scale(options, manifest, encoder.policy)
    length = UntypedInt(LENGTH) if options.max_length is None else options.max_length
    found: dict[str, dict[str, str]] = {}
    sums = dict.fromkeys(("postings", "impacts", "clamped", "empty_vectors"), 0)
    for topic in topics:
        kept, impacts, clamped = scale.quantize(*options.pruning.apply(*encoder.weights(topic.text, length)))
        words = [word for word, impact in zip(encoder.terms[kept], impacts, strict=True) for _ in range(impact)]
        found[topic.id] = {"title": " ".join(words)}
        sums["postings"] += len(kept)
        sums["impacts"] += len(words)
        sums["clamped"] += clamped
        sums["empty_vectors"] += not words
    written = marker(
        scale,
        model_name=encoder.name,
        model=fingerprint(encoder),
        topics=len(found),
        **sums,
        pruning=dataclasses.asdict(options.pruning),
        max_length=encoder.query_length(length),
    )
    try:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        beside(options.output).unlink(missing_ok=True)  # never the marker of other topics
        write_json(options.output, found)
        write_json(beside(options.output), written)
    except OSError as error:
        raise DataError(f"{options.output} cannot be written: {one_line(error)}") from None
    return written


def read_encoded(path: Path) -> dict[str, dict[str, int]]:
    """Return query id -> term -> impact of a file of pre-encoded topics."""
    found = {}
    for query in read_topics(path):
        vector: dict[str, int] = {}
        for word in query.text.split():
            vector[word] = vector.get(word, 0) + 1
        found[query.id] = vector
    return found


def _manifest(options: Options) -> dict[str, Any] | None:
    if options.like is None:
        if options.model is None:
            raise ConfigError("a model is needed: --model MODEL, or --like ENCODED for that of an encoded corpus")
        return None
    manifest = manifest_of(options.like)
    if manifest is None:
        raise ConfigError(f"--like {options.like} is not an encoded corpus of ours")
    return manifest


def _scale(options: Options, manifest: dict[str, Any] | None, policy: Any) -> Quantizer:
    if manifest is not None:
        scale = quantize.from_json(manifest["quantizer"])
        if options.quantizer not in (None, scale.name):
            raise ConfigError(f"--quantizer {options.quantizer}: {options.like} was made by {scale.name}; leave it out")
        return scale
    if options.quantizer in (None, quantize.MODEL):
        return quantize.of_policy(policy)
    if options.quantizer in quantize.FIXED:
        return quantize.FIXED[options.quantizer]
    raise ConfigError(
        f"--quantizer {options.quantizer}: use model, {', '.join(quantize.FIXED)}, or --like for a calibrated one"
    )
