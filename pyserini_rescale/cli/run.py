"""``run``: a Pyserini module with our encoders known to it, start-up hook or not."""

import argparse
import importlib.util
import os
import runpy
import sys

from pyserini_rescale.errors import ConfigError, one_line

HELP = "Run a Pyserini module as `python -m` does, with our encoders known to it; the start-up hook is not needed."
EXAMPLES = """\
  python -m pyserini_rescale run pyserini.encode input --corpus corpus.jsonl --fields title text \\
      output --embeddings embeddings encoder --encoder MODEL --encoder-class splade-rescaled --fields title text
  python -m pyserini_rescale run pyserini.search.lucene --impact --index INDEX --topics topics.tsv \\
      --encoder splade-rescaled:MODEL --output run.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("module", help="the module, for example pyserini.encode")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its own options, as you would type them")


def run(args: argparse.Namespace) -> int:
    if args.module != "pyserini" and not args.module.startswith("pyserini."):
        raise ConfigError(f"{args.module} is not a module of Pyserini: run it with `python -m {args.module}`")
    from pyserini_rescale.plugin import patches

    patches.activate()
    _check(args.module)
    sys.argv = [args.module, *args.arguments]
    if sys.path and sys.path[0] != os.getcwd():
        sys.path.insert(0, os.getcwd())  # where `python -m` would look first
    runpy.run_module(args.module, run_name="__main__", alter_sys=True)
    return 0


def _check(module: str) -> None:
    """Refuse what `python -m` would refuse, in one line."""
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
    except (ModuleNotFoundError, ValueError) as error:
        raise ConfigError(f"{module} cannot be run: {one_line(error)}") from None
    if spec is None:
        raise ConfigError(
            f"{module} cannot be run: there is no such module of Pyserini, or it is a package without a command"
        )
