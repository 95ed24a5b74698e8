"""A saved prefix cache is whole or the one before it, whoever dies or writes at once."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farthing.engine import prefix_store
from farthing.engine.prefix_store import check_prefix_folder, save_prefix_cache
from farthing.errors import FarthingError, InvalidParameterError
from support.full_disk import files_of_at_most
from support.prefix_caches import KEY, Cache, prompt

TESTS = Path(__file__).parents[1]
OLD, NEW = prompt(1, 3), prompt(2, 8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "model.prefixes"


def cache_of(tokens: list[int]) -> Cache:
    cache = Cache()
    cache.compute(tokens)
    return cache


def save(path: Path, cache: Cache) -> int:
    return save_prefix_cache(path, KEY, cache.tree, cache.kv)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def assert_holds(path: Path, tokens: list[int]) -> None:
    cache = Cache()
    assert cache.read(path) == len(tokens) // 16
    assert cache.found(tokens) == len(tokens) // 16


def test_what_is_saved_replaces_what_was(path: Path) -> None:
    assert save(path, cache_of(OLD)) == 3
    assert_holds(path, OLD)
    assert save(path, cache_of(NEW)) == 8
    assert_holds(path, NEW)
    assert names(path.parent) == [".lock", "model.prefixes"]


@pytest.mark.parametrize("place", [".", "kept", "to/be/made"])
def test_asking_whether_a_folder_can_be_written_leaves_nothing(place: str, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    check_prefix_folder(tmp_path / place, caches=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("file", "Not a directory"),
        ("file/below", "Not a directory"),
        ("dangling", "No such file or directory"),
        ("circle/below", "Too many levels of symbolic links"),
        ("n" * 300, "File name too long"),
        ("/proc/kept", "No such file or directory"),  # refuses root, too
    ],
)
def test_a_folder_that_cannot_be_written_is_refused(
    place: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    folder = tmp_path / place
    with pytest.raises(InvalidParameterError) as caught:
        check_prefix_folder(folder, caches=True)
    assert str(caught.value).startswith(f"prefix_cache='{folder}' cannot be written: {reason}; it")


def test_folder_and_files_are_for_their_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        save(path, cache_of(OLD))
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    assert (path.parent / ".lock").stat().st_mode & 0o777 == 0o600


def test_an_empty_cache_leaves_what_was_saved(path: Path) -> None:
    save(path, cache_of(OLD))
    assert save(path, Cache()) == 0
    assert_holds(path, OLD)
    assert names(path.parent) == [".lock", "model.prefixes"]


@pytest.mark.parametrize("room", [0, 1, 71, 72, 4096, 4168, 8 * 4096, 8 * 4096 + 72, 33_703])
def test_a_full_disk_leaves_what_was_saved(path: Path, room: int) -> None:
    save(path, cache_of(OLD))
    before = path.read_bytes()
    cache = cache_of(NEW)
    with (
        files_of_at_most(room),
        pytest.raises(FarthingError, match="cannot be saved: the file may not become"),
    ):
        save(path, cache)
    assert path.read_bytes() == before
    assert names(path.parent) == [".lock", "model.prefixes"]
    with files_of_at_most(33_704):
        assert save(path, cache) == 8


@pytest.mark.parametrize(
    ("call", "number", "reason"),
    [
        ("fsync", errno.ENOSPC, "the disk is full"),
        ("fsync", errno.EDQUOT, "the disk quota is used up"),
        ("fsync", errno.EIO, "Input/output error"),
        ("open", errno.EACCES, "Permission denied"),
        ("open", errno.EROFS, "Read-only file system"),
    ],
)
def test_what_the_system_says_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, reason: str
) -> None:
    save(path, cache_of(OLD))

    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        with pytest.raises(FarthingError) as caught:
            save(path, cache_of(NEW))
    assert str(caught.value) == f"{path}: cannot be saved: {reason}"
    assert_holds(path, OLD)
    assert names(path.parent) == [".lock", "model.prefixes"]


def test_a_file_in_the_place_of_the_folder_is_left_alone(path: Path) -> None:
    path.parent.write_text("mine")
    with pytest.raises(FarthingError, match="cannot be saved: File exists"):
        save(path, cache_of(NEW))
    assert path.parent.read_text() == "mine"


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(
    path: Path, tmp_path: Path
) -> None:
    path.parent.mkdir()
    (tmp_path / "elsewhere").write_text("mine")
    path.symlink_to(tmp_path / "elsewhere")
    save(path, cache_of(NEW))
    assert_holds(path, NEW)
    assert not path.is_symlink()
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_a_broken_cache_is_not_saved(path: Path) -> None:
    save(path, cache_of(OLD))
    cache = Cache()
    chain = cache.compute(NEW)
    chain[2].children.remove(chain[3])
    with pytest.raises(FarthingError, match="cannot be saved: the cache is broken"):
        save(path, cache)
    assert_holds(path, OLD)


def start(path: Path, seed: int, blocks: int, times: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "support.prefix_saver"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    child = subprocess.Popen(
        [*command, str(path), str(seed), str(blocks), str(times)],
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def finish(child: subprocess.Popen[bytes]) -> int:
    assert child.stdout is not None
    child.stdout.close()
    return child.wait(60)


def test_killed_while_it_saves_the_file_before_is_whole(path: Path) -> None:
    save(path, cache_of(OLD))
    rng = random.Random(7)
    blocks, broken_off = 4000, 0
    for _ in range(20):
        child = start(path, 5, blocks, 1000)
        time.sleep(rng.uniform(0.01, 0.08))
        child.kill()
        assert finish(child) == -signal.SIGKILL
        broken_off += (path.parent / "model.prefixes.partial").exists()
        assert Cache(blocks).read(path) in (3, blocks)
        if broken_off == 2:
            break
    assert broken_off == 2, "no kill came in the middle of a save"
    save(path, cache_of(NEW))
    assert names(path.parent) == [".lock", "model.prefixes"]
    assert_holds(path, NEW)


def test_processes_that_save_at_once_leave_one_whole_file(path: Path) -> None:
    children = [start(path, seed, 100 * seed, 25) for seed in (1, 2, 3)]
    reads = set()
    while any(child.poll() is None for child in children):
        if path.exists():
            cache = Cache(300)
            count = cache.read(path)
            assert cache.found(prompt(count // 100, count // 100 * 100)) == count
            reads.add(count)
    assert [finish(child) for child in children] == [0, 0, 0]
    assert reads <= {100, 200, 300}
    assert reads
    assert names(path.parent) == [".lock", "model.prefixes"]


@pytest.fixture
def locked(path: Path) -> Iterator[None]:
    """Another process saves, and does not end."""
    path.parent.mkdir()
    with (path.parent / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("locked")
def test_a_process_that_saves_for_ever_is_not_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_store, "_PATIENCE", 0.1)
    with pytest.raises(FarthingError, match="another process has been saving for 0 seconds"):
        save(path, cache_of(NEW))
    assert names(path.parent) == [".lock"]


def test_files_of_others_are_left_alone(path: Path) -> None:
    path.parent.mkdir()
    kept = ("notes.partial", "thesis.tex", "other.prefixes")
    for name in kept:
        (path.parent / name).write_text("mine")
    (path.parent / "killed.prefixes.partial").write_text("of one that was killed")
    save(path, cache_of(NEW))
    assert names(path.parent) == sorted([".lock", "model.prefixes", *kept])
