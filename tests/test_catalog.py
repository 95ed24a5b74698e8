from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from farthing import catalog
from farthing.catalog import CATALOG, DEFAULT_MODEL, CatalogEntry
from farthing.download.partial import PartialFile
from farthing.download.source import DataWheels, HubFile
from farthing.errors import DownloadError, ModelFormatError, ModelNotFoundError

DATA = b"GGUF" + bytes(1000)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGINGFACE", "TRANSFORMERS_", "FARTHING_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FARTHING_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub-client"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def tiny(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogEntry:
    """An entry of a catalog of its own whose file is in the model path."""
    entry = replace(
        CATALOG[0],
        name="tiny-1b",
        aliases=("tiny-1b-instruct",),
        bytes=len(DATA),
        sha256=hashlib.sha256(DATA).hexdigest(),
        filename="tiny.gguf",
    )
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "tiny.gguf").write_bytes(DATA)
    monkeypatch.setenv("FARTHING_MODEL_PATH", str(extra))
    monkeypatch.setattr(catalog, "CATALOG", (*CATALOG, entry))
    return entry


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.name)
def test_an_entry_pins_what_it_names(entry: CatalogEntry) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", entry.name)
    assert "--" not in entry.name
    assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert Path(entry.filename).name == entry.filename
    assert entry.filename.endswith(".gguf")
    assert entry.sources
    # a quantized file is smaller than two bytes a parameter, larger than three bits
    assert 3 / 8 < entry.bytes / entry.parameters < 2
    for source in entry.sources:
        if isinstance(source, DataWheels):
            assert sum(part.bytes for part in source.parts) == entry.bytes
            assert all(re.fullmatch(r"[0-9a-f]{64}", part.sha256) for part in source.parts)
            assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", p.requirement) for p in source.parts)
        else:
            assert re.fullmatch(r"[0-9a-f]{40}", source.revision)


def test_names_and_aliases_name_one_model_each() -> None:
    names = [name for entry in CATALOG for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))
    assert catalog.find(DEFAULT_MODEL) is CATALOG[0]
    kinds = [type(source) for source in CATALOG[0].sources]
    assert kinds == [HubFile, DataWheels]


def test_the_documentation_has_every_entry_with_size_licence_and_hash() -> None:
    page = (Path(__file__).parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
    for entry in CATALOG:
        facts, origin = (
            line for line in page.splitlines() if line.startswith(f"| `{entry.name}` |")
        )
        assert f"{entry.bytes / 1e6:,.0f} MB" in facts
        assert entry.license in facts
        assert entry.quantization in facts
        assert f"{entry.bytes:,}" in origin
        assert f"`{entry.sha256}`" in origin
        for source in entry.sources:
            assert ("hub" if isinstance(source, HubFile) else "data wheels") in facts
            assert not isinstance(source, HubFile) or f"`{source.repository}`" in origin


@pytest.mark.parametrize(
    "text",
    ["qwen2.5-0.5b", "Qwen2.5-0.5B", "qwen2.5:0.5b", "qwen2.5_0.5b", " qwen2.5-0.5b-Instruct"],
)
def test_spelling_does_not_matter(text: str) -> None:
    found = catalog.find(text)
    assert found is not None
    assert found.name == "qwen2.5-0.5b"


def test_a_path_that_exists_wins(tiny: CatalogEntry, tmp_path: Path) -> None:
    (tmp_path / "tiny-1b").mkdir()
    assert catalog.resolve("tiny-1b") == Path("tiny-1b")
    file = tmp_path / "my.gguf"
    file.write_bytes(DATA)
    assert catalog.resolve(str(file)) == file
    assert catalog.resolve(file) == file


@pytest.mark.parametrize("name", ["tiny-1b", "TINY:1b", "tiny-1b-instruct"])
def test_a_name_of_the_catalog_is_found(tiny: CatalogEntry, tmp_path: Path, name: str) -> None:
    assert catalog.resolve(name) == tmp_path / "extra" / "tiny.gguf"
    assert catalog.pull(name) == tmp_path / "extra" / "tiny.gguf"


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("qwen2.5-coder-05b", "qwen2.5-coder-0.5b"),
        ("qwen-2.5-1.5b", "qwen2.5-1.5b"),
        ("llama-3.2", "llama-3.2-1b"),
        ("gemma", "gemma-3-270m"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(home: Path, text: str, nearest: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        catalog.resolve(text)
    message = str(caught.value)
    assert message.startswith(f"no model {text!r}; did you mean ")
    assert nearest in message.split("?")[0]
    assert "'farthing list'" in message
    assert "\n" not in message
    assert not home.exists()


@pytest.mark.parametrize("text", ["", " ", "zzz", "a/b/c", "x" * 5000, "a\0b", "a\nb", "\udcff"])
def test_a_senseless_name_is_one_clear_line(home: Path, text: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        catalog.resolve(text)
    assert "\n" not in str(caught.value)
    assert not home.exists()


@pytest.mark.parametrize("text", ["./none.gguf", "/none/m.gguf", "~/none", "none.gguf", "a/m.gguf"])
def test_a_path_that_is_not_there_is_said_to_be_no_file(home: Path, text: str) -> None:
    with pytest.raises(ModelNotFoundError, match="no file or folder"):
        catalog.resolve(text)


def test_a_path_object_is_never_a_name(tiny: CatalogEntry) -> None:
    with pytest.raises(ModelNotFoundError, match="no file or folder"):
        catalog.resolve(Path("nothing-like-it"))


def test_offline_is_said(home: Path) -> None:
    with pytest.raises(DownloadError, match=f"{DEFAULT_MODEL} is not on this machine, and offline"):
        catalog.resolve(DEFAULT_MODEL)
    with pytest.raises(DownloadError, match="owner/repo is not on this machine, and offline"):
        catalog.resolve("owner/repo")
    assert not home.exists()


def install(entry: CatalogEntry, home: Path) -> Path:
    """Put the file into Farthing's own folder, as a killed download leaves it."""
    folder = home / "models" / entry.name
    folder.mkdir(parents=True)
    (folder / entry.filename).write_bytes(DATA)
    return catalog.resolve(entry.name)


def test_installed_models_are_listed_verified_and_removed(tiny: CatalogEntry, home: Path) -> None:
    assert catalog.installed() == []
    path = install(tiny, home)
    assert path == home / "models" / "tiny-1b" / "tiny.gguf"
    (model,) = catalog.installed()
    assert (model.name, model.path, model.bytes, model.license, model.owned) == (
        "tiny-1b",
        path,
        len(DATA),
        "Apache-2.0",
        True,
    )
    assert catalog.verify("tiny:1b") == path
    stat = path.stat()
    path.write_bytes(DATA[:-1] + b"!")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as a failing disk would
    assert catalog.resolve("tiny-1b") == path
    with pytest.raises(ModelFormatError, match="checksum changed; 'farthing pull tiny-1b'"):
        catalog.verify("tiny-1b")
    assert catalog.remove("tiny-1b-instruct") >= len(DATA)
    assert catalog.installed() == []
    assert list((home / "models").iterdir()) == []


def test_a_download_that_broke_off_is_listed_and_can_be_removed(
    tiny: CatalogEntry, home: Path
) -> None:
    wanted = tiny.file
    with PartialFile(
        home / "models" / tiny.name / tiny.filename,
        name=tiny.name,
        size=wanted.bytes,
        checksum=wanted.checksum,
    ) as partial:
        partial.write(DATA[:500])
    (model,) = catalog.unfinished()
    assert (model.name, model.done, model.total) == ("tiny-1b", 500, len(DATA))
    assert catalog.installed() == []
    with pytest.raises(DownloadError, match="not here whole; 'farthing pull tiny-1b' resumes it"):
        catalog.verify("tiny-1b")
    assert catalog.remove("tiny-1b") >= 500
    assert catalog.unfinished() == []
    assert list((home / "models").iterdir()) == []


def test_removing_a_model_used_in_place_keeps_its_file(tiny: CatalogEntry, tmp_path: Path) -> None:
    path = catalog.resolve("tiny-1b")
    assert not catalog.installed()[0].owned
    catalog.remove("tiny-1b")
    assert path.read_bytes() == DATA
    assert catalog.installed() == []


@pytest.mark.parametrize("text", ["none", "..", "../extra", "/", "~", "", "tiny-1b/../../extra"])
def test_only_names_that_are_here_are_removed(
    tiny: CatalogEntry, home: Path, tmp_path: Path, text: str
) -> None:
    install(tiny, home)
    text = str(tmp_path / "extra") if text == "/" else text
    for action in (catalog.remove, catalog.verify):
        with pytest.raises(ModelNotFoundError, match="on this machine; here are: tiny-1b"):
            action(text)
    assert (tmp_path / "extra" / "tiny.gguf").exists()
    assert len(catalog.installed()) == 1


def test_importing_the_catalog_loads_nothing_heavy() -> None:
    script = (
        "import sys, farthing.catalog; "
        "print([m for m in ('huggingface_hub', 'numpy', 'httpx', 'rich', 'gguf', 'pip') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(entry for entry in sys.path if entry)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_the_default_model_is_fetched_for_real_and_then_starts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the real sources, unless a folder of test models has it."""
    monkeypatch.setenv("FARTHING_HOME", str(tmp_path))
    folder = os.environ.get("FARTHING_TEST_MODELS", "~/.cache/farthing-test-models")
    monkeypatch.setenv("FARTHING_MODEL_PATH", folder)
    path = catalog.resolve(DEFAULT_MODEL)
    assert path.stat().st_size == CATALOG[0].bytes
    begin = time.monotonic()
    assert catalog.resolve(DEFAULT_MODEL) == path
    assert time.monotonic() - begin < 0.1
    assert catalog.verify(DEFAULT_MODEL) == path
    assert [model.name for model in catalog.installed()] == [DEFAULT_MODEL]
