"""Tensors in safetensors files, read a block of rows at a time, without torch.

The format (https://huggingface.co/docs/safetensors): 8 bytes, little-endian, with the length of a JSON header, the
header, then the tensors, row-major, at the byte ranges that the header names. numpy has no bfloat16: its 16 bits are
the upper half of a float32. A checkpoint in several files has an index that says which tensor lies where.

Letters: V rows (vocabulary), d columns (width).
"""

import dataclasses
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_rescale.errors import ModelError, one_line

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_TYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
_LONGEST_HEADER = 100_000_000  # the limit of the safetensors library
_BLOCK_BYTES = 2**23  # of float64; larger blocks leave the caches and gain nothing


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies: the file, the number type by its safetensors name, the shape, the first byte."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the tensor (V, d) as float64 blocks of rows (v, d), or (V,) as one column.

        Only a block is held at a time. Raises ModelError for a number type that is none of the four usual ones.
        """
        kind = _TYPES.get(self.dtype)
        if kind is None:
            raise ModelError(f"{self.path} holds numbers of type {self.dtype}; {', '.join(_TYPES)} can be read")
        count, width = self.shape[0], math.prod(self.shape[1:])
        step = max(1, _BLOCK_BYTES // (8 * max(1, width)))
        with open(self.path, "rb") as file:
            file.seek(self.start)
            for first in range(0, count, step):
                rows = min(step, count - first)
                block = np.fromfile(file, dtype=kind, count=rows * width)
                if block.size != rows * width:
                    raise ModelError(f"{self.path} is cut short: fetch it again")
                if self.dtype == "BF16":
                    block = (block.astype(np.uint32) << 16).view(np.float32)
                yield block.reshape(rows, width).astype(np.float64)


def stored_tensors(location: Path) -> dict[str, StoredTensor] | None:
    """Return name -> place of all tensors of a checkpoint: a folder or one .safetensors file.

    None for a folder without safetensors. Raises ModelError for damaged files.
    """
    if location.is_file():
        return _read_header(location)
    if (location / SINGLE).is_file():
        return _read_header(location / SINGLE)
    if not (location / INDEX).is_file():
        return None
    found: dict[str, StoredTensor] = {}
    for name in shard_names(location / INDEX):
        if not (location / name).is_file():
            raise ModelError(f"{location / INDEX} names {name}, which is not there: fetch the checkpoint again")
        found.update(_read_header(location / name))
    return found


def shard_names(index: Path) -> list[str]:
    """Return the names of the files that an index of a checkpoint in several files speaks of."""
    places = read_json(index).get("weight_map")
    names = list(places.values()) if isinstance(places, dict) else []
    if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise ModelError(f"{index} is no index of safetensors files: fetch the checkpoint again")
    return sorted(set(names))


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``; raises ModelError if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object")
    return content


def _read_header(path: Path) -> dict[str, StoredTensor]:
    damaged = ModelError(f"{path} is not a whole safetensors file: fetch it again")
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 0 < length <= min(size - 8, _LONGEST_HEADER):
                raise damaged
            header = json.loads(file.read(length))
        found = {}
        for name, facts in header.items():
            if name == "__metadata__":
                continue
            shape, (first, last) = tuple(facts["shape"]), facts["data_offsets"]
            kind = _TYPES.get(facts["dtype"])
            if not all(type(number) is int and number >= 0 for number in (*shape, first, last)) or first > last:
                raise damaged
            if 8 + length + last > size or (kind is not None and math.prod(shape) * kind.itemsize != last - first):
                raise damaged
            found[name] = StoredTensor(path, facts["dtype"], shape, 8 + length + first)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {one_line(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged from None
    return found
