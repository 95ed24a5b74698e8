"""``farthing inspect``: its tables, its JSON, its pictures, its refusals."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from farthing.cli.inspect import command
from farthing.cli.inspect.progress import InspectionProgress
from farthing.cli.options import Method
from farthing.evaluation.inspection.inspect import PARTS
from farthing.evaluation.inspection.weight_errors import CHAPTER_SCHEMES
from farthing.quantization.rounding import ROUNDING_METHODS
from support.command_line import COMMAND, CommandLine
from support.packing import pack
from support.planted_outliers import DIMENSION, MATRIX, make_planted_model

QUICK = ("--schemes", "w4tensor,w4row,nf4g64", "--prompt", "A farthing is a fourth of a penny.")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_planted_model(tmp_path_factory.mktemp("tiny") / "planted"))


def test_tables_for_people(farthing: CommandLine, planted: str) -> None:
    result = farthing("inspect", planted, *QUICK)
    assert result.returncode == 0
    lines = result.stdout.splitlines()

    def cells(first: str) -> list[str]:
        (line,) = (line for line in lines if line.startswith(first + "  "))
        return line.split()

    assert cells("Matrices")[1:5] == ["21", "of", "the", "layers,"]
    assert cells("Stored as")[2:4] == ["22", "f32;"]
    assert "dequantized" not in result.stdout
    errors = [line.split() for line in lines if line.startswith(("w4tensor", "w4row", "nf4g64"))]
    assert [row[0] for row in errors] == ["w4tensor", "w4row", "nf4g64"] * 3
    assert errors[0][1].startswith("4.00")
    assert errors[0][5] == "layers.2.self_attn.o_proj"
    assert float(errors[0][2]) > float(errors[1][2]) > float(errors[2][2])
    assert "Anatomy of layers.2.self_attn.o_proj, the worst under w4tensor" in lines
    assert f"Dimension {DIMENSION} is the largest from layer 1 to layer 2: 2 of 3 layers." in lines
    assert sum("█" in line for line in lines) >= 2
    assert any(f"  Without {DIMENSION}, " in line for line in lines)
    assert "times smaller." in lines[-2]
    assert lines[-1].startswith("Without the first token it is ")


def test_figures_for_programs(farthing: CommandLine, planted: str) -> None:
    result = farthing("inspect", planted, *QUICK, "--json", "--method", "mse")
    assert result.returncode == 0
    facts = json.loads(result.stdout)
    assert (facts["model"], facts["format"], facts["architecture"]) == (
        planted,
        "huggingface",
        "qwen2",
    )
    assert facts["weights"]["matrices"] == 21
    assert not facts["weights"]["dequantized"]
    errors = facts["errors"]
    assert errors["method"] == facts["anatomy"]["method"] == "mse"
    for scheme in errors["schemes"]:
        assert len(scheme["matrices"]) == 21
        assert scheme["worst"]["error"] == max(scheme["matrices"].values())
        assert list(scheme["apart"]) == ["model.embed_tokens.weight"]
        assert scheme["bytes"] * 8 / facts["weights"]["weights"] == scheme["bits_per_weight"]
    anatomy = facts["anatomy"]
    assert (anatomy["matrix"], anatomy["worst_of"]) == (MATRIX, "w4tensor")
    assert sum(anatomy["histogram"]["counts"]) == anatomy["shape"][0] * anatomy["shape"][1]
    outliers = facts["outliers"]
    assert [point["layer"] for point in outliers["points"]] == [None, 0, 1, 2]
    assert "".join(outliers["token_texts"]) == QUICK[3]
    for point in outliers["points"]:
        for part in ("all_tokens", "without_first_token"):
            maxima = point[part]
            assert len(maxima["dimensions"]) == 64
            assert max(maxima["dimensions"]) == maxima["maximum"] == abs(maxima["top"][0]["value"])
            assert sum(maxima["octaves"].values()) == 64
    levels = facts["levels"]["all_tokens"]
    assert levels["whole"]["scale"] == levels["whole"]["maximum"] / 127
    assert levels["set_aside"][0] == DIMENSION
    assert levels["scale_ratio"] == levels["whole"]["scale"] / levels["rest"]["scale"] > 2
    assert sum(levels["whole"]["values_by_level"]) == 64 * len(outliers["tokens"])


def test_parts_are_chosen_and_figures_written(
    farthing: CommandLine, planted: str, tmp_path: Path
) -> None:
    folder = tmp_path / "figures"
    options = ("--only", "levels, outliers", "--figures", str(folder), "--figure-format", "svg")
    result = farthing("inspect", planted, *QUICK[2:], *options)
    assert result.returncode == 0
    assert "Outlier features" in result.stdout
    assert "Levels used" in result.stdout
    assert "Anatomy" not in result.stdout
    assert "Error of rounding" not in result.stdout
    names = ["levels.svg", "octaves.svg", "outliers.svg"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert result.stderr.splitlines()[-1] == (f"outliers.svg, octaves.svg, levels.svg: in {folder}")


def test_a_packed_model_says_that_its_weights_are_dequantized(
    farthing: CommandLine, planted: str, tmp_path: Path
) -> None:
    packed = pack(Path(planted), tmp_path / "packed", "w4row")
    options = ("--schemes", "w4row,w4g64", "--only", "errors")
    result = farthing("inspect", str(packed), *options)
    assert result.returncode == 0
    assert "22 w4row" in result.stdout
    assert "weights are its dequantized values" in result.stdout
    facts = json.loads(farthing("inspect", str(packed), *options, "--json").stdout)
    assert facts["weights"]["dequantized"]
    again, other = facts["errors"]["schemes"]
    assert again["mean"] < 0.01 < other["mean"], "what was rounded so stays nearly what it is"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--only", "errors,levles"), "no part is called 'levles'; there are errors, anatomy"),
        (("--only", ","), "--only ',' names no part; there are errors, anatomy, outliers, levels"),
        (("--schemes", ""), "--schemes '' names no scheme; there are w8tensor, w8row, "),
        (
            ("--only", "outliers", "--schemes", "w4g64"),
            "--schemes w4g64: is of errors and anatomy, which --only leaves out",
        ),
        (
            ("--only", "levels", "--method", "absmax"),
            "--method absmax: is of errors and anatomy, which --only leaves out",
        ),
        (
            ("--only", "errors", "--matrix", "layers.0.mlp.down_proj"),
            "--matrix layers.0.mlp.down_proj: is of anatomy, which --only leaves out",
        ),
        (
            ("--only", "errors,anatomy", "--prompt", "a" * 300),
            f"--prompt {'a' * 39}…: is of outliers and levels, which --only leaves out",
        ),
        (("--figure-format", "png"), "--figure-format png: is of pictures; name a folder"),
        (("--schemes", "w4g65"), "no scheme is called 'w4g65'"),
        (("--schemes", "q6_k"), "weights cannot be rounded to 'q6_k'"),
        (("--matrix", "layers.0.mlp.dwn_proj"), "layers.0.mlp.down_proj"),
        (("--prompt", ""), "the prompt: has 0 token(s)"),
    ],
)
def test_bad_input_is_one_line(
    farthing: CommandLine, planted: str, options: tuple[str, ...], problem: str
) -> None:
    result = farthing("inspect", planted, *options)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("farthing: error: ")
    assert problem in line


def test_defaults_are_those_of_the_measurement() -> None:
    assert command._SCHEMES.split(",") == list(CHAPTER_SCHEMES)
    assert command._PARTS.split(",") == list(PARTS)


def test_methods_are_those_of_rounding() -> None:
    assert get_args(Method) == ROUNDING_METHODS


def test_figures_without_matplotlib_are_refused_at_once(
    farthing: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = farthing("inspect", "no-such-model", "--figures", str(tmp_path))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line == ("farthing: error: --figures: needs matplotlib; pip install 'farthing[bench]'")


def test_ctrl_c_leaves_nothing_behind(
    environment: dict[str, str], planted: str, tmp_path: Path
) -> None:
    folder = tmp_path / "figures"
    schemes = ",".join(f"w{bits}{g}" for bits in range(2, 9) for g in ("tensor", "row", "g64"))
    command = [*COMMAND, "inspect", planted, *QUICK[2:], "--method", "mse"]
    with subprocess.Popen(
        [*command, "--schemes", schemes, "--figures", str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "rounding, 10 %" in process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stdout is not None
        assert process.stdout.read() == ""
        assert "Traceback" not in process.stderr.read()
    assert not folder.exists()


def test_progress_is_a_line_a_tenth_where_nobody_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = InspectionProgress("model")
    for done in range(0, 101, 3):
        progress.rounding(done, 100)
    progress.loading(1, 2)
    progress.reading(64, 128)
    progress.reading(128, 128)
    progress.finish()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        *(f"model: rounding, {tenth}0 %" for tenth in range(1, 10)),
        "model: reading the prompt, 50 %",
        "model: reading the prompt, 100 %",
    ]


def test_a_terminal_sees_a_bar_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    progress = InspectionProgress("model")
    progress.rounding(1, 2)
    progress.rounding(2, 2)
    progress.loading(1, 2)
    progress.reading(1, 1)
    progress.finish()
    shown = screen.getvalue()
    assert shown.index("model: rounding") < shown.index("model: reading the prompt")
    assert "10 %" not in shown
