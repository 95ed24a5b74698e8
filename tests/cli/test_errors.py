"""What a user sees when something goes wrong."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from farthing.cli.errors import ErrorReportingGroup
from farthing.errors import FarthingError
from support.command_line import COMMAND, CommandLine, Outcome


def assert_one_line(result: Outcome, *parts: str) -> None:
    assert result.returncode == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("farthing: error: ")
    for part in parts:
        assert part in lines[0]


@pytest.mark.parametrize("verb", [("run", "{}", "hi"), ("show", "{}"), ("chat", "hi", "-m", "{}")])
def test_a_wrong_name_is_told_with_the_nearest_names(
    farthing: CommandLine, home: Path, verb: tuple[str, ...]
) -> None:
    result = farthing(*(part.format("qwen2.5-codr-0.5b") for part in verb))
    assert_one_line(result, "'qwen2.5-codr-0.5b'", "qwen2.5-coder-0.5b")
    assert not home.exists()


@pytest.mark.parametrize("verb", [("run", "{}", "hi"), ("show", "{}"), ("chat", "hi", "-m", "{}")])
def test_a_missing_file_is_told(
    farthing: CommandLine, home: Path, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    path = str(tmp_path / "nothing.gguf")
    assert_one_line(farthing.process(*(part.format(path) for part in verb)), path)
    assert not home.exists()


def test_a_file_that_is_no_model_is_told(farthing: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_bytes(b"GGUX" + bytes(100))
    assert_one_line(farthing("show", str(path)), str(path))


def test_debug_shows_the_trace_before_the_line(farthing: CommandLine, tmp_path: Path) -> None:
    path = str(tmp_path / "nothing.gguf")
    for arguments in (("--debug", "show", path), ("show", path, "--debug")):
        result = farthing(*arguments)
        assert result.returncode == 2
        assert result.stderr.startswith("Traceback (most recent call last)")
        assert "ModelNotFoundError" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("farthing: error: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("show", "-h"), ("list",)])
def test_an_output_that_takes_no_more_is_told_in_one_line(
    arguments: tuple[str, ...], buffered: bool, environment: dict[str, str]
) -> None:
    environment = {**environment, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=60,
            check=False,
        )
    named = buffered or arguments != ("list",)  # what is written at once fails without a name
    place = b"standard output: " if named else b""
    assert result.stderr == b"farthing: error: %bNo space left on device\n" % place
    assert result.returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("buffered", [True, False])
def test_an_error_that_cannot_be_written_leaves_its_status(
    buffered: bool, environment: dict[str, str]
) -> None:
    environment = {**environment, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*COMMAND, "show", "nothing.gguf"],
            stdout=subprocess.PIPE,
            stderr=full,
            env=environment,
            timeout=60,
            check=False,
        )
    assert (result.returncode, result.stdout) == (2, b"")


@pytest.mark.parametrize("prompt", ["", "  \n"])
@pytest.mark.parametrize("verb", [("run", "m"), ("chat", "-m", "m")])
def test_an_empty_prompt_is_told(farthing: CommandLine, verb: tuple[str, ...], prompt: str) -> None:
    assert_one_line(farthing(*verb, prompt), "the prompt is empty")
    assert_one_line(farthing(*verb, "-", stdin=prompt), "the prompt is empty")


def test_stdin_that_is_no_text_is_told(environment: dict[str, str]) -> None:
    result = subprocess.run(
        [*COMMAND, "run", "m", "-"],
        input=b"abc\xff",
        capture_output=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == b"farthing: error: stdin is not UTF-8 text: byte 3 cannot be decoded\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "m", "p", "--max-tokens", "0"),
        ("run", "m", "p", "--temperature", "-1"),
        ("run", "m", "p", "--kv-cache-dtype", "int3"),
        ("run", "m", "p", "--threads", "1025"),
        ("run", "m"),
        ("fly",),
    ],
)
def test_wrong_usage_has_status_2(farthing: CommandLine, arguments: tuple[str, ...]) -> None:
    result = farthing(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Usage: farthing" in result.stderr


def test_ctrl_c_ends_quietly_with_130(environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", "m", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        # A test run in the background of a shell has Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(1.5)  # it now waits for its stdin
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "--json"), ("--help",), ("run", "--help")]
)
def test_a_reader_that_leaves_is_no_error(
    environment: dict[str, str], arguments: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [*COMMAND, *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert result.stderr == b""
    assert result.returncode == 141


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "status"), [("list", 0), ("--help", 0), ("run m -", 2), ("chat -m m", 2)]
)
def test_closed_streams_are_no_bug(
    environment: dict[str, str], arguments: str, status: int, closed: str
) -> None:
    result = subprocess.run(
        ["sh", "-c", f'"$@" {arguments} {closed}', "sh", *COMMAND],
        input="",
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert result.returncode == status
    told = status == 2 and "2>&-" not in closed
    problem = "farthing: error: the prompt is empty; give some text, or - to read stdin\n"
    assert result.stderr == (problem if told else "")


@pytest.mark.parametrize(
    "arguments",
    [("run", "m", "hi", "--stop", "\udcff"), ("chat", "hi", "-m", "m", "--system", "\udcff")],
)
def test_arguments_that_are_no_text_are_told(
    farthing: CommandLine, arguments: tuple[str, ...]
) -> None:
    assert_one_line(farthing.process(*arguments), "is not UTF-8 text")


@pytest.mark.parametrize("verb", [("run", "{}", "hi"), ("chat", "hi", "-m", "{}"), ("show", "{}")])
def test_a_model_that_cannot_run_is_refused_before_it_is_fetched(
    farthing: CommandLine, home: Path, foreign_model: str, verb: tuple[str, ...]
) -> None:
    result = farthing(*(part.format(foreign_model) for part in verb))
    assert_one_line(result, f"{foreign_model}: architecture 'mamba' is not supp", "llama, ")
    assert not home.exists()


def test_version(farthing: CommandLine) -> None:
    result = farthing("--version")
    assert result.returncode == 0
    assert result.stdout.startswith("farthing ")


class TestErrorReportingGroup:
    """Every kind of error, raised by a verb that does nothing else."""

    @staticmethod
    def invoke(error: BaseException, *options: str) -> Any:
        app = typer.Typer(cls=ErrorReportingGroup, rich_markup_mode=None)

        @app.callback()
        def group(debug: bool = False) -> None:
            pass

        @app.command()
        def fail() -> None:
            raise error

        return CliRunner().invoke(app, ["fail", *options])

    def test_an_error_of_ours_is_one_line(self) -> None:
        result = self.invoke(FarthingError("model.gguf: cut\nat byte 7"))
        assert (result.exit_code, result.stderr) == (
            2,
            "farthing: error: model.gguf: cut at byte 7\n",
        )

    def test_an_error_of_the_system_names_the_file(self) -> None:
        error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y")
        result = self.invoke(error)
        assert result.exit_code == 2
        assert result.stderr == "farthing: error: /x/y: No space left on device\n"

    def test_no_memory(self) -> None:
        result = self.invoke(MemoryError())
        assert (result.exit_code, result.stderr) == (2, "farthing: error: out of memory\n")

    def test_a_bug_is_called_one_and_says_how_to_see_more(self) -> None:
        result = self.invoke(KeyError("layer"))
        assert result.exit_code == 1
        assert result.stderr == (
            "farthing: internal error: KeyError: 'layer' (--debug shows the trace)\n"
        )

    def test_debug_shows_where(self) -> None:
        result = self.invoke(KeyError("layer"), "--debug")
        assert result.exit_code == 1
        assert "in fail" in result.stderr

    def test_ctrl_c(self) -> None:
        result = self.invoke(KeyboardInterrupt())
        assert (result.exit_code, result.output) == (130, "")

    def test_exits_and_usage_errors_pass(self) -> None:
        assert self.invoke(typer.Exit(7)).exit_code == 7
        usage = self.invoke(typer.BadParameter("no such shape"))
        assert usage.exit_code == 2
        assert "no such shape" in usage.stderr
        assert "farthing: " not in usage.stderr
