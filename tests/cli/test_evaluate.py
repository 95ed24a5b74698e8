"""``farthing evaluate``: its figures for people and programs, and its refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.command_line import COMMAND, CommandLine
from support.evaluations import TEXT
from support.tiny_models import make_tiny_model


@pytest.fixture
def text(tmp_path: Path) -> str:
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model in bfloat16."""
    path = tmp_path_factory.mktemp("tiny") / "rounded"
    return str(make_tiny_model("qwen2-tied", path, dtype="bfloat16"))


def test_figures_for_programs(
    farthing: CommandLine, rounded: str, tiny_model: str, text: str
) -> None:
    options = ("--context", "32", "--chunks", "4", "--json")
    result = farthing("evaluate", rounded, "--text", text, "--kl", tiny_model, *options)
    assert result.returncode == 0
    facts = json.loads(result.stdout)
    assert (facts["model"], facts["reference"], facts["text"]) == (rounded, tiny_model, text)
    assert facts["kv_cache_dtype"] == "fp16"
    tokens = facts["tokens"]
    assert (tokens["context"], tokens["windows"], tokens["scored"]) == (32, 4, 60)
    assert tokens["available_windows"] > 4
    assert tokens["scored_bytes"] >= 60
    against = facts["against"]
    for estimate in (facts["perplexity"], facts["bits_per_byte"], against["kl"]["mean"]):
        assert estimate["value"] > estimate["standard_error"] > 0
    assert 0 < against["kl"]["mean"]["value"] < 0.1
    assert against["same_top"]["total"] == 60
    assert 0 < against["same_top"]["low"] < against["same_top"]["high"] <= 1
    assert facts["memory"]["reference_weights"] > facts["memory"]["model_weights"]
    assert "of disk" in result.stderr


def test_figures_for_people(
    farthing: CommandLine, rounded: str, tiny_model: str, text: str
) -> None:
    options = ("--context", "32", "--tokens", "100")
    result = farthing("evaluate", rounded, "--text", text, "--kl", tiny_model, *options)
    assert result.returncode == 0
    lines = {line[:17].strip(): line[17:].strip() for line in result.stdout.splitlines()}
    assert "3 of " in lines["Text"]
    assert "45 tokens scored" in lines["Text"]
    for name in ("Perplexity", "Bits per byte", "Its perplexity", "Ratio", "KL divergence"):
        assert " ± " in lines[name]
    assert lines["Reference"] == tiny_model
    assert "at 95 %" in lines["Same top token"]
    assert "on disk" in lines["Memory"]


def test_without_a_reference_there_is_perplexity_alone(
    farthing: CommandLine, tiny_model: str, text: str
) -> None:
    result = farthing("evaluate", tiny_model, "--text", text, "--context", "32")
    assert result.returncode == 0
    assert "Perplexity" in result.stdout
    assert "KL divergence" not in result.stdout
    assert "on disk" not in result.stdout
    last = result.stderr.splitlines()[-1]
    count = result.stdout.split(" windows of")[0].split()[-1]
    assert f"window {count} of {count}: perplexity" in last


def test_the_kv_type_reaches_the_model(farthing: CommandLine, tiny_model: str, text: str) -> None:
    """With keys and values as the reference keeps them, a model is its own reference."""
    options = ("--text", text, "--kl", tiny_model, "--context", "32", "--json")
    facts = [
        json.loads(farthing("evaluate", tiny_model, *options, "--kv-cache-dtype", kv_type).stdout)
        for kv_type in ("fp32", "fp16")
    ]
    exact, rounded = (each["against"]["kl"]["maximum"] for each in facts)
    assert exact == 0 < rounded


@pytest.mark.parametrize(
    ("content", "options", "problem"),
    [
        (None, (), "No such file"),
        (b"", (), "text.txt: the text is empty"),
        (b"\xff\xfe\x00", (), "not UTF-8 text: byte 0 cannot"),
        (b"A penny saved.", (), "too few for a window of 32"),
        (TEXT.encode(), ("--tokens", "31"), "--tokens 31 is less than a window of 32 tokens"),
        (TEXT.encode(), ("--kl", "no-such-model"), "no-such-model"),
    ],
)
def test_bad_input_is_one_line(
    farthing: CommandLine,
    tiny_model: str,
    tmp_path: Path,
    content: bytes | None,
    options: tuple[str, ...],
    problem: str,
) -> None:
    file = tmp_path / "text.txt"
    if content is not None:
        file.write_bytes(content)
    result = farthing("evaluate", tiny_model, "--text", str(file), "--context", "32", *options)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("farthing: error: ")
    assert problem in line


def test_models_of_other_vocabularies_are_named(
    farthing: CommandLine, tiny_model: str, text: str, tmp_path: Path
) -> None:
    other = str(make_tiny_model("qwen2", tmp_path / "other"))
    result = farthing("evaluate", other, "--text", text, "--kl", tiny_model, "--context", "32")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert other in line
    assert tiny_model in line
    assert "do not share a vocabulary" in line


def test_ctrl_c_leaves_nothing_behind(
    environment: dict[str, str], tiny_model: str, tmp_path: Path
) -> None:
    file = tmp_path / "text.txt"
    file.write_text(TEXT * 1000, encoding="utf-8")
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [*COMMAND, "evaluate", tiny_model, "--text", str(file), "--kl", tiny_model]
    with subprocess.Popen(
        [*command, "--context", "32"],
        env={**environment, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()  # said before the states are written
        assert str(folder) in line
        time.sleep(0.5)
        assert process.poll() is None, "over too soon"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert list(folder.iterdir()) == []
