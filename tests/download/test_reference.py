"""Models named as ``owner/repo`` and ``owner/repo:file``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farthing.download.reference import HubReference, fetch_reference, parse_reference
from farthing.download.settings import DownloadSettings
from farthing.download.store import Store
from farthing.errors import DownloadError, ModelNotFoundError

Settings = Callable[[], DownloadSettings]


@pytest.mark.parametrize(
    ("text", "repository", "file"),
    [
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B", None),
        ("a/b:c.gguf", "a/b", "c.gguf"),
        ("a/b:sub/c.gguf", "a/b", "sub/c.gguf"),
        ("a/b:Q4_K_M", "a/b", "Q4_K_M"),
    ],
)
def test_a_reference_is_owner_repository_and_file(
    text: str, repository: str, file: str | None
) -> None:
    reference = parse_reference(text)
    assert reference == HubReference(repository, file)
    assert reference.name == text


@pytest.mark.parametrize(
    "text",
    ["a", "a/b/c", "/a/b", "../b", "a/..", "a/b:../c", "a/b:/c", "a/b:", "a b/c", "a--b/c", "a\\b"],
)
def test_what_is_no_reference_is_none(text: str) -> None:
    assert parse_reference(text) is None


def fetch(text: str, settings: DownloadSettings, progress: Any, **options: bool) -> Path:
    reference = parse_reference(text)
    assert reference is not None
    return fetch_reference(reference, settings, progress, **options)


@pytest.fixture
def quantized(hub: Any, make_content: Callable[..., bytes]) -> dict[str, bytes]:
    names = ("tiny-Q4_K_M.gguf", "tiny-q8_0.gguf", "tiny-IQ4_K_M.gguf")
    files = {name: make_content(2000, seed) for seed, name in enumerate(names)}
    hub.add("owner/many", {**files, "README.md": b"#"})
    return files


def test_the_only_gguf_file_is_meant(
    hub: Any, settings: Settings, recorder: Any, list_tree: Any
) -> None:
    hub.add("owner/one", {"tiny.gguf": b"GGUF" * 50, "config.json": b"{}"})
    path = fetch("owner/one", settings(), recorder())
    assert path.read_bytes() == b"GGUF" * 50
    assert list_tree(settings().home / "models") == [
        "hub--owner--one",
        "hub--owner--one/manifest.json",
        "hub--owner--one/tiny.gguf",
    ]
    (model,) = Store(settings().home).installed()
    assert (model.name, model.path, model.license) == ("owner/one", path, "apache-2.0")


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("tiny-Q4_K_M.gguf", "tiny-Q4_K_M.gguf"),
        ("Q4_K_M", "tiny-Q4_K_M.gguf"),
        ("q4_k_m", "tiny-Q4_K_M.gguf"),
        ("Q8_0", "tiny-q8_0.gguf"),
        ("IQ4_K_M", "tiny-IQ4_K_M.gguf"),
    ],
)
def test_one_of_several_is_named_by_file_or_type(
    settings: Settings, recorder: Any, quantized: dict[str, bytes], tag: str, name: str
) -> None:
    assert fetch(f"owner/many:{tag}", settings(), recorder()).read_bytes() == quantized[name]


@pytest.mark.parametrize("tag", ["", ":Q5_K_M", ":other.gguf"])
def test_what_is_not_clear_is_answered_with_the_names(
    settings: Settings, recorder: Any, quantized: dict[str, bytes], tag: str
) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        fetch(f"owner/many{tag}", settings(), recorder())
    assert all(name in str(caught.value) for name in quantized)
    assert "owner/many:FILE" in str(caught.value)
    assert not settings().home.exists()


@pytest.fixture
def folder(hub: Any, make_content: Callable[..., bytes]) -> dict[str, bytes]:
    """A repository with two weight files, and much that is not needed."""
    wanted = {
        "config.json": b'{"model_type": "llama"}',
        "tokenizer.json": b"{}",
        "model.safetensors.index.json": b"{}",
        "model-00001-of-00002.safetensors": make_content(300_000, 2),
        "model-00002-of-00002.safetensors": make_content(200_000, 3),
    }
    others = {
        "README.md": b"#",
        "consolidated.safetensors": make_content(1000, 4),
        "pytorch_model.bin": b"pickle",
        "original/model.safetensors": b"other",
        "tiny.gguf": b"GGUF",
    }
    hub.add("owner/folder", wanted | others)
    return wanted


def test_safetensors_make_a_folder_with_what_a_model_needs(
    settings: Settings, recorder: Any, folder: dict[str, bytes]
) -> None:
    progress = recorder()
    path = fetch("owner/folder", settings(), progress)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == folder
    total = sum(map(len, folder.values()))
    assert progress.starts == [("owner/folder", total, 0)]
    done = [done for done, _ in progress.steps]
    assert done == sorted(done)
    assert done[-1] == total
    assert progress.finished == 1
    again = recorder()
    assert fetch("owner/folder", settings().with_offline(True), again) == path
    assert (again.starts, again.notes) == ([], [])


def test_a_folder_that_broke_off_keeps_whole_files_and_the_beginning(
    hub: Any, settings: Settings, recorder: Any, folder: dict[str, bytes]
) -> None:
    last = "model-00001-of-00002.safetensors"
    hub.break_after[last] = [200_000, 0, 0, 0, 0]
    with pytest.raises(DownloadError, match=r"owner/folder could not be fetched: hub .*broke off"):
        fetch("owner/folder", settings(), recorder())
    (broken,) = Store(settings().home).unfinished().values()
    assert broken.name == "owner/folder"
    assert Store(settings().home).installed() == []
    hub.requests.clear()
    path = fetch("owner/folder", settings(), recorder())
    assert {file.name: file.read_bytes() for file in path.iterdir()} == folder
    assert [name for name, _ in hub.requests] == [last]
    assert hub.requests[0][1] == f"bytes={broken.done}-"


def test_a_wrong_side_file_is_refused_too(
    hub: Any, settings: Settings, recorder: Any, folder: dict[str, bytes]
) -> None:
    hub.served["config.json"] = folder["config.json"].replace(b"llama", b"gemma")
    with pytest.raises(DownloadError, match=r"config\.json: checksum is git-sha1:"):
        fetch("owner/folder", settings(), recorder())
    assert Store(settings().home).installed() == []


def test_a_changed_file_of_a_folder_alone_is_fetched_again(
    hub: Any, settings: Settings, recorder: Any, folder: dict[str, bytes]
) -> None:
    path = fetch("owner/folder", settings(), recorder())
    (path / "tokenizer.json").write_bytes(b"[]")
    hub.requests.clear()
    progress = recorder()
    assert fetch("owner/folder", settings(), progress) == path
    assert [name for name, _ in hub.requests] == ["tokenizer.json"]
    assert (path / "tokenizer.json").read_bytes() == b"{}"
    assert any("tokenizer.json" in note for note in progress.notes)


def test_a_refresh_fetches_what_the_hub_has_changed(
    hub: Any, settings: Settings, recorder: Any, folder: dict[str, bytes]
) -> None:
    path = fetch("owner/folder", settings(), recorder())
    hub.repositories["owner/folder"]["config.json"] = b'{"model_type": "qwen2"}'
    del hub.repositories["owner/folder"]["tokenizer.json"]
    hub.requests.clear()
    assert fetch("owner/folder", settings(), recorder()) == path
    assert hub.requests == []
    assert fetch("owner/folder", settings(), recorder(), refresh=True) == path
    assert [name for name, _ in hub.requests] == ["config.json"]
    assert json.loads((path / "config.json").read_text()) == {"model_type": "qwen2"}
    assert not (path / "tokenizer.json").exists()


def test_a_refresh_without_the_hub_takes_what_is_here(
    hub: Any, settings: Settings, recorder: Any, folder: dict[str, bytes]
) -> None:
    path = fetch("owner/folder", settings(), recorder())
    hub.status["owner/folder"] = [503]
    progress = recorder()
    assert fetch("owner/folder", settings(), progress, refresh=True) == path
    assert progress.notes == [
        "owner/folder from the hub: HTTP 503; using the copy that is here",
    ]


@pytest.mark.parametrize(
    "files", [{}, {"pytorch_model.bin": b"x"}, {"model.safetensors": b"x", "README.md": b"y"}]
)
def test_a_repository_without_a_model_says_so(
    hub: Any, settings: Settings, recorder: Any, files: dict[str, bytes]
) -> None:
    hub.add("owner/none", files)
    with pytest.raises(ModelNotFoundError, match="neither GGUF files nor safetensors"):
        fetch("owner/none", settings(), recorder())


def test_a_repository_that_is_not_there_is_no_model(
    hub: Any, settings: Settings, recorder: Any
) -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'owner/none': the hub has no repo"):
        fetch("owner/none", settings(), recorder())
    assert not settings().home.exists()


def test_offline_says_that_the_model_is_not_here(
    hub: Any, settings: Settings, recorder: Any, folder: dict[str, bytes]
) -> None:
    with pytest.raises(DownloadError, match="owner/folder is not on this machine, and offline"):
        fetch("owner/folder", settings().with_offline(True), recorder())
    assert hub.tokens == []


def test_the_hub_clients_own_copy_serves_when_the_hub_cannot(
    hub: Any, settings: Settings, recorder: Any, folder: dict[str, bytes]
) -> None:
    snapshot = settings().hub_cache / "models--owner--folder" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    for name, data in folder.items():
        (snapshot / name).write_bytes(data)
    assert fetch("owner/folder", settings().with_offline(True), recorder()) == snapshot
    hub.status["owner/folder"] = [503]
    assert fetch("owner/folder", settings(), recorder()) == snapshot
    progress = recorder()
    assert fetch("owner/folder", settings(), progress) == snapshot  # verified against the hub now
    assert hub.requests == []
    (model,) = Store(settings().home).installed()
    assert (model.path, model.owned) == (snapshot, False)
