"""``list``, ``pull`` and ``rm``: models of the catalog and of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farthing import catalog
from farthing.download.store import Manifest, Store, VerifiedFile
from support.command_line import CommandLine


@pytest.fixture
def fetched(home: Path) -> Path:
    """The folder of a model ``owner/tiny:tiny.gguf`` that was fetched: 1,000 bytes."""
    store = Store(home)
    folder = store.folder("owner/tiny:tiny.gguf")
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(bytes(1000))
    file = VerifiedFile("tiny.gguf", 1000, 0, "sha256:" + "0" * 64)
    store.record(folder, Manifest("owner/tiny:tiny.gguf", "hub", "MIT", False, (file,)))
    return folder


def test_the_whole_catalog_is_listed(farthing: CommandLine, home: Path) -> None:
    result = farthing("list", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    rows = json.loads(result.stdout)
    assert [row["name"] for row in rows] == [entry.name for entry in catalog.CATALOG]
    assert [row["name"] for row in rows if row["default"]] == [catalog.DEFAULT_MODEL]
    assert all(row["served"] for row in rows)
    assert not any(row["installed"] for row in rows)
    for row, entry in zip(rows, catalog.CATALOG, strict=True):
        assert row["bytes"] == entry.bytes
        assert row["license"] == entry.license
    table = farthing("list").stdout
    for entry in catalog.CATALOG:
        assert entry.name in table
        assert entry.license in table
    assert not home.exists()


def test_models_that_are_here_are_listed_with_where(farthing: CommandLine, fetched: Path) -> None:
    rows = json.loads(farthing("list", "--installed", "--json").stdout)
    assert [(row["name"], row["bytes"], row["license"]) for row in rows] == [
        ("owner/tiny:tiny.gguf", 1000, "MIT")
    ]
    assert rows[0]["path"] == str(fetched / "tiny.gguf")
    table = farthing("list", "--installed").stdout
    assert str(fetched / "tiny.gguf") in table
    assert "yes" in table
    assert catalog.DEFAULT_MODEL not in table


def test_nothing_here_says_how_to_get_something(farthing: CommandLine) -> None:
    result = farthing("list", "--installed")
    assert result.returncode == 0
    assert "farthing pull" in result.stdout
    assert json.loads(farthing("list", "--installed", "--json").stdout) == []


@pytest.mark.parametrize("answer", ["y\n", None])
def test_rm_removes(farthing: CommandLine, fetched: Path, answer: str | None) -> None:
    name = "owner/tiny:tiny.gguf"
    result = farthing("rm", name, stdin=answer) if answer else farthing("rm", name, "-y")
    assert result.returncode == 0
    assert f"Removed {name}" in result.stdout
    assert not fetched.exists()


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_rm_asks_first(farthing: CommandLine, fetched: Path, answer: str) -> None:
    result = farthing("rm", "owner/tiny:tiny.gguf", stdin=answer)
    assert result.returncode == 1
    assert "1000 B" in result.stdout
    assert (fetched / "tiny.gguf").exists()


def test_rm_of_what_is_not_here_names_what_is(farthing: CommandLine, fetched: Path) -> None:
    for options in ((), ("-y",)):
        result = farthing("rm", "tiny", *options)
        assert (result.returncode, result.stdout) == (2, "")
        assert "'tiny'" in result.stderr
        assert "owner/tiny:tiny.gguf" in result.stderr
    assert fetched.exists()


def test_pull_offline_says_why_and_leaves_nothing(farthing: CommandLine, home: Path) -> None:
    result = farthing("pull", "qwen2.5-0.5b")
    assert (result.returncode, result.stdout) == (2, "")
    last = result.stderr.splitlines()[-1]
    assert last.startswith("farthing: error: qwen2.5-0.5b ")
    assert not home.exists()


def test_a_model_that_cannot_run_is_listed_as_such(
    farthing: CommandLine, foreign_model: str
) -> None:
    rows = json.loads(farthing("list", "--json").stdout)
    assert [row["name"] for row in rows if row["served"] is False] == [foreign_model]
    assert "(not served yet)" in farthing("list").stdout


def test_pull_notes_that_a_model_cannot_run(farthing: CommandLine, foreign_model: str) -> None:
    note, *_, last = farthing("pull", foreign_model).stderr.splitlines()
    assert note.startswith(f"{foreign_model}: architecture 'mamba' is not supported")
    assert last.startswith(f"farthing: error: {foreign_model} ")  # it is offline


@pytest.mark.slow
def test_pull_of_a_model_that_is_on_this_machine(farthing: CommandLine, qwen_gguf: Path) -> None:
    path = {"FARTHING_MODEL_PATH": str(qwen_gguf.parent)}
    result = farthing("pull", "qwen2.5-coder-0.5b", "--json", **path)
    assert result.returncode == 0
    pulled = json.loads(result.stdout)
    assert pulled["bytes"] == 491_400_064
    assert Path(pulled["path"]).samefile(qwen_gguf)
    rows = json.loads(farthing("list", "--installed", "--json", **path).stdout)
    assert [row["name"] for row in rows] == ["qwen2.5-coder-0.5b"]
    assert farthing("rm", "qwen2.5-coder", "-y", **path).returncode == 0
    assert qwen_gguf.exists()
