"""Where a result was made: versions, commit and machine, as results record them."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyserini_rescale


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages ``names``, "not installed" for those that are not."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def describe(versions: Mapping[str, str]) -> dict[str, Any]:
    """Return versions (Python's and those given), commit (of a checkout) and machine."""
    return {
        "versions": {"python": platform.python_version(), **versions},
        "commit": _commit(),
        "machine": {"system": platform.platform(), "processor": _processor(), "cpus": os.cpu_count()},
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the commit of the checkout that this package runs from, "+changes" where it differs; None elsewhere."""
    checkout = Path(pyserini_rescale.__file__).parents[1]
    if not (checkout / ".git").exists():
        return None

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", checkout, *words], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no")
    return commit and commit + ("+changes" if changed else "")
