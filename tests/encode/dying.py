"""``pyserini_rescale`` with a process of rank 1 that is killed when it has encoded its second unit."""

import os
import signal
import sys

from pyserini_rescale.cli import main
from pyserini_rescale.encode import corpus

plain, units = corpus._encode_unit, []


def encode_unit(number, *given):
    if os.environ["RANK"] == "1" and len(units) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    plain(number, *given)
    units.append(number)


corpus._encode_unit = encode_unit
sys.exit(main(sys.argv[1:]))
