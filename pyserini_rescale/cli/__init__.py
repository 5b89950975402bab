"""The one command, ``python -m pyserini_rescale``: a table of sub-commands, each a module of this package.

A sub-command module has ``HELP`` (one line), ``EXAMPLES`` (shown by --help), ``add_arguments(parser)`` and
``run(args) -> int`` (the exit status). Modules are imported only when asked for, so that ``--help`` needs no torch.
"""

import argparse
import importlib
import os
import sys

from pyserini_rescale import __version__
from pyserini_rescale.errors import RescaleError, no_room, one_line

COMMANDS = {
    "quickstart": "what a rescale does: a small backbone trained four times, encoded, indexed, searched",
    "doctor": "is everything here: packages, Java, hook, devices, caches; three documents searched",
    "head": "the MLM head: show, suggest, rescale, undo",
    "train": "train a SPLADE model, on a CPU or many GPUs; mine hard negatives",
    "encode": "a corpus of any size to impacts, on one machine or many; topics too",
    "index": "check vectors, index them through Pyserini, compare, mark the index with its scale",
    "explain": "why a document has its score: shared terms, contributions, expansions",
    "export": "an encoded corpus for other engines: CIFF, or JSON lines of weights",
    "run": "run a Pyserini module with our encoders, without the start-up hook",
    "collection": "write corpus, topics and qrels of a collection in the forms that Pyserini reads",
    "regress": "regressions: list, show, plan, run, verify, report, compare, figure, pages",
    "plot": "figures from the logs of training runs: loss",
}

_OVERVIEW = """\
examples:
  python -m pyserini_rescale quickstart
  python -m pyserini_rescale encode --corpus SCIFACT --model MODEL --output scifact-encoded
  python -m pyserini_rescale run pyserini.encode input ... output ... encoder --encoder-class splade-rescaled ...
  python -m pyserini_rescale regress run scifact.splade-tiny
  python -m pyserini_rescale COMMAND --help
"""


def _overview() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyserini_rescale",
        description="Strong learned sparse retrievers (SPLADE) out of any masked language model, inside Pyserini.",
        epilog="commands:\n" + "".join(f"  {name:<12} {text}\n" for name, text in COMMANDS.items()) + "\n" + _OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pyserini-rescale {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of the commands below")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="the command's own options")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Parse ``argv``, run the sub-command and return its exit status; errors of ours become one line."""
    argv = sys.argv[1:] if argv is None else argv
    overview = _overview()
    if not argv:
        overview.print_help()
        return 2
    chosen = overview.parse_args(argv[:1])
    try:
        os.getcwd()
    except FileNotFoundError:  # whatever is imported would fail somewhere
        print("error: the working folder does not exist any more: change into another one", file=sys.stderr)
        return 2
    try:
        status = _run(chosen.command, argv[1:])
        sys.stdout.flush()
        return status
    except RescaleError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pyserini_rescale"):
            raise
        print(f"error: {sys.executable} lacks the package {error.name}: activate the environment in which pyserini-rescale "
              "was installed (source .venv/bin/activate), or `pip install` it here", file=sys.stderr)  # fmt: skip
        return 2
    except BrokenPipeError:  # `... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.filename is not None or not no_room(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be written cannot be either
        print(f"error: standard output cannot be written: {one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a sub-command's own options."""
    module = importlib.import_module(f"pyserini_rescale.cli.{command}")
    parser = argparse.ArgumentParser(
        prog=f"python -m pyserini_rescale {command}",
        description=module.HELP,
        epilog="examples:\n" + module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


def _run(command: str, argv: list[str]) -> int:
    args = parser_of(command).parse_args(argv)
    return importlib.import_module(f"pyserini_rescale.cli.{command}").run(args)
