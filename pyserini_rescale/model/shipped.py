"""Small masked language models that come with the package, by name: usable wherever a folder or Hub id is.

``mini-modernbert`` has ModernBERT's architecture, 4 layers x 128, and a cased byte-level BPE of 8,192; ``mini-bert`` has
BERT's, of the same size, and an uncased WordPiece. They were pretrained for this package by scripts/pretrain_mini.py
(recipe and logs beside it). Their use is to show and test, on any machine and without a network, what a rescale does to
a trained head.
"""

from pathlib import Path

SHIPPED = ("mini-modernbert", "mini-bert")
_FOLDER = Path(__file__).parent / "minis"


def shipped_folder(name: str) -> str:
    """Return the folder of a model that comes with the package; any other name, or that of a folder here, as it is."""
    if name in SHIPPED and not Path(name).exists():
        return str(_FOLDER / name)
    return name
