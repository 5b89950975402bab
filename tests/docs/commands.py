"""The commands that the pages show: what stands in code blocks, indented or fenced, and between backticks."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyserini_rescale.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PROGRAMS = ("python", "bash", "torchrun", "srun", "deepspeed", "source", "pip", "mkdir", "cp")
OURS = "python -m pyserini_rescale "

_VARIABLE = re.compile(r"[A-Z_]+=\S*")
_FENCE = re.compile(r"^(```|~~~)")
_INLINE = re.compile(r"`([^`\n]+)`")


class Command(NamedTuple):
    """A command as it stands on a page, its parts set apart by single spaces, and where that is."""

    text: str
    where: str


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_of(page: Path) -> Iterator[Command]:
    """Yield the commands of code blocks, and complete ones between backticks, in order."""
    block, fenced = "", False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{page.relative_to(ROOT)} line {number}"
        if _FENCE.match(line.strip()):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            block += line.strip()
            if block.endswith("\\"):
                block = block[:-1].rstrip() + " "
                continue
            for part in re.split(r"\s+&&\s+", block):
                if words := _words(part):
                    yield Command(" ".join(words), where)
        else:
            for span in _INLINE.findall(line):
                words = _words(span)
                if len(words) > 1 and words[0] in COMMANDS:  # the text leaves out what all of ours begin with
                    words = [*OURS.split(), *words]
                    if not _complete(words):
                        continue
                named = words[1:2] == ["-m"] and len(words) < 4  # a program's name, without anything for it to do
                if len(words) > 1 and words[0] in PROGRAMS and words[-1] != "..." and not named:
                    yield Command(" ".join(words), where)
        block = ""


def _words(text: str) -> list[str]:
    """Return the words of a command without its comment, quoted ones with their quotes; [] for what is none."""
    text = re.sub(r"\s+#.*$", "", text)
    words = text.split()
    program = next((word for word in words if not _VARIABLE.fullmatch(word)), "")
    return words if program in PROGRAMS or program in COMMANDS else []


def _complete(words: list[str]) -> bool:
    """Whether it is more than the name of a command, such as ``head show`` or ``encode topics --like``."""
    named = words[3:]
    return not named[-1].startswith("--") and "..." not in named and len(named) > 2


def argv_of(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a command sets, and its words without quotes."""
    words = shlex.split(text)
    given = list(itertools.takewhile(_VARIABLE.fullmatch, words))
    return dict(word.split("=", 1) for word in given), words[len(given) :]


def readings(text: str) -> list[str]:
    """Return the commands that a line of usage stands for: without and with what is optional, with each alternative."""
    if "[" in text:
        both = re.sub(r"\s*\[[^\]]*\]", "", text), re.sub(r"[\[\]]", "", text)
        return [reading for one in both for reading in readings(one)]
    text = text.replace(" ...", "")
    if group := re.search(r"\(([^()]*\|[^()]*)\)", text):
        return [
            reading
            for choice in group[1].split("|")
            for reading in readings(text[: group.start()] + choice.strip() + text[group.end() :])
        ]
    if word := re.search(r"(?<![\w\"'])([\w.-]+(?:\|[\w.-]+)+)", text):
        return [
            reading
            for choice in word[1].split("|")
            for reading in readings(text[: word.start()] + choice + text[word.end() :])
        ]
    return [text]
