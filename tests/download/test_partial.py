from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from farthing.download.partial import ChecksumMismatch, PartialFile, read_state

DATA = bytes(range(256)) * 40
SUM = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


def partial(folder: Path, checksum: str = SUM, size: int = len(DATA)) -> PartialFile:
    return PartialFile(folder / "m.gguf", name="m", size=size, checksum=checksum)


def begin(folder: Path, length: int) -> None:
    with partial(folder) as file:
        file.write(DATA[:length])


def test_a_file_written_whole_is_put_in_place_and_nothing_else_stays(tmp_path: Path) -> None:
    with partial(tmp_path) as file:
        for at in range(0, len(DATA), 1000):
            file.write(DATA[at : at + 1000])
            file.mark()
        assert not file.target.exists()
        assert file.complete() == tmp_path / "m.gguf"
    assert (tmp_path / "m.gguf").read_bytes() == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize("length", [1, 999, 5000, len(DATA)])
def test_a_second_attempt_goes_on_where_the_first_ended(tmp_path: Path, length: int) -> None:
    begin(tmp_path, length)
    with partial(tmp_path) as file:
        assert file.offset == length
        file.write(DATA[length:])
        file.complete()
    assert (tmp_path / "m.gguf").read_bytes() == DATA


def test_nothing_written_leaves_nothing(tmp_path: Path) -> None:
    with partial(tmp_path):
        pass
    with pytest.raises(KeyboardInterrupt), partial(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_bytes_after_the_mark_are_given_up(tmp_path: Path) -> None:
    begin(tmp_path, 4000)
    with (tmp_path / "m.gguf.partial").open("ab") as file:
        file.write(b"written by a process that was killed")
    with partial(tmp_path) as again:
        assert again.offset == 4000
        again.write(DATA[4000:])
        again.complete()
    assert (tmp_path / "m.gguf").read_bytes() == DATA


@pytest.mark.parametrize("harm", ["flip", "shorten", "no state", "torn state", "foreign state"])
def test_a_beginning_that_cannot_be_proved_is_given_up(tmp_path: Path, harm: str) -> None:
    begin(tmp_path, 4000)
    bytes_path, state_path = tmp_path / "m.gguf.partial", tmp_path / "m.gguf.partial.json"
    if harm == "flip":
        bytes_path.write_bytes(b"\xff" + DATA[1:4000])
    elif harm == "shorten":
        bytes_path.write_bytes(DATA[:3999])
    elif harm == "no state":
        state_path.unlink()
    elif harm == "torn state":
        state_path.write_text(state_path.read_text()[:-9])
    else:
        state = json.loads(state_path.read_text())
        state_path.write_text(json.dumps(state | {"checksum": "sha256:" + "0" * 64}))
    with partial(tmp_path) as file:
        assert file.offset == 0
        file.write(DATA)
        file.complete()
    assert (tmp_path / "m.gguf").read_bytes() == DATA


@pytest.mark.parametrize(
    "change", [{"length": "7"}, {"length": -1}, {"length": 10**9}, {"size": None}, {"more": 1}]
)
def test_a_state_that_makes_no_sense_is_no_state(tmp_path: Path, change: dict[str, object]) -> None:
    begin(tmp_path, 10)
    path = tmp_path / "m.gguf.partial.json"
    assert read_state(path) is not None
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert read_state(path) is None


@pytest.mark.parametrize("wrong", [DATA[:-1], DATA[:-1] + b"x"])
def test_a_wrong_whole_leaves_nothing(tmp_path: Path, wrong: bytes) -> None:
    with partial(tmp_path) as file:
        file.write(wrong)
        with pytest.raises(ChecksumMismatch, match=SUM) as caught:
            file.complete()
    assert not caught.value.resumed
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_whole_says_whether_an_earlier_attempt_had_a_part_in_it(tmp_path: Path) -> None:
    with partial(tmp_path) as file:
        file.write(b"?" * 100)
    with partial(tmp_path) as file:
        assert file.offset == 100
        file.write(DATA[100:])
        with pytest.raises(ChecksumMismatch) as caught:
            file.complete()
        assert file.offset == 0
        assert caught.value.resumed
        file.write(DATA)  # and now from the start
        file.complete()
    assert (tmp_path / "m.gguf").read_bytes() == DATA


def test_rewinding_gives_up_the_end_alone(tmp_path: Path) -> None:
    with partial(tmp_path) as file:
        file.write(DATA[:6000])
        file.rewind(9000)
        assert file.offset == 6000
        file.rewind(2500)
        assert file.offset == 2500
        file.write(DATA[2500:])
        file.complete()
    assert (tmp_path / "m.gguf").read_bytes() == DATA


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from farthing.download.partial import PartialFile
from farthing.errors import DownloadError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
data = bytes(range(256)) * 40
try:
    with PartialFile(Path(sys.argv[1]), name="m", size=len(data), checksum=sys.argv[3]) as file:
        for at in range(0, len(data), 1000):
            file.write(data[at : at + 1000])
            file.mark()
except DownloadError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs setrlimit")
def test_a_disk_that_takes_no_more_is_one_clear_line_and_resumes(
    tmp_path: Path, start_child: Callable[..., subprocess.Popen[str]]
) -> None:
    with start_child(FULL_DISK, str(tmp_path / "m.gguf"), "4500", SUM) as child:
        said, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert said.startswith(f"m: cannot write {tmp_path / 'm.gguf.partial'}: ")
    assert said.count("\n") == 1
    with partial(tmp_path) as file:
        assert file.offset == 4000
        file.write(DATA[4000:])
        file.complete()
    assert (tmp_path / "m.gguf").read_bytes() == DATA
