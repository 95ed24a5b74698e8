"""``farthing evaluate`` that does not come to its end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.command_line import COMMAND, CommandLine
from support.evaluations import QUICK

CUT = """
import os, sys
import farthing.evaluation.measurement as measurement
score = measurement.score
def cut(*arguments):
    os.truncate("packed/model.safetensors", 4096)
    return score(*arguments)
measurement.score = cut
from farthing.cli.main import main
main()
"""


def test_a_file_cut_while_it_is_measured_is_named(
    farthing: CommandLine,
    environment: dict[str, str],
    tiny_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert farthing("quantize", tiny_model, "-o", "packed").returncode == 0
    command = [*COMMAND[:3], "-c", CUT, "evaluate", "packed", "--against", tiny_model, *QUICK]
    command += ["--positions", "0"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == -signal.SIGBUS, result.stderr
    assert result.stderr.splitlines()[-1] == (
        f"farthing: error: packed or {tiny_model}: a file of the model became shorter while it was "
        "in use; make it anew"
    )


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_whoever_stops_it_finds_nothing_left_behind(
    environment: dict[str, str],
    tiny_model: str,
    tmp_path: Path,
    number: signal.Signals,
    status: int,
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [*COMMAND, "evaluate", tiny_model, "--schemes", "w8row", "--tokens", "64000", *QUICK]
    with subprocess.Popen(
        command,
        env={**environment, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("w8row, window"):
                break
        assert list(folder.iterdir()), "the model is there while it is measured"
        os.kill(process.pid, number)
        assert process.wait(60) == status
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert list(folder.iterdir()) == []
