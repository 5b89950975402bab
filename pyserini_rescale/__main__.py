"""``python -m pyserini_rescale``: see pyserini_rescale/cli."""

import sys

from pyserini_rescale.cli import main

if __name__ == "__main__":
    sys.exit(main())
