"""What a packed model may take the place of, and what is refused before anything is computed."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from farthing.errors import (
    FarthingError,
    InvalidParameterError,
    UnsupportedOperationError,
)
from farthing.packing import PackOptions, quantize_model
from farthing.packing.folder import check_target
from farthing.packing.quantize import PackProgress
from support.packing import pack
from support.packing_runs import OPTIONS, Stopped, files, names, partial_of, stop_after

OTHERS_SETTINGS = ("{}", "[]", "3", "no JSON", '{"tool": "farthing 1"}')


def test_nothing_is_written_over_the_source(source: Path, tmp_path: Path) -> None:
    own = shutil.copytree(source, tmp_path / "models" / "source")
    link = tmp_path / "link"
    link.symlink_to(own)
    before = files(own)
    for target in (own, own.parent, link, tmp_path / "models" / ".." / "models" / "source"):
        with pytest.raises(InvalidParameterError, match="holds the model that is to be quantized"):
            pack(own, target, force=True)
    assert files(own) == before


def test_a_source_of_the_name_that_a_model_grows_under_is_left_alone(
    source: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(source, tmp_path / "packed.partial")
    (own / "settings.json").write_text("{}")
    before = files(own)
    for source_path in (own, own / "." / ".." / "packed.partial"):
        with pytest.raises(InvalidParameterError, match=r"packed.partial: holds the model that is"):
            pack(source_path, tmp_path / "packed")
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
    for name, text in (("notes.txt", "mine"), *(("settings.json", t) for t in OTHERS_SETTINGS)):
        (partial / name).write_text(text)
        before = files(partial)
        with pytest.raises(FarthingError, match="is in the way, and no unfinished model"):
            pack(source, tmp_path / "packed")
        assert files(partial) == before


def test_a_place_where_no_model_can_grow_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "packed"
    partial_of(target).write_text("mine")
    with pytest.raises(FarthingError, match="in the way, and not a folder"):
        check_target(target, [], force=False)
    partial_of(target).unlink()
    partial_of(target).mkdir()
    (partial_of(target) / "notes.txt").write_text("mine")
    with pytest.raises(FarthingError, match="in the way, and no unfinished model"):
        check_target(target, [], force=False)
    assert (partial_of(target) / "notes.txt").read_text() == "mine"
    most = os.pathconf(tmp_path, "PC_NAME_MAX") - len(".partial")
    check_target(tmp_path / ("w" * most), [], force=False)
    with pytest.raises(InvalidParameterError, match="its name is 2 bytes too long"):
        check_target(tmp_path / ("w" * (most + 2)), [], force=False)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write
    with pytest.raises(InvalidParameterError, match="may not be written to; choose another --out"):
        check_target(tmp_path / "other", [], force=False)


@pytest.mark.parametrize("left", [b"", b"\0" * 40])
def test_a_folder_whose_settings_a_power_cut_took_is_used_anew(
    left: bytes, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "packed"
    with pytest.raises(Stopped):
        quantize_model(source, target, OPTIONS, stop_after(5))
    (partial_of(target) / "settings.json").write_bytes(left)
    assert quantize_model(source, target, OPTIONS).resumed == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_replacement_that_fails_at_the_end_leaves_the_old_model(
    number: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = pack(source, tmp_path / "packed", "w8g32")
    old = files(target)
    rename = Path.rename

    def refuse(path: Path, to: Path) -> Path:
        if path.name == "model":
            raise OSError(number, os.strerror(number), str(path))
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises((FarthingError, OSError), match=r"full|quota|Input/output"):
        quantize_model(source, target, replace(OPTIONS, force=True))
    assert files(target) == old


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
