"""Hidden states in a file: what they come back as, and what is said where they do not fit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from farthing.errors import FarthingError
from farthing.evaluation.states import SPARE_BYTES, StateFile
from support.full_disk import files_of_at_most


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_rows_are_read_as_they_were_written(folder: Path) -> None:
    rows = np.random.default_rng(3).standard_normal((50, 12), np.float32)
    with StateFile(50, 12) as states:
        assert states.nbytes == rows.nbytes
        states.append(rows[:7])
        states.append(rows.T.copy().T[7:])
        states.rewind()
        np.testing.assert_array_equal(states.read(20), rows[:20])
        np.testing.assert_array_equal(states.read(30), rows[20:])
        assert list(folder.iterdir()) == []


def test_a_folder_without_room_is_named_before_anything_is_computed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SPARE_BYTES + (3 << 19)
    usage = shutil.disk_usage(folder)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with StateFile(3 << 7, 1 << 10):
        pass
    with pytest.raises(FarthingError) as raised:
        StateFile(3 << 7, (1 << 10) + 1)
    said = "the reference's hidden states take 1.5 MiB, 256 MiB are left to others, and 257 MiB"
    assert str(raised.value).startswith(f"{folder}: {said} are free there; set TMPDIR")


def keep(rows: int, width: int) -> None:
    with StateFile(rows, width) as states:
        states.append(np.zeros((rows, width), np.float32))
        states.rewind()


@pytest.mark.parametrize("rows", [1, 40])  # noticed when read, or when written
def test_a_disk_that_gets_full_meanwhile_is_named(folder: Path, rows: int) -> None:
    with files_of_at_most(2000), pytest.raises(OSError, match="too large") as raised:
        keep(rows, 1000)
    assert raised.value.filename == str(folder)
