"""A folder for models that are made to be measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from farthing.evaluation import scratch
from farthing.evaluation.scratch import scratch_folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_YOUNG", -1)
    return tmp_path


def interrupted(place: Path) -> None:
    with scratch_folder() as folder:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_bytes(b"w" * 100)
        assert folder.parent == place
        raise KeyboardInterrupt


def test_it_goes_with_all_that_is_in_it(place: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(place)
    assert list(place.iterdir()) == []


CHILD = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from farthing.evaluation.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "weights").write_bytes(b"w")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_one_in_use_stays_and_that_of_a_killed_process_goes(place: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        other = Path(child.stdout.readline().strip())
        with scratch_folder() as own:
            assert sorted(place.iterdir()) == sorted([own, other])
        os.kill(child.pid, signal.SIGKILL)
    assert (other / "weights").is_file()
    with scratch_folder() as own:
        assert list(place.iterdir()) == [own]


def test_one_just_made_and_not_yet_locked_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_YOUNG", 60)
    other = Path(tempfile.mkdtemp(prefix="farthing-evaluate-"))
    with scratch_folder() as own:
        assert sorted(place.iterdir()) == sorted([own, other])


def test_what_only_looks_like_one_is_not_followed(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("kept")
    link = place / "farthing-evaluate-link"
    link.symlink_to(elsewhere)
    file = place / "farthing-evaluate-file"
    file.write_text("kept")
    with scratch_folder():
        pass
    assert (elsewhere / "precious").read_text() == "kept"
    assert sorted(place.iterdir()) == sorted([link, file])
