"""Hostile files at the command line: status 2, one line that names the file, nothing else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.command_line import CommandLine

Damage = Callable[[Path], None]


def edit(file: str, **changes: object) -> Damage:
    def damage(model: Path) -> None:
        content = json.loads((model / file).read_text())
        (model / file).write_text(json.dumps(content | changes))

    return damage


def write(file: str, content: bytes) -> Damage:
    return lambda model: bytes_of(model / file, content)


def bytes_of(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def pipe(file: str) -> Damage:
    def damage(model: Path) -> None:
        (model / file).unlink()
        os.mkfifo(model / file)

    return damage


def not_a_number(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 7] = np.nan
    save_file(tensors, model / "model.safetensors")


def cut(model: Path) -> None:
    os.truncate(model / "model.safetensors", (model / "model.safetensors").stat().st_size - 1)


def endless_pattern(model: Path) -> None:
    pattern = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}
    edit("tokenizer.json", pre_tokenizer=pattern | {"invert": False})(model)


# what is done to a model, and what the line says beside the file
CASES: dict[str, tuple[Damage, str, str]] = {
    "F8": (cut, "model.safetensors", "past the end of the file"),
    "F9 layers": (edit("config.json", num_hidden_layers=2**31), "config.json", "num_hidden_layers"),
    "F9 heads": (edit("config.json", num_attention_heads=0), "config.json", "num_attention_heads"),
    "F12 header": (write("model.safetensors", b"\xff" * 64), "model.safetensors", "header length"),
    "F12 depth": (write("config.json", b'{"a": ' + b"[" * 10**5), "config.json", "deeper than 64"),
    "F14": (not_a_number, "model.safetensors", "row 3, column 7 is a NaN or an infinity"),
    "pipe": (pipe("tokenizer.json"), "tokenizer.json", "is not a regular file"),
    "pattern": (endless_pattern, "tokenizer.json", "without bound"),
    "escape": (edit("config.json", hidden_act="\x1b[2J\n\n"), "config.json", r"\x1b[2J"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_told_in_one_line(
    name: str, farthing: CommandLine, tiny_model: str, tmp_path: Path, home: Path
) -> None:
    damage, file, problem = CASES[name]
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    damage(model)
    result = farthing.process("run", str(model), "hi", "-n", "1")
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"farthing: error: {model / file}: ")
    assert problem in line.replace("\\\\", "\\")
    assert line.isprintable()
    assert not home.exists()
