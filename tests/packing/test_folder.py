"""An interrupted run goes on where it stopped, and a target is whole or not there."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from farthing.errors import (
    FarthingError,
    ModelFormatError,
)
from farthing.packing import PackOptions, quantize_model
from farthing.packing.quantize import PackProgress
from support.packing import pack
from support.packing_runs import OPTIONS, Stopped, files, names, partial_of, stop_after


@pytest.fixture(scope="module")
def whole(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    target = tmp_path_factory.mktemp("whole") / "packed"
    quantize_model(source, target, OPTIONS)
    return files(target)


def resume(source: Path, target: Path) -> tuple[int, list[int]]:
    """Tensors that were there, and the bytes that progress told of."""
    told: list[int] = []
    progress = PackProgress(bytes=lambda done, total: told.append(done))
    return quantize_model(source, target, OPTIONS, progress).resumed, told


@pytest.mark.parametrize("count", [0, 1, 7, 20, 37])
def test_a_stopped_run_goes_on_where_it_stopped(
    count: int, source: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    target = tmp_path / "packed"
    with pytest.raises(Stopped):
        quantize_model(source, target, OPTIONS, stop_after(count))
    assert not target.exists()
    assert names(tmp_path) == ["packed.partial"]
    resumed, told = resume(source, target)
    assert resumed == count
    assert len(told) + count == 1 + 3 * 12 + 2, "one call a tensor that was missing, and one first"
    assert files(target) == whole
    assert names(tmp_path) == ["packed"]


def test_killed_at_random_moments_the_model_is_the_same(
    source: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    target = tmp_path / "packed"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from farthing.packing import quantize_model\n"
        "from farthing.packing.quantize import PackProgress\n"
        "from support.packing_runs import OPTIONS\n"
        "def tell(done, total):\n"
        "    print(done, flush=True)\n"
        "    time.sleep(0.005)\n"
        "quantize_model(Path(sys.argv[1]), Path(sys.argv[2]), OPTIONS, PackProgress(bytes=tell))\n"
    )
    rng = random.Random(5)
    kills = 0
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(source), str(target)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0, 0.08))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        kills += child.returncode == -signal.SIGKILL
        if target.exists():
            break
    assert kills > 0
    if not target.exists():
        resume(source, target)
    assert files(target) == whole


def test_what_the_disk_lost_is_written_again(
    source: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    target = tmp_path / "packed"
    with pytest.raises(Stopped):
        quantize_model(source, target, OPTIONS, stop_after(20))
    shard = sorted(partial_of(target).rglob("*.safetensors"))[0]
    damaged = bytearray(shard.read_bytes())
    damaged[-1000] ^= 1
    shard.write_bytes(damaged)
    resumed, _ = resume(source, target)
    assert 0 < resumed < 20
    assert files(target) == whole


def test_a_journal_that_says_too_much_is_not_believed(
    source: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    target = tmp_path / "packed"
    with pytest.raises(Stopped):
        quantize_model(source, target, OPTIONS, stop_after(5))
    with (partial_of(target) / "journal").open("a") as journal:
        journal.write("00000000\n" * 40)
    assert resume(source, target)[0] == 5
    assert files(target) == whole


def change_method(source: Path) -> PackOptions:
    return PackOptions("w4g32", "mse", num_threads=2, shard_bytes=30_000)


def change_source(source: Path) -> PackOptions:
    os.utime(source / "model.safetensors", ns=(1, 1))
    return OPTIONS


@pytest.mark.parametrize("change", [change_method, change_source])
def test_another_run_starts_anew(
    change: Callable[[Path], PackOptions], source: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(source, tmp_path / "source")
    target = tmp_path / "packed"
    with pytest.raises(Stopped):
        quantize_model(own, target, OPTIONS, stop_after(5))
    assert quantize_model(own, target, change(own)).resumed == 0


def test_two_runs_at_once_are_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "packed"
    errors = []

    def other(done: int, total: int) -> None:
        if not errors:
            with pytest.raises(FarthingError) as caught:
                quantize_model(source, target, OPTIONS)
            errors.append(str(caught.value))

    quantize_model(source, target, OPTIONS, PackProgress(bytes=other))
    assert errors == [f"{partial_of(target)}: another process is writing this model"]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EFBIG, "the file may not become larger"),
    ],
)
def test_a_full_disk_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    before = files(source)
    room = 60_000
    pwrite = os.pwrite

    def pwrite_on_a_small_disk(fd: int, data: memoryview, offset: int) -> int:
        if offset + len(data) > room // 2:
            raise OSError(number, os.strerror(number))
        return pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite_on_a_small_disk)
    with pytest.raises(FarthingError, match=f"packed: {reason}; nothing was kept"):
        pack(source, tmp_path / "packed")
    assert names(tmp_path) == []
    assert files(source) == before


def test_a_disk_without_room_is_seen_first(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=17 << 20))
    pack(source, tmp_path / "fits")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=16 << 20))
    with pytest.raises(FarthingError, match="needs 16 MiB more on its disk, which has 16 MiB"):
        pack(source, tmp_path / "packed")
    assert names(tmp_path) == ["fits"]


def test_an_unfinished_model_stays_where_the_disk_has_no_room_for_the_rest(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "packed"
    with pytest.raises(Stopped):
        quantize_model(source, target, OPTIONS, stop_after(5))
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as small:
        small.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
        with pytest.raises(FarthingError, match="more on its disk"):
            quantize_model(source, target, OPTIONS)
    assert resume(source, target)[0] == 5


@pytest.mark.parametrize(
    ("name", "value", "scheme", "words"),
    [
        ("model.layers.2.mlp.down_proj.weight", np.nan, "w4g32", "a NaN or an infinity"),
        ("model.layers.2.mlp.down_proj.weight", 1e9, "w4g32", "does not fit fp16"),
        ("model.layers.2.mlp.down_proj.weight", 1e9, "f16", "does not fit f16"),
        ("model.norm.weight", np.inf, "w4g32", "a NaN or an infinity"),
    ],
)
def test_a_model_that_cannot_be_packed_leaves_nothing(
    name: str, value: float, scheme: str, words: str, source: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(source, tmp_path / "source")
    tensors = load_file(own / "model.safetensors")
    tensors[name].flat[3] = value
    save_file(tensors, own / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelFormatError, match=words):
        pack(own, tmp_path / "packed", scheme)
    assert names(tmp_path) == ["source"]


def test_a_file_that_cannot_be_written_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, data: memoryview, offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(OSError, match="Input/output error") as caught:
        pack(source, tmp_path / "packed")
    assert caught.value.filename == str(tmp_path / "packed.partial" / "model" / "model.safetensors")
