"""The marker: what an index, or pre-encoded topics, say about the scale of their impacts, and whether two go together.

A scale cannot be seen in the integers, and a query of another scale than the index's is searched without an error. So
``index`` leaves a file in the index's folder (Lucene does not mind), ``encode topics`` one beside the topics, and the search
compares them (plugin/patches.py). Needs no torch and no Java.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from pyserini_rescale.encode.quantize import Quantizer, from_json, same_scale
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import write_json

MARKER = "splade_rescale.json"
WHAT = "impacts by pyserini-rescale"
_BESIDE = ".manifest.json"

# Pyserini's own class has these numbers in its code.
PYSERINI_SCALE = (5.0, 256)


def marker(quantizer: dict[str, Any] | Quantizer, **more: Any) -> dict[str, Any]:
    """Return a marker that says the scale, and whatever else is known."""
    if isinstance(quantizer, Quantizer):
        quantizer = dataclasses.asdict(quantizer)
    return {"what": WHAT, "quantizer": quantizer, **more}


def write_index_marker(index: Path, value: dict[str, Any]) -> None:
    write_json(index / MARKER, value)


def index_marker(index: Path) -> dict[str, Any] | None:
    """Return the marker of an index; None where it has none. Raises DataError for one that was damaged."""
    return _read(index / MARKER)


def beside(topics: Path) -> Path:
    """Return where the marker of pre-encoded topics is."""
    return topics.with_name(topics.name + _BESIDE)


def topics_marker(topics: Path) -> dict[str, Any] | None:
    return _read(beside(topics))


def scale_of(value: dict[str, Any]) -> tuple[float, int]:
    """Return (weight_range, quant_range) of a marker."""
    return value["quantizer"]["weight_range"], value["quantizer"]["quant_range"]


def check_scale(index: Path, scale: tuple[float, int], whose: str) -> str | None:
    """Raise ConfigError where the index's scale is another one; return a warning where the index does not say its own."""
    found = index_marker(index)
    if found is None:
        return (
            f"{index} does not say by which scale its impacts were made: results are right only if it was "
            f"{scale[1]}/{scale[0]:g}, as in {whose} (`python -m pyserini_rescale index` makes an index that says it)"
        )
    made = scale_of(found)
    if not same_scale(made, scale):
        raise ConfigError(
            f"the impacts of {index} were made by {made[1]}/{made[0]:g}, those of {whose} are made by {scale[1]}/{scale[0]:g}: "
            f"encode the queries by the index's scale (`python -m pyserini_rescale encode topics --like`), or the corpus anew"
        )
    return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        from_json(found["quantizer"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be used ({one_line(error)}): index anew, or remove it") from None
    return found
