"""``farthing quantize --mixed`` as a user runs it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from farthing.texts import calibration_text
from support.command_line import CommandLine
from support.interrupted import interrupted


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_mixture_is_made_and_says_what_it_was_made_by(
    farthing: CommandLine, tiny_model: str, here: Path, home: Path
) -> None:
    result = farthing("quantize", tiny_model, "--mixed", "0.12 MB")
    assert result.returncode == 0, result.stderr
    packed = Path(result.stdout.strip())
    assert packed == here / f"{Path(tiny_model).name}-0.12MB"
    for words in (
        "Measuring matrices, ",
        "Measuring the mixture as a whole: 100%",
        "Matrices: ",
        f"Divergence on {calibration_text().name}: ",
        " predicted\n",
        "The best single scheme that fits, ",
        " bits a weight",
    ):
        assert words in result.stderr
    shown = json.loads(farthing("show", str(packed), "--json").stdout)
    text = calibration_text().text.encode()
    assert shown["packed"]["calibration"] == {
        "use": "mixed",
        "name": calibration_text().name,
        "sha256": hashlib.sha256(text).hexdigest(),
    }
    assert shown["packed"]["method"] == "weighted"
    assert len(set(shown["tensor_types"]) - {"f32"}) > 2
    assert sum(t["bytes"] for t in shown["tensor_types"].values()) <= 120_000
    assert "harm on Jane Austen, Persuasion" in farthing("show", str(packed)).stdout
    assert farthing("run", str(packed), "a b c", "-n", "4").returncode == 0
    assert names(here) == [packed.name]
    assert names(home) == ["harms"]


def test_the_same_command_makes_the_same_bytes_and_another_size_is_quick(
    farthing: CommandLine, tiny_model: str, here: Path
) -> None:
    text = here / "mine.txt"
    text.write_text("All this was said before. " * 200)
    command = ("quantize", tiny_model, "--mixed", "110K", "--calibration", str(text), "--json")
    found = []
    for place in ("one", "two"):  # each measures by itself
        result = farthing(*command, "-o", place, FARTHING_HOME=str(here / f"home-{place}"))
        assert result.returncode == 0, result.stderr
        facts = json.loads(result.stdout)
        del facts["path"], facts["seconds"]
        found.append((facts, {p.name: p.read_bytes() for p in (here / place).iterdir()}))
    assert found[0] == found[1]

    facts = found[0][0]
    mixed = facts["mixed"]
    assert facts["scheme"] is None
    assert mixed["budget"] == 110_000
    assert mixed["calibration"]["name"] == "mine.txt"
    assert mixed["tensor_bytes"] == facts["tensor_bytes"] <= 110_000
    assert mixed["measured_kl"] <= mixed["uniform"]["measured_kl"]
    assert mixed["mixture"]["predicted_kl"] > 0
    manifest = json.loads((here / "one" / "farthing.json").read_text())
    assert set(manifest["matrices"]) == set(mixed["schemes"])

    other = farthing(
        "quantize", tiny_model, "--mixed", "130K", "--calibration", str(text),
        FARTHING_HOME=str(here / "home-one"),
    )  # fmt: skip
    assert other.returncode == 0, other.stderr
    assert "An earlier run has measured 22 of 22 matrices" in other.stderr
    assert "Measuring matrices" not in other.stderr


def test_what_fits_as_floats_is_said_and_not_measured(
    farthing: CommandLine, tiny_model: str, here: Path, home: Path
) -> None:
    result = farthing("quantize", tiny_model, "--mixed", "2GiB", "-o", "floats")
    assert result.returncode == 0, result.stderr
    assert "All of it fits as floats, so nothing is measured and nothing rounded" in result.stderr
    assert "Matrices: 22 as they were\n" in result.stderr
    facts = json.loads(farthing("show", "floats", "--json").stdout)
    assert set(facts["tensor_types"]) == {"f32"}
    assert facts["packed"]["calibration"] is None
    assert not home.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mixed", "big"), "--mixed 'big': not a size; write bytes, 400M (millions), 350MiB"),
        (("--mixed", "1K"), "1,000 bytes are too few: the smallest that this model can be is 9"),
        (("--mixed", "1M", "--scheme", "w4g64"), "--mixed and --scheme w4g64: --mixed chooses"),
        (("--mixed", "1M", "--head-scheme", "w8g64"), "--mixed and --head-scheme w8g64: --mixed"),
        (("--calibration", "text"), "--calibration: only --mixed BYTES measures on a text"),
        (("--mixed", "110K", "--calibration", "none"), "none: No such file or directory"),
        (("--mixed", "110K", "--calibration", "text"), "text: 2 tokens are too few to measure"),
        (("--mixed", "110K", "--calibration", "."), "Is a directory"),
        (("--mixed", "110K", "--out", "."), "exists and is no packed model"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: tuple[str, ...], words: str, farthing: CommandLine, tiny_model: str, here: Path
) -> None:
    (here / "text").write_text("a b")
    result = farthing("quantize", tiny_model, *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert names(here) == ["text"]


def test_ctrl_c_keeps_what_is_measured(
    farthing: CommandLine, environment: dict[str, str], tiny_model: str, here: Path
) -> None:
    step = ("farthing.mixed.journal", "Journal", "add_harm")
    arguments = ["quantize", tiny_model, "--mixed", "110K", "-o", "packed"]
    stderr = interrupted(step, arguments, environment)
    assert "of 22 matrices are measured and kept; the same command goes on from there" in stderr
    assert names(here) == []
    result = farthing("quantize", tiny_model, "--mixed", "110K", "-o", "packed")
    assert result.returncode == 0, result.stderr
    assert "An earlier run has measured " in result.stderr
    assert names(here) == ["packed"]
