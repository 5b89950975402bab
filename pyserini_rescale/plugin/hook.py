"""Where the start-up hook leads when a Pyserini module is imported, and not before.

The hook itself is one line, in pyserini_rescale_hook.pth (read twice in a virtual environment): a finder on ``sys.meta_path`` that looks at a module's name and
does nothing unless that is Pyserini's. It imports nothing: even this small module would cost every interpreter more than
all the rest of the hook, most of it for listing the folders on ``sys.path`` (scripts/benchmarks/hook_start.py).
``PYSERINI_RESCALE_HOOK=0`` switches it off.
"""

import os
import sys

SWITCH = "PYSERINI_RESCALE_HOOK"
FINDER_NAME = "PyseriniRescaleFinder"


def find_spec(name, path=None, target=None, explicit=False):
    """Return a spec whose loader applies our patches, or None to let the usual finders do it.

    ``explicit`` finders (see ``install``) do not look at the switch.
    """
    if not explicit and os.environ.get(SWITCH) == "0":
        return None
    try:
        from pyserini_rescale.plugin import patches

        return patches.find_spec(name, path, target)
    except Exception as error:  # whatever it is, Pyserini must go on as if we were not there
        print(f"pyserini-rescale: stepping aside for {name}: {type(error).__name__}: {error}", file=sys.stderr)
        return None


class PyseriniRescaleFinder:
    """The finder of the .pth file, for those who ask for it in a program or with ``python -m pyserini_rescale run``."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pyserini" or name.startswith("pyserini."):
            return find_spec(name, path, target, explicit=True)
        return None


def is_ours(finder):
    """True for our finder, wherever it was made."""
    return getattr(finder, "__name__", None) == FINDER_NAME


def install():
    """Put the finder first on ``sys.meta_path``, in place of the start-up hook's."""
    sys.meta_path[:] = [PyseriniRescaleFinder, *(finder for finder in sys.meta_path if not is_ours(finder))]


def is_active():
    """True where Pyserini modules imported from now on, in this process and those it starts, get our patches."""
    return os.environ.get(SWITCH) != "0" and any(is_ours(finder) for finder in sys.meta_path)
