"""``farthing quantize`` as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from fuzz.corpus import write_gguf
from support.command_line import COMMAND, CommandLine
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


def test_a_quantized_model_is_made_shown_and_run(
    farthing: CommandLine, tiny_model: str, here: Path
) -> None:
    result = farthing("quantize", tiny_model, "--scheme", "w4g32")
    assert result.returncode == 0, result.stderr
    packed = result.stdout.strip()
    assert Path(packed) == here / f"{Path(tiny_model).name}-w4g32"
    assert "bits a weight" in result.stderr
    facts = json.loads(farthing("show", packed, "--json").stdout)
    assert facts["format"] == "packed"
    assert facts["packed"]["method"] == "weighted"
    assert facts["packed"]["source"] == Path(tiny_model).name
    assert set(facts["tensor_types"]) == {"q4_0", "f32"}
    original = json.loads(farthing("show", tiny_model, "--json").stdout)
    assert facts["parameters"] == original["parameters"]
    assert facts["kv_bytes_per_token"] == original["kv_bytes_per_token"]
    text = farthing("show", packed).stdout
    for words in ("packed", "scales by weighted", facts["packed"]["fingerprint"], "q4_0"):
        assert words in text
    answers = [
        farthing("run", packed, "a b c", "-n", "8", "--json", "--weights", weights).stdout
        for weights in ("mmap", "copy")
    ]
    texts = [json.loads(answer)["text"] for answer in answers]
    assert texts[0] == texts[1]


def test_a_scheme_without_kernels_is_served_and_shown_with_what_carries_it(
    farthing: CommandLine, tiny_model: str, here: Path
) -> None:
    result = farthing("quantize", tiny_model, "-s", "w3tensor", "--method", "absmax", "-o", "mine")
    assert result.returncode == 0, result.stderr
    assert "No kernel has w3tensor: its values are kept and served as w4row\n" in result.stderr
    facts = json.loads(farthing("show", "mine", "--json").stdout)
    types = facts["tensor_types"]
    assert set(types) == {"w3tensor", "f32"}
    assert types["w3tensor"]["served_as"] == "w4row"
    assert types["w3tensor"]["bits_per_weight"] > 4
    tensors, parameters = (types["w3tensor"][key] for key in ("tensors", "parameters"))
    assert types["w3tensor"]["storage_bits_per_weight"] == 3 + 16 * tensors / parameters
    (line,) = (s for s in farthing("show", "mine").stdout.splitlines() if "w3tensor" in s)
    assert line.split()[-1] == "w4row"
    assert farthing("run", "mine", "a b c", "-n", "4").returncode == 0
    told = farthing("quantize", tiny_model, "-s", "w3tensor", "-o", "again", "--json").stdout
    assert json.loads(told)["carried"] == {"w3tensor": "w4row"}


def test_json_says_what_was_written(farthing: CommandLine, tiny_model: str, here: Path) -> None:
    result = farthing(
        "quantize", tiny_model, "-s", "w8g64", "--method", "absmax", "-o", "mine", "--json"
    )
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["path"] == str(here / "mine")
    assert (
        facts["tensor_bytes"]
        == json.loads(farthing("show", "mine", "--json").stdout)["tensor_bytes"]
    )
    assert 8 < facts["bits_per_weight"] < 12
    assert facts["resumed_tensors"] == 0
    assert facts["method"] == "absmax"


@pytest.mark.parametrize(
    ("options", "method"),
    [
        (("keep",), "none"),
        (("bf16",), "none"),
        (("keep", "--head-scheme", "w8g64", "--method", "mse"), "mse"),
    ],
)
def test_a_method_is_told_where_it_chose_scales(
    farthing: CommandLine, tiny_model: str, here: Path, options: tuple[str, ...], method: str
) -> None:
    """By the command as by what it wrote."""
    result = farthing("quantize", tiny_model, "--scheme", *options, "-o", "mine", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["method"] == method
    assert json.loads(farthing("show", "mine", "--json").stdout)["packed"]["method"] == method


def test_it_is_said_that_quantized_weights_lose_twice(
    farthing: CommandLine, tmp_path: Path, here: Path
) -> None:
    write_gguf(tmp_path / "model.gguf")
    result = farthing("quantize", str(tmp_path / "model.gguf"))
    assert result.returncode == 0, result.stderr
    assert "quantized already (q8_0, q4_0, q4_1, q5_0, q5_1, tq2_0)" in result.stderr
    assert (here / "model-w4g64").is_dir()
    kept = farthing("quantize", str(tmp_path / "model.gguf"), "--scheme", "keep")
    assert kept.returncode == 0, kept.stderr
    assert "already" not in kept.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scheme", "w4g48"), "weights cannot be packed in 'w4g48'; there are w4g64"),
        (("--head-scheme", "q4_k"), "weights cannot be packed in 'q4_k'"),
        (
            ("--scheme", "w8g64m"),
            "packed in 'w8g64m': no kernel can serve w8g64m; w5g64m or w8g64 would do",
        ),
        (("--scheme", "keep", "--method", "mse"), "--method mse: --scheme keep rounds nothing to"),
        (("--scheme", "f16", "--method", "weighted"), "--method weighted: --scheme f16 rounds no"),
        (("--out", "."), "exists and is no packed model"),
        (("--out", "no/where"), "no such folder to write where to"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: tuple[str, ...], words: str, farthing: CommandLine, tiny_model: str, here: Path
) -> None:
    (here / "something").touch()
    result = farthing("quantize", tiny_model, *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert names(here) == ["something"]


def test_a_place_that_cannot_be_is_refused_before_anything_is_fetched(
    farthing: CommandLine, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr("farthing.cli.download.fetch", fetched.append)
    result = farthing("quantize", "qwen2.5-coder-0.5b", "--out", "no/where")
    assert result.returncode == 2
    assert "no: no such folder to write where to" in result.stderr
    assert fetched == []


def test_what_is_packed_already_is_not_promised_and_not_taken(
    farthing: CommandLine, tiny_model: str, here: Path
) -> None:
    argument = farthing("quantize", "--help").stdout.partition("Options:")[0].split("Arguments:")[1]
    assert "none that is packed already" in " ".join(argument.split())
    assert "packed directory" in " ".join(farthing("show", "--help").stdout.split())
    assert farthing("quantize", tiny_model, "--out", "packed").returncode == 0
    for scheme in ("w4g64", "keep"):
        result = farthing("quantize", "packed", "--scheme", scheme, "--out", "again")
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == (
            "farthing: error: packed: is packed already; quantize what it was made from, "
            f"'{Path(tiny_model).name}'\n"
        )
    assert names(here) == ["packed"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b"),
        ("owner/Repo-7B", "Repo-7B"),
        ("owner/repo:model-F16.gguf", "model-F16"),
        ("owner/repo:files/model-F16.gguf", "model-F16"),
    ],
)
def test_what_was_fetched_gives_the_directory_its_name(
    model: str,
    name: str,
    farthing: CommandLine,
    tiny_model: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("farthing.cli.download.fetch", lambda _: Path(tiny_model))
    assert farthing("quantize", model, "--method", "absmax").returncode == 0
    assert names(here) == [f"{name}-w4g64"]


def test_ctrl_c_leaves_what_goes_on_and_says_where(
    farthing: CommandLine, environment: dict[str, str], tiny_model: str, here: Path
) -> None:
    step = ("farthing.packing.folder", "PartialFolder", "append")
    stderr = interrupted(step, ["quantize", tiny_model, "--out", "packed"], environment)
    assert names(here) == ["packed.partial"]
    assert f"tensors are kept in {here / 'packed.partial'}; the same command goes on" in stderr
    result = farthing("quantize", tiny_model, "--out", "packed")
    assert result.returncode == 0, result.stderr
    assert "Going on where an interrupted run stopped: " in result.stderr
    assert names(here) == ["packed"]


def test_a_file_cut_under_a_running_process_is_named(
    environment: dict[str, str], tiny_model: str, farthing: CommandLine, here: Path
) -> None:
    assert farthing("quantize", tiny_model, "--out", "packed").returncode == 0
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "from farthing import SamplingParams\n"
        "from farthing.cli.loading import LoadOptions, load\n"
        "llm = load('packed', LoadOptions())\n"
        "os.truncate('packed/model.safetensors', 4096)\n"
        "llm.generate('a b c', SamplingParams(max_tokens=4))\n"
    )
    result = subprocess.run(
        [*COMMAND[:3], "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == -signal.SIGBUS
    assert result.stderr.startswith("farthing: error: packed: a file of the model became shorter")
