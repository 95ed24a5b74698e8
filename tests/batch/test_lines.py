"""Lines of an input: bounded, numbered, named by what they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from farthing.batch.lines import count_lines, read_lines
from farthing.openai_protocol.json_body import MAX_BODY


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b"a", [(1, b"a")]),
        (b"a\nb\n", [(1, b"a"), (2, b"b")]),
        (b"\n  \t\na\r\n\r\nb", [(3, b"a"), (5, b"b")]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [(1, b"a"), (2, b"\xef\xbb\xbfb")]),
        (b"a\x0bb\x0c\x1c\xc2\x85\xe2\x80\xa8\n", [(1, b"a\x0bb\x0c\x1c\xc2\x85\xe2\x80\xa8")]),
    ],
)
def test_lines_end_where_a_newline_is(
    tmp_path: Path, raw: bytes, expected: list[tuple[int, bytes]]
) -> None:
    path = tmp_path / "in"
    path.write_bytes(raw)
    assert [(line.number, line.raw) for line in read_lines(path)] == expected
    assert count_lines(path) == len(expected)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_may_be_as_long_as_a_request(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"x" * MAX_BODY + b"\n" + b"y" * (MAX_BODY + 3) + b"\nz" + end)
    lines = list(read_lines(path))
    assert [line.number for line in lines] == [1, 2, 3]
    assert lines[0].raw == b"x" * MAX_BODY
    assert lines[1].raw is None
    assert lines[2].raw == b"z"


def test_names_come_of_number_and_content(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"a\na\nb\n")
    first = [line.name for line in read_lines(path)]
    assert len(set(first)) == 3
    path.write_bytes(b"a\nc\nb\r\n")
    second = [line.name for line in read_lines(path)]
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, False, True]


def test_a_line_without_end_is_never_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "in"
    with path.open("wb") as file:
        file.truncate(512 << 20)  # takes no room on disk
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from farthing.batch.lines import read_lines\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "(line,) = read_lines(Path(sys.argv[1]))\n"
        "assert line.raw is None\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) < 64 << 10  # KiB
