"""Python in a process of its own, so that what crashes or hangs there is a line of the report and not its end.

What the child answers are marked lines among its output: libraries print what they like while they are imported.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_rescale.logs import last_useful_line

_MARK = "pyserini-rescale-doctor: "
_PRELUDE = f"import json\ndef answer(value): print('\\n{_MARK}' + json.dumps(value), flush=True)\n"


class Outcome(NamedTuple):
    """answers: what the child answered, in order. failure: why it did not end well, None where it did. output: all it
    printed."""

    answers: list[Any]
    failure: str | None
    output: str


def answer(value: Any) -> None:
    """Hand plain data to the process that started this one by ``run``."""
    print(f"\n{_MARK}{json.dumps(value)}", flush=True)


def ask(program: str, seconds: float, environ: Mapping[str, str] | None = None) -> Outcome:
    """Run ``program``, which may call ``answer`` without importing it; see ``run``."""
    return run(["-c", _PRELUDE + program], seconds, environ)


def run(arguments: Sequence[str], seconds: float, environ: Mapping[str, str] | None = None) -> Outcome:
    """Run this interpreter with ``arguments``, for ``seconds`` at most; ``environ`` in place of this process's own."""
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        log = Path(folder, "log")
        # What libraries leave among temporary files goes with the folder.
        inside = {**(os.environ if environ is None else environ), "TMPDIR": folder}
        failure = _run([sys.executable, *arguments], seconds, inside, log)
        output = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.removeprefix(_MARK) for line in output.splitlines() if line.startswith(_MARK)]
    return Outcome([json.loads(line) for line in lines], failure, output)


def _run(command: list[str], seconds: float, environ: Mapping[str, str], log: Path) -> str | None:
    with open(log, "wb") as stream:  # not a pipe: a grandchild that stays would keep it open
        process = subprocess.Popen(
            command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, env=environ, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"it did not end within {seconds:g} seconds"
            raise
    if status < 0:
        return f"it was ended by {signal.Signals(-status).name}"
    return last_useful_line(log) if status else None
