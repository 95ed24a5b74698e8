"""Model directories and paths made to hurt: shards, links, pipes, devices, files that change."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError
from farthing.models.checkpoint import check_tensors, huggingface, open_checkpoint
from farthing.models.checkpoint.huggingface import MAX_TENSORS
from farthing.models.registry import FAMILIES, build_program
from farthing.program.weights import load_weights
from support.bounds import bounded

INDEX = "model.safetensors.index.json"
FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja",
         "model.safetensors", "tokenizer.json")  # fmt: skip


@pytest.fixture(scope="module")
def made(save_tiny: Callable[..., tuple[Any, Path]]) -> dict[str, Path]:
    """The same model in one file and in several with an index."""
    return {"whole": save_tiny("llama")[1], "sharded": save_tiny("llama", shards="40KB")[1]}


@pytest.fixture
def model(made: dict[str, Path], tmp_path: Path) -> Path:
    """A whole model that a test may damage."""
    shutil.copytree(made["whole"], tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def sharded(made: dict[str, Path], tmp_path: Path) -> Path:
    """The same in several files and an index."""
    shutil.copytree(made["sharded"], tmp_path / "sharded")
    return tmp_path / "sharded"


def load(path: Path) -> None:
    """As ``load_model`` does, as far as files are read."""
    from farthing.tokenization.tokenizer import Tokenizer

    checkpoint = open_checkpoint(path, FAMILIES)
    program = build_program(checkpoint.config)
    check_tensors(checkpoint, program.weights)
    if checkpoint.tokenizer is not None:
        Tokenizer.from_source(checkpoint.tokenizer)
    load_weights(program, checkpoint.tensors, num_threads=2)


def replace(path: Path, kind: str) -> None:
    """Puts something that is no regular file in the place of ``path``."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(path.parent)  # names of sockets are short
            listener.bind(path.name)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to(path.parent / "nowhere")


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "socket", "loop", "broken link"])
@pytest.mark.parametrize("file", FILES)
def test_what_is_no_file_is_refused_at_once(
    file: str, kind: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model)
    replace(model / file, kind)
    with bounded(), pytest.raises(FarthingError) as caught:
        load(model)
    assert str(model / file) in str(caught.value)
    if kind in ("pipe", "directory", "device"):
        assert isinstance(caught.value, ModelFormatError)
        assert "is not a regular file" in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "loop", "broken link"])
@pytest.mark.parametrize("name", ["a.gguf", "a.bin"])
def test_a_model_that_is_no_file_is_refused_at_once(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    replace(path, kind)
    with bounded(), pytest.raises(FarthingError) as caught:
        open_checkpoint(path, FAMILIES)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, ModelNotFoundError) == (kind == "broken link")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_named(model: Path) -> None:
    (model / "config.json").chmod(0)
    with pytest.raises(FarthingError, match=r"config\.json: cannot be read: Permission denied"):
        load(model)


def test_links_out_of_the_folder_are_followed_as_hubs_make_them(model: Path) -> None:
    blobs = model.parent / "blobs"
    blobs.mkdir()
    for file in model.iterdir():
        file.rename(blobs / file.name)
        file.symlink_to(blobs / file.name)
    load(model)


def change_index(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    index = json.loads((path / INDEX).read_text())
    change(index["weight_map"])
    (path / INDEX).write_text(json.dumps(index))


NO_NAMES = ("../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "",
            "a\\b.safetensors", "a\0.safetensors", "x.safetensors\n", "config.json",
            "model.bin", None, 3, [], {}, "\x1b[31m.safetensors")  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_an_index_that_names_no_shard(name: object, sharded: Path) -> None:
    change_index(sharded, lambda weights: weights.update({"model.norm.weight": name}))
    with bounded(), pytest.raises(ModelFormatError) as caught:
        load(sharded)
    assert caught.value.file == sharded / INDEX
    assert caught.value.field == "weight_map.model.norm.weight"
    assert caught.value.offset == (sharded / INDEX).read_text().index('"weight_map"')
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {}}', b'{"weight_map": null}',
     b'{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}', b"\xff\xfe{\0}\0",
     b'{"weight_map": ' + b"[" * 10**6, b'{"weight_map": {' + b'"a": "b.safetensors", ' * 500_000],
    ids=lambda content: repr(content[:40]),
)  # fmt: skip
def test_an_index_that_is_none(content: bytes, sharded: Path) -> None:
    (sharded / INDEX).write_bytes(content)
    with bounded(), pytest.raises(ModelFormatError) as caught:
        load(sharded)
    assert caught.value.file == sharded / INDEX
    assert caught.value.field in ("JSON", "weight_map")
    at = content.find(b'"weight_map"')
    assert caught.value.offset is not None or at < 0
    assert caught.value.field == "JSON" or caught.value.offset == (None if at < 0 else at)


def test_an_index_of_far_too_many_tensors(sharded: Path) -> None:
    name, count = "model.layers.{0}.mlp.experts.{0}.weight".format, 140_000
    change_index(sharded, lambda w: w.update({name(i): "none.safetensors" for i in range(count)}))
    with bounded(), pytest.raises(ModelFormatError, match="is missing, though"):
        load(sharded)


def empty_tensors(path: Path, first: int, count: int) -> None:
    entry = ',"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    header = ",".join(f'"model.layers.{first + i}.weight":{{{entry[1:]}' for i in range(count))
    raw = b"{%s}" % header.encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)


def test_far_too_many_tensors_in_a_file(model: Path) -> None:
    empty_tensors(model / "model.safetensors", 0, (1 << 16) + 1)
    with bounded(), pytest.raises(ModelFormatError, match="more than 65536 tensors"):
        load(model)


def test_far_too_many_tensors_in_all_files(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_TENSORS == 2 << 16
    monkeypatch.setattr(huggingface, "MAX_TENSORS", 400)
    (sharded / INDEX).unlink()
    for file in sharded.glob("*.safetensors"):
        file.unlink()
    for i in range(5):
        path = sharded / f"model-{i + 1:05d}-of-00005.safetensors"
        empty_tensors(path, i * 100, 100 if i < 4 else 1)
    with bounded(), pytest.raises(ModelFormatError, match="to 401 tensors, more than 400"):
        load(sharded)


def test_a_tensor_in_a_shard_that_the_index_does_not_say(sharded: Path) -> None:
    names = json.loads((sharded / INDEX).read_text())["weight_map"]
    here, there = list(dict.fromkeys(names.values()))[:2]
    moved = next(name for name, file in names.items() if file == here)
    change_index(sharded, lambda weights: weights.update({moved: there}))
    with bounded(), pytest.raises(ModelFormatError) as caught:
        load(sharded)
    assert caught.value.field == f"tensor {moved}"


@pytest.mark.parametrize("growth", [-1, -4096, 1, 4096])
def test_a_file_that_changes_after_its_header_was_read(growth: int, model: Path) -> None:
    checkpoint = open_checkpoint(model, FAMILIES)
    program = build_program(checkpoint.config)
    check_tensors(checkpoint, program.weights)
    file = model / "model.safetensors"
    os.truncate(file, file.stat().st_size + growth)
    if growth > 0:  # what was checked is still there
        load_weights(program, checkpoint.tensors, num_threads=2)
        with pytest.raises(ModelFormatError, match="bytes after the last tensor"):
            load(model)
        return
    with bounded(), pytest.raises(ModelFormatError, match="changed after it was opened") as caught:
        load_weights(program, checkpoint.tensors, num_threads=2)
    assert (caught.value.file, caught.value.offset) == (file, file.stat().st_size)
    with bounded(), pytest.raises(ModelFormatError, match="past the end of the file"):
        load(model)


def test_strings_of_a_gguf_file_that_change_after_it_was_opened(
    tmp_path: Path, gguf_builder: Callable[..., Any]
) -> None:
    builder = gguf_builder()
    builder.keys |= {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(20)],
    }
    path = builder.write(tmp_path / "a.gguf")
    opened: Any = open_checkpoint(path, FAMILIES)
    os.truncate(path, path.read_bytes().index(b"t19"))
    with bounded(), pytest.raises(ModelFormatError, match="changed after it was opened"):
        list(opened.tokenizer.tokens)
    path = builder.write(tmp_path / "b.gguf")
    opened = open_checkpoint(path, FAMILIES)
    at = path.read_bytes().index(b"t7") - 8
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack("<Q", 2**63))
    with bounded(), pytest.raises(ModelFormatError) as caught:
        list(opened.tokenizer.tokens)
    assert caught.value.field == "tokenizer.ggml.tokens"


def test_a_truncated_model_never_ends_in_a_signal(model: Path, tmp_path: Path) -> None:
    """X20: cut at every part of the file, in a process of its own."""
    file = model / "model.safetensors"
    content = file.read_bytes()
    script = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from models.checkpoint.test_hostile_directory import load
from farthing.errors import ModelFormatError
path = Path(sys.argv[1])
file = path / "model.safetensors"
content = file.read_bytes()
for length in range(0, len(content), 3989):
    file.write_bytes(content[:length])
    try:
        load(path)
    except ModelFormatError as error:
        assert error.file == file, error
    else:
        raise AssertionError(length)
print("refused")
"""
    tests = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", script, str(model), tests],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (0, "refused\n"), result.stderr
    assert len(content) > 100_000
