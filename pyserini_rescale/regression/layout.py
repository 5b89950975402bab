"""Which files a regression has, in which folder each lies, and what those in JSON say."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from pyserini_rescale.errors import DataError, one_line


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files of one regression.

    work: its own folder. trained: where its model is trained, indexed: where its vectors and index lie, None in ``work``:
    regressions that share them point to one folder.
    """

    work: Path
    trained: Path | None = None
    indexed: Path | None = None

    @property
    def collection(self) -> Path:
        return self.work / "collection"

    @property
    def corpus(self) -> Path:
        return self.collection / "corpus"

    @property
    def qrels(self) -> Path:
        return self.collection / "qrels.txt"

    @property
    def topics(self) -> Path:
        return self.collection / "topics.json"

    @property
    def counts(self) -> Path:
        return self.collection / "counts.json"

    @property
    def embeddings(self) -> Path:
        return (self.indexed or self.work) / "embeddings"

    @property
    def index(self) -> Path:
        return (self.indexed or self.work) / "index"

    @property
    def statistics(self) -> Path:
        return (self.indexed or self.work) / "statistics.json"

    @property
    def head(self) -> Path:
        return (self.trained or self.work) / "head.json"

    @property
    def triples(self) -> Path:
        return (self.trained or self.work) / "triples" / "triples.jsonl"

    @property
    def training(self) -> Path:
        return (self.trained or self.work) / "training"

    @property
    def trained_model(self) -> Path:
        return self.training / "model"

    @property
    def run(self) -> Path:
        return self.work / "run.txt"

    @property
    def queries(self) -> Path:
        return self.work / "queries.json"

    @property
    def result(self) -> Path:
        return self.work / "result.json"


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds; DataError where it holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a JSON object")
    return content
