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
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from farthing.errors import (
    FarthingError,
    InvalidParameterError,
    ModelFormatError,
    UnsupportedOperationError,
)
from farthing.packing import PackOptions, quantize_model
from farthing.packing.quantize import PackProgress
from support.packing import pack
from support.tiny_models import make_tiny_model

OPTIONS = PackOptions("w4g32", "absmax", num_threads=2, shard_bytes=30_000)


class Stopped(BaseException):
    """Ends a run as Ctrl-C does."""


def stop_after(count: int) -> PackProgress:
    """Stops when ``count`` tensors of this run are written."""
    calls = 0

    def advance(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls > count:
            raise Stopped

    return PackProgress(bytes=advance)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("models") / "source")


@pytest.fixture(scope="module")
def whole(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    target = tmp_path_factory.mktemp("whole") / "packed"
    quantize_model(source, target, OPTIONS)
    return files(target)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def partial_of(target: Path) -> Path:
    return target.with_name("packed.partial")


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
        "from packing.test_folder import OPTIONS\n"
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
        (errno.EFBIG, "files as large as its may not be written there"),
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


def test_nothing_is_written_over_the_source(source: Path, tmp_path: Path) -> None:
    own = shutil.copytree(source, tmp_path / "models" / "source")
    link = tmp_path / "link"
    link.symlink_to(own)
    before = files(own)
    for target in (own, own.parent, link, tmp_path / "models" / ".." / "models" / "source"):
        with pytest.raises(InvalidParameterError, match="holds the model that is to be quantized"):
            pack(own, target, force=True)
    assert files(own) == before


def test_nothing_that_stands_there_is_replaced_but_a_packed_model_by_force(
    source: Path, tmp_path: Path
) -> None:
    target = pack(source, tmp_path / "packed")
    old = files(target)
    with pytest.raises(InvalidParameterError, match="exists already; --force replaces it"):
        pack(source, target, "w8g32")
    assert files(target) == old
    pack(source, target, "w8g32", force=True)
    assert files(target) != old
    assert names(tmp_path) == ["packed"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("the only copy")
    file = tmp_path / "file"
    file.write_text("a file")
    for place in (other, file):
        with pytest.raises(InvalidParameterError, match=r"exists and is (no packed model|not a)"):
            pack(source, place, force=True)
    assert (other / "thesis.txt").read_text() == "the only copy"
    with pytest.raises(InvalidParameterError, match="no such folder to write packed to"):
        pack(source, tmp_path / "nowhere" / "packed")


def test_a_model_that_may_not_be_moved_is_refused_before_anything_is_computed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = pack(source, tmp_path / "packed")
    old = files(target)
    monkeypatch.setattr(os, "access", lambda path, mode: path != target)  # root may write anywhere
    with pytest.raises(InvalidParameterError, match="may not be written to, so it cannot be repl"):
        pack(source, target, "w8g32", force=True)
    assert names(tmp_path) == ["packed"]
    assert files(target) == old


def test_a_stopped_replacement_leaves_the_old_model(source: Path, tmp_path: Path) -> None:
    target = pack(source, tmp_path / "packed")
    old = files(target)
    options = PackOptions("w8g32", "absmax", force=True, num_threads=2)
    with pytest.raises(Stopped):
        quantize_model(source, target, options, stop_after(10))
    assert files(target) == old
    # Ended between the two renames: the old one is found again.
    target.rename(partial_of(target) / "replaced")
    with pytest.raises(Stopped):
        quantize_model(source, target, options, stop_after(3))
    assert files(target) == old
    # And by a run that may not replace it, before any work is done for nothing.
    target.rename(partial_of(target) / "replaced")
    with pytest.raises(InvalidParameterError, match="exists already; --force replaces it"):
        quantize_model(source, target, replace(options, force=False), stop_after(0))
    assert files(target) == old


def test_a_replacement_that_ended_while_it_cleaned_up_can_be_made_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(path: Path, *, ignore_errors: bool = False) -> None:
        if path == partial_of(target):
            raise Stopped

    target = pack(source, tmp_path / "packed", "w8g32")
    options = replace(OPTIONS, force=True)
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", stop)
        with pytest.raises(Stopped):
            quantize_model(source, target, options)
    assert (partial_of(target) / "replaced").is_dir()
    assert quantize_model(source, target, options).path == target
    assert names(tmp_path) == ["packed"]


def test_what_has_got_there_meanwhile_is_not_replaced(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "packed"

    def interfere(done: int, total: int) -> None:
        target.mkdir(exist_ok=True)
        (target / "thesis.txt").write_text("the only copy")

    with pytest.raises(OSError, match="not empty"):
        quantize_model(source, target, OPTIONS, PackProgress(bytes=interfere))
    assert files(target) == {"thesis.txt": b"the only copy"}
    with pytest.raises(InvalidParameterError, match="exists and is no packed model"):
        quantize_model(source, target, replace(OPTIONS, force=True))
    shutil.rmtree(target)
    with pytest.raises(InvalidParameterError, match="exists and is no packed model"):
        quantize_model(source, target, replace(OPTIONS, force=True), PackProgress(bytes=interfere))
    assert files(target) == {"thesis.txt": b"the only copy"}


def test_a_folder_that_is_in_the_way_is_left_alone(source: Path, tmp_path: Path) -> None:
    partial = tmp_path / "packed.partial"
    partial.mkdir()
    (partial / "notes.txt").write_text("mine")
    with pytest.raises(FarthingError, match="is in the way, and no unfinished model"):
        pack(source, tmp_path / "packed")
    assert files(partial) == {"notes.txt": b"mine"}


def test_what_is_packed_already_is_refused(source: Path, tmp_path: Path) -> None:
    packed = pack(source, tmp_path / "packed")
    with pytest.raises(
        UnsupportedOperationError, match="is packed already; quantize what it was made from, 'sour"
    ):
        pack(packed, tmp_path / "again")


@pytest.mark.parametrize("scheme", ["w4g48", "q4_k", "q8_1", ""])
def test_a_scheme_weights_cannot_be_packed_in_is_named(
    scheme: str, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidParameterError, match=f"cannot be packed in '{scheme}'; there are "):
        pack(source, tmp_path / "packed", scheme)
    with pytest.raises(InvalidParameterError, match=f"cannot be packed in '{scheme}'; there are "):
        pack(source, tmp_path / "packed", "w4g64", head_scheme=scheme)
    assert names(tmp_path) == []
