"""The few exceptions a user can meet. Every message is one line: what is wrong, where, and what to do.

Command-line entry points print ``error: MESSAGE`` and leave with the exception's ``exit_code``; nothing else turns an
error into text, and no traceback reaches a user.
"""

import errno
import functools
import sys
from collections.abc import Callable


class RescaleError(Exception):
    """Base class. ``exit_code`` is the status a command leaves with."""

    exit_code = 2


class ConfigError(RescaleError):
    """An option, YAML key or environment variable that cannot be used."""


class DataError(RescaleError):
    """A document, query, qrels or run file that cannot be used; names the file and the line."""


class ModelError(RescaleError):
    """A model folder or checkpoint that cannot be used."""


class StageError(RescaleError):
    """A stage of a regression (encode, index, search, ...) that failed."""

    exit_code = 3


def one_line(error: BaseException | str) -> str:
    """Return a message, or that of an error, as a single line (other libraries' messages often span several)."""
    return " ".join(str(error).split()) or (type(error).__name__ if isinstance(error, BaseException) else "")


def no_room(error: OSError) -> bool:
    """Whether something could not be written for want of room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def reported(main: Callable[..., int]) -> Callable[..., int]:
    """Make an entry point of our errors: one line on stderr, and the error's ``exit_code`` as its status."""

    @functools.wraps(main)
    def wrapped(*args: object, **options: object) -> int:
        try:
            return main(*args, **options)
        except RescaleError as error:
            print(f"error: {one_line(error)}", file=sys.stderr)
            return error.exit_code

    return wrapped
