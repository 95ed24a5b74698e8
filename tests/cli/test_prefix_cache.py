"""``--prefix-cache``: the same answers, sooner; what is wrong with the folder is one warning."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from support.chat_terminal import CTRL_D, ENTER, NUMBERS, PROMPT, QUESTION, Talk
from support.command_line import COMMAND, CommandLine
from support.tiny_models import make_tiny_model

TEXT = "What does a farthing buy, and what did it buy when a penny had four of them?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def run(farthing: CommandLine, model: str, folder: Path, *options: str) -> dict[str, object]:
    arguments = ("run", model, TEXT, "-n", "8", "--json", "--prefix-cache", str(folder))
    result = farthing(*arguments, *options)
    assert result.returncode == 0
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


def saved(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.prefixes"))


def state(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_ino, status.st_mtime_ns


def test_the_second_run_finds_what_the_first_computed(
    farthing: CommandLine, tiny_model: str, folder: Path
) -> None:
    plain = json.loads(farthing("run", tiny_model, TEXT, "-n", "8", "--json").stdout)
    first, second = (run(farthing, tiny_model, folder) for _ in range(2))
    assert plain["text"] == first["text"] == second["text"]
    assert plain["cached_tokens"] == first["cached_tokens"] == 0
    assert isinstance(second["cached_tokens"], int)
    assert second["cached_tokens"] >= 16
    assert len(saved(folder)) == 1


def test_chat_shares_the_folder_with_run(
    farthing: CommandLine, tiny_model: str, folder: Path
) -> None:
    options = ("-m", tiny_model, "-n", "8", "--prefix-cache", str(folder))
    said = farthing("chat", TEXT, *options)
    assert said.returncode == 0
    assert run(farthing, tiny_model, folder)["cached_tokens"] != 0
    assert farthing("chat", TEXT, *options).stdout == said.stdout


def test_a_damaged_file_is_one_warning_and_no_error(
    farthing: CommandLine, tiny_model: str, folder: Path
) -> None:
    arguments = ("run", tiny_model, TEXT, "-n", "8", "--prefix-cache", str(folder))
    first = farthing.process(*arguments)
    (file,) = saved(folder)
    with file.open("r+b") as damaged:
        damaged.seek(1000)
        damaged.write(b"damaged")
    second = farthing.process(*arguments)
    assert (second.returncode, second.stdout) == (0, first.stdout)
    warning, _numbers = second.stderr.strip().split("\n")
    assert warning.startswith(f"prefix cache starts empty: {file} (byte ")
    assert warning.endswith("the checksum of block 0 is wrong")
    assert len(farthing.process(*arguments).stderr.strip().split("\n")) == 1, "saved anew"


def test_a_full_disk_is_one_warning_and_no_error(
    farthing: CommandLine, environment: dict[str, str], tiny_model: str, folder: Path
) -> None:
    arguments = ("run", tiny_model, TEXT, "-n", "8", "--prefix-cache", str(folder))
    result = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *COMMAND, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0
    assert result.stdout == farthing("run", tiny_model, TEXT, "-n", "8").stdout
    warning = next(line for line in result.stderr.split("\n") if line.startswith("prefix cache"))
    assert "is not saved" in warning
    assert warning.endswith("the file may not become larger")
    assert saved(folder) == []


def test_after_ctrl_c_it_is_saved(
    farthing: CommandLine, environment: dict[str, str], tiny_model: str, folder: Path
) -> None:
    arguments = ("run", tiny_model, TEXT, "-n", "120", "--prefix-cache", str(folder), "--debug")
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    process.stdout.read(1)  # the answer has begun
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert b"prefix cache" not in told
    assert len(saved(folder)) == 1
    assert run(farthing, tiny_model, folder)["cached_tokens"] != 0


def test_a_conversation_saves_for_each_model_it_had(
    farthing: CommandLine, talk: Talk, tiny_model: str, tmp_path: Path, folder: Path
) -> None:
    other = str(make_tiny_model("qwen2-tied", tmp_path / "other", 1))
    with talk("--prefix-cache", str(folder), "--system", TEXT) as terminal:
        terminal.type(QUESTION + ENTER)
        terminal.expect(NUMBERS)
        terminal.expect(PROMPT)
        terminal.type(f"/model {other}" + ENTER)
        terminal.expect("other · qwen2 · 3 layers")
        terminal.expect(PROMPT)
        assert len(saved(folder)) == 1, "the first model is closed"
        terminal.type(QUESTION + ENTER)
        terminal.expect(NUMBERS)
        terminal.expect(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.wait() == 0
    assert len(saved(folder)) == 2
    before = [state(file) for file in saved(folder)]
    arguments = ("chat", QUESTION, "-m", tiny_model, "-n", "8", "--system", TEXT)
    assert farthing(*arguments, "--prefix-cache", str(folder)).returncode == 0
    assert [state(file) for file in saved(folder)] == before, "there was nothing new"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--prefix-cache", "x", "--no-cache"), "--prefix-cache has nothing to keep with"),
        (("--prefix-cache", ""), "prefix_cache='' must name a folder"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_fetched(
    options: tuple[str, ...], words: str, farthing: CommandLine
) -> None:
    result = farthing("run", "smollm2-360m", TEXT, *options)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.strip().split("\n")) == 1


@pytest.mark.parametrize("verb", ["run", "batch", "serve"])
@pytest.mark.parametrize(
    ("place", "reason"), [("file", "Not a directory"), ("file/in/it", "Not a directory")]
)
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_fetched(
    verb: str, place: str, reason: str, farthing: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("{}\n")
    name = str(tmp_path / place)
    arguments = {
        "run": ("run", "smollm2-360m", TEXT),
        "batch": ("batch", str(tmp_path / "file"), str(tmp_path / "answers")),
        "serve": ("serve", "smollm2-360m", "--port", "0"),
    }
    result = farthing(*arguments[verb], "--prefix-cache", name)
    assert result.returncode == 2
    assert result.stderr == (
        f"farthing: error: prefix_cache='{name}' cannot be written: {reason}; it must name a "
        "folder that takes files, or that can be made\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_folder_is_shown_in_the_help(farthing: CommandLine) -> None:
    for verb in ("run", "chat"):
        assert "--prefix-cache" in farthing(verb, "--help").stdout
