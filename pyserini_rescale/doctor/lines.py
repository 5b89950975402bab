"""What a check says: a line, or several.

OK: as it should be. WARNING: it works, with a limit that is named. PROBLEM: something of this package or of Pyserini does
not work. What is not OK says what to do.
"""

import dataclasses

OK, WARNING, PROBLEM = "OK", "warning", "problem"


@dataclasses.dataclass(frozen=True)
class Line:
    """name: what was looked at. found: what is there. cure: what to do, empty where nothing is to be done."""

    name: str
    status: str
    found: str
    cure: str = ""
