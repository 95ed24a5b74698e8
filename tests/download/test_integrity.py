from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from farthing.download.integrity import (
    file_digest,
    file_matches,
    hasher_for,
    megabytes,
    require_space,
)
from farthing.errors import DownloadError


def test_git_sha1_is_the_object_id_git_computes(tmp_path: Path) -> None:
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    # `printf 'hello\n' | git hash-object --stdin`
    expected = "git-sha1:ce013625030ba8dba906f756967f9e9ca394464a"
    assert file_digest(path, "git-sha1:", 6) == expected
    assert file_matches(path, 6, expected)


def test_sha256_and_size_must_both_be_right(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = bytes(range(256)) * 9000  # more than one chunk
    path.write_bytes(data)
    right = f"sha256:{hashlib.sha256(data).hexdigest()}"
    ticks: list[int] = []
    assert file_matches(path, len(data), right, ticks.append)
    assert ticks[-1] == len(data)
    assert len(ticks) > 1
    assert not file_matches(path, len(data) - 1, right)
    assert not file_matches(path, len(data), right[:-1] + "z")
    assert not file_matches(tmp_path / "none", len(data), right)


def test_an_unknown_kind_of_checksum_is_refused() -> None:
    with pytest.raises(ValueError, match="md5"):
        hasher_for("md5:00", 1)


def test_space_names_what_is_needed_and_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000_000))
    require_space(tmp_path / "not" / "yet", 50_000_000, "m")
    with pytest.raises(DownloadError, match=r"m needs 517 MB .* available are 100 MB"):
        require_space(tmp_path / "not" / "yet", 500_000_000, "m")


def test_megabytes_are_decimal() -> None:
    assert megabytes(491_400_064) == "491 MB"
    assert megabytes(1_117_320_768) == "1,117 MB"
    assert megabytes(1_500_000) == "1.5 MB"
