from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from farthing.download.lock import file_lock
from farthing.errors import DownloadError

HOLD = """
import sys
from pathlib import Path
from farthing.download.lock import file_lock

with file_lock(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    sys.stdin.readline()
"""


def refuse() -> None:
    raise TimeoutError


def test_a_lock_leaves_no_file_and_no_folder(tmp_path: Path) -> None:
    with file_lock(tmp_path / "locks" / "a.lock", refuse):
        assert (tmp_path / "locks" / "a.lock").exists()
    assert list(tmp_path.iterdir()) == []


def test_another_process_is_kept_out_until_the_holder_dies(
    tmp_path: Path, start_child: Callable[..., subprocess.Popen[str]]
) -> None:
    path = tmp_path / "a.lock"
    with start_child(HOLD, str(path)) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(TimeoutError), file_lock(path, refuse):
            pytest.fail("two processes hold one lock")
        killer = threading.Timer(0.3, child.kill)
        killer.start()
        waits: list[str] = []
        with file_lock(path, lambda: waits.append("waited")):
            assert child.wait(5) != 0
        assert waits == ["waited"]
    assert not path.exists()


def test_many_threads_are_in_it_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    seen: list[int] = []

    def work(number: int) -> None:
        with file_lock(tmp_path / "locks" / "a.lock", lambda: None):
            inside.append(number)
            seen.append(len(inside))
            inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [1] * 8
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []

    def mkdir(path: Path, **_: object) -> None:
        tries.append(path)
        assert len(tries) < 100, "it tries for ever"
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", mkdir)  # as of a folder in /proc
    folder = tmp_path / "locks"
    with pytest.raises(DownloadError, match=str(folder)), file_lock(folder / "a.lock", refuse):
        pytest.fail("there is no lock")
