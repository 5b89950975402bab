"""Messages as single lines."""

import errno

import pytest

from pyserini_rescale.errors import no_room, one_line


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("a\n b", "a b"),
        ("", ""),
        (ValueError("a\u2028b"), "a b"),
        (ValueError(), "ValueError"),
        (ValueError(" "), "ValueError"),
    ],
)
def test_one_line(given, line):
    assert one_line(given) == line


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, True), (errno.EFBIG, True), (errno.ENOENT, False), (errno.EACCES, False)]
)
def test_no_room(number, expected):
    assert no_room(OSError(number, "x")) is expected
