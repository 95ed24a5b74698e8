from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from farthing.download.partial import PartialFile
from farthing.download.progress import Silent
from farthing.download.store import MANIFEST, Manifest, Store, VerifiedFile
from farthing.errors import DownloadError

DATA = b"weights" * 100


def verified(name: str, data: bytes = DATA) -> VerifiedFile:
    return VerifiedFile(name, len(data), 0, f"sha256:{hashlib.sha256(data).hexdigest()}")


def put(store: Store, name: str, root: Path | None = None) -> Path:
    folder = store.folder(name)
    place = root or folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "m.gguf").write_bytes(DATA)
    manifest = Manifest(
        name, "test", "MIT", False, (verified("m.gguf"),), str(root) if root else None
    )
    return store.record(folder, manifest)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def test_names_become_folders_below_the_root(store: Store) -> None:
    assert store.folder("qwen2.5-coder-0.5b").parent == store.root
    assert store.folder("owner/repo:sub/f.gguf").name == "hub--owner--repo--sub--f.gguf"


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../x", "/etc", "a/../../b", "a\\b", "a\0b", "~", ".locks", "a b"]
)
def test_a_name_that_could_leave_the_root_names_no_folder(store: Store, name: str) -> None:
    try:
        folder = store.folder(name)
    except ValueError:
        return
    assert folder.parent == store.root
    assert folder.resolve().parent == store.root.resolve()
    assert folder.name not in (".", "..")


def test_a_recorded_model_is_present_until_its_file_changes(store: Store) -> None:
    path = put(store, "m")
    assert store.present("m") == path
    assert store.present("m", verified("m.gguf").checksum) == path
    assert store.present("m", "sha256:other") is None
    assert [model.path for model in store.installed()] == [path]
    os.utime(path, (1, 1))
    assert store.present("m") is None
    assert store.recheck(store.folder("m")) is None
    assert store.present("m") == path
    path.write_bytes(DATA[:-1] + b"!")
    problem = store.recheck(store.folder("m"))
    assert problem is not None
    assert str(path) in problem
    path.unlink()
    assert store.installed() == []
    assert "gone" in str(store.recheck(store.folder("m")))


def test_a_file_elsewhere_is_used_in_place_and_never_removed(store: Store, tmp_path: Path) -> None:
    path = put(store, "m", tmp_path / "elsewhere")
    (model,) = store.installed()
    assert (model.path, model.owned) == (path, False)
    store.forget(store.folder("m"))
    assert path.exists()
    put(store, "m", tmp_path / "elsewhere")
    freed = store.remove(store.folder("m"))
    assert path.read_bytes() == DATA
    assert freed < 1000  # the manifest alone
    assert store.installed() == []


def test_removal_returns_the_bytes_and_leaves_nothing(store: Store) -> None:
    put(store, "m")
    put(store, "n")
    manifest = (store.folder("m") / MANIFEST).stat().st_size
    with store.lock("m", Silent()) as folder:
        assert store.remove(folder) == len(DATA) + manifest
    assert not store.folder("m").exists()
    assert [model.name for model in store.installed()] == ["n"]


def test_a_model_that_is_here_needs_no_beginning_of_a_download(
    store: Store, tmp_path: Path
) -> None:
    target = store.folder("m") / "m.gguf"
    with PartialFile(target, name="m", size=len(DATA), checksum=verified("m").checksum) as file:
        file.write(DATA[:100])
    put(store, "m", tmp_path / "elsewhere")
    assert store.unfinished() == {}
    assert [path.name for path in store.folder("m").iterdir()] == [MANIFEST]


def test_only_a_real_folder_of_ours_is_removed(store: Store, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("kept")
    store.root.mkdir(parents=True)
    (store.root / "m").symlink_to(precious)
    for folder in (store.root / "m", precious, store.root, store.root / "none"):
        with pytest.raises(DownloadError, match="not a model folder"):
            store.remove(folder)
    assert (precious / "thesis.txt").read_text() == "kept"


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"name": "other"},
        {"name": "../precious"},
        {"name": 7},
        {"files": []},
        {"files": [{"name": "../../x", "bytes": 1, "mtime_ns": 0, "checksum": "sha256:0"}]},
        {"files": [{"name": "/etc/passwd", "bytes": 1, "mtime_ns": 0, "checksum": "sha256:0"}]},
        {"files": [{"name": "m.gguf"}]},
        {"surprise": True},
    ],
)
def test_a_manifest_that_makes_no_sense_is_no_manifest(
    store: Store, change: dict[str, object]
) -> None:
    put(store, "m")
    path = store.folder("m") / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert store.read(store.folder("m")) is None
    assert store.installed() == []
    assert store.present("m") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\udcff"])
def test_a_torn_manifest_is_no_manifest(store: Store, text: str) -> None:
    put(store, "m")
    (store.folder("m") / MANIFEST).write_bytes(text.encode(errors="surrogateescape"))
    assert store.read(store.folder("m")) is None


def test_what_broke_off_is_listed_with_its_bytes(store: Store) -> None:
    target = store.folder("m") / "m.gguf"
    with PartialFile(target, name="m", size=len(DATA), checksum=verified("m").checksum) as file:
        file.write(DATA[:100])
    (model,) = store.unfinished().values()
    assert (model.name, model.done, model.total) == ("m", 100, len(DATA))
    assert store.installed() == []


def test_a_lock_leaves_a_home_that_it_made_as_it_found_it(
    store: Store, tmp_path: Path, list_tree: Callable[[Path], list[str]]
) -> None:
    def interrupted() -> None:
        with store.lock("m", Silent()) as folder:
            folder.mkdir(parents=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list_tree(tmp_path) == []
    store.root.parent.mkdir()
    with store.lock("m", Silent()):
        pass
    assert list_tree(tmp_path) == ["home"]


def test_a_new_version_takes_the_place_of_the_old(store: Store) -> None:
    old = put(store, "m")
    folder = store.folder("m")
    (folder / "m2.gguf").write_bytes(b"new")
    manifest = Manifest("m", "test", None, False, (verified("m2.gguf", b"new"),))
    assert store.record(folder, manifest) == folder / "m2.gguf"
    assert not old.exists()
    assert store.present("m") == folder / "m2.gguf"
