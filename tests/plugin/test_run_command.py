"""``python -m pyserini_rescale run``: modules that cannot be run are one line."""

import argparse

import pytest

from pyserini_rescale.cli import run
from pyserini_rescale.errors import ConfigError


@pytest.mark.parametrize(
    "module", ["pyserini", "pyserini.nope", "pyserini.", "pyserini..x", "pyserini.output_writer.nope", "os"]
)
def test_what_cannot_be_run(module):
    with pytest.raises(ConfigError):
        run.run(argparse.Namespace(module=module, arguments=[]))
