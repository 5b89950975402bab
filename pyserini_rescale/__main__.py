"""``python -m pyserini_rescale``: see pyserini_rescale/cli."""

import signal
import sys
from types import FrameType

from pyserini_rescale.cli import main


def _ended(number: int, frame: FrameType | None) -> None:
    """End as by an error, so that files written aside are removed and stages' processes ended."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _ended)
    sys.exit(main())
