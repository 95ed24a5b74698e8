"""An output: whole lines, what is kept of an earlier run, and what is no output."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from farthing.batch.envelope import answered, duplicate, refused
from farthing.batch.lines import Line
from farthing.batch.output import open_output
from farthing.errors import FarthingError, InvalidParameterError
from farthing.openai_protocol.errors import RequestError
from support.batches import read_output
from support.full_disk import files_of_at_most


def good(number: int, custom_id: str, **body: Any) -> dict[str, Any]:
    return answered(Line(number, b"", f"batch_req_{number:016x}"), custom_id, body)


def bad(number: int, custom_id: str | None, error: RequestError | None = None) -> dict[str, Any]:
    line = Line(number, b"", f"batch_req_{number:016x}")
    return refused(line, custom_id, error or RequestError("no"))


def written(path: Path, *records: dict[str, Any]) -> Path:
    with open_output(path) as output:
        for record in records:
            output.write(record)
    return path


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_output(path) as output:
        for number in range(3):
            output.write(good(number, str(number)))
            assert len(read_output(path)) == number + 1


def test_what_is_there_is_known_again(tmp_path: Path) -> None:
    path = written(
        tmp_path / "out", good(1, "a"), bad(2, "b"), bad(3, None), bad(4, "a", duplicate("a"))
    )
    with open_output(path) as output:
        assert (output.answered, output.failed) == (1, 3)
        assert [output.meet(name) for name in ("a", "b", "c")] == ["earlier", "earlier", "new"]
        assert [output.meet(name) for name in ("a", "b", "c")] == ["again"] * 3
        known = [output.has_line(f"batch_req_{number:016x}") for number in range(1, 6)]
        assert known == [False, False, True, True, False]


def test_the_duplicates_line_is_not_the_line_of_the_first(tmp_path: Path) -> None:
    path = written(tmp_path / "out", bad(2, "a", duplicate("a")))
    with open_output(path) as output:
        assert output.meet("a") == "new"


@pytest.mark.parametrize("keep", range(1, 60))
def test_a_torn_last_line_is_dropped(tmp_path: Path, keep: int) -> None:
    path = written(tmp_path / "out", good(1, "a"), good(2, "b"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[: first + keep])
    with open_output(path) as output:
        assert path.read_bytes() == whole[:first]
        assert [output.meet(name) for name in ("a", "b")] == ["earlier", "new"]
        output.write(good(2, "b"))
    assert [record["custom_id"] for record in read_output(path)] == ["a", "b"]


def test_a_last_line_without_its_newline_is_torn_too(tmp_path: Path) -> None:
    path = written(tmp_path / "out", good(1, "a"))
    path.write_bytes(path.read_bytes()[:-1])
    with open_output(path) as output:
        assert output.meet("a") == "new"


@pytest.mark.parametrize(
    "raw",
    [b"precious words", b"{}\n", b'{"custom_id": "a"}\n', b"[1]\n", b"\n", b"\0" * 99, b'"a"'],
)
@pytest.mark.parametrize("behind", [False, True])
def test_what_is_no_output_is_refused_and_not_touched(
    tmp_path: Path, raw: bytes, behind: bool
) -> None:
    path = tmp_path / "out"
    if behind:
        raw = written(path, good(1, "a")).read_bytes() + raw
    path.write_bytes(raw)
    with (
        pytest.raises(InvalidParameterError, match="is no line of a batch's output"),
        open_output(path, retry_errors=True),
    ):
        pass
    assert path.read_bytes() == raw


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_only_a_file_can_be_an_output(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(InvalidParameterError, match="must be a file"), open_output(path):
        pass


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_output(path) as output:
        with pytest.raises(FarthingError, match="another process is writing it"):
            open_output(path).__enter__()
        output.write(good(1, "a"))
    with open_output(path) as output:
        assert output.answered == 1


def test_errors_are_taken_out_to_be_tried_again(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "out"
    target.parent.mkdir()
    written(target, good(1, "a"), bad(2, "b"), good(3, "c"), bad(4, None))
    target.chmod(0o640)
    path = tmp_path / "link"
    path.symlink_to(target)
    with open_output(path, retry_errors=True) as output:
        assert (output.answered, output.failed) == (2, 0)
        assert [output.meet(name) for name in "abc"] == ["earlier", "new", "earlier"]
        with pytest.raises(FarthingError, match="another process"):
            open_output(path).__enter__()
        output.write(good(2, "b"))
    assert [record["custom_id"] for record in read_output(target)] == ["a", "c", "b"]
    assert path.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert list(target.parent.iterdir()) == [target]


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "out", good(1, "a", text="x" * 1000))
    before = path.read_bytes()
    with open_output(path) as output, files_of_at_most(len(before) + 500):
        with pytest.raises(FarthingError, match="may not become larger; all lines in it are whole"):
            output.write(good(2, "b", text="x" * 1000))
        assert path.read_bytes() == before
        output.write(good(3, "c"))
    assert [record["custom_id"] for record in read_output(path)] == ["a", "c"]


def test_a_file_of_which_nothing_came_is_not_left(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_output(path):
        assert path.exists()
    assert not path.exists()
    path.touch()
    with open_output(path):
        pass
    assert path.exists(), "it was there before"


def test_no_reader_sees_a_line_break_inside_of_a_line(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\ne\x1cf\x0bg"
    path = written(tmp_path / "out", good(1, "ä🌾", text=text))
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["response"]["body"]["text"] == text
    assert "ä🌾" in line
