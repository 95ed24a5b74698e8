"""``farthing evaluate``: its figures for people and programs, and its refusals."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from support.command_line import CommandLine
from support.evaluations import QUICK, TEXT
from support.tiny_models import KINDS, make_model, make_tiny_model


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


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With room for the questions of the battery."""
    config = replace(KINDS["qwen2-tied"], context_length=512)
    return str(make_model(config, tmp_path_factory.mktemp("tiny") / "long"))


@pytest.fixture(scope="module")
def short_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With room for windows alone."""
    config = replace(KINDS["qwen2-tied"], context_length=48)
    return str(make_model(config, tmp_path_factory.mktemp("tiny") / "short"))


RIGHT = ("right", "right_with_penalty")


def test_schemes_for_programs(
    farthing: CommandLine, long_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything at once: text, paths, questions with and without a penalty, speed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = ("--context", "32", "--tokens", "320", "--positions", "60", "--json")
    result = farthing(
        "evaluate",
        long_model,
        *("--schemes", "w8row,w4row"),
        *("--repetition-penalty", "1.1"),
        *options,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["reference_is"] == "the file's own values"
    assert [model["name"] for model in report["models"]] == ["reference", "w8row", "w4row"]
    assert [model["scheme"] for model in report["models"]] == [None, "w8row", "w4row"]
    assert report["settings"]["kv_cache_dtype"] == "fp16"
    assert report["method"] == "weighted"
    assert report["tokens"]["scored"] == 10 * 15
    assert (report["positions"], report["paths"]) == (60, 2)
    reference, row8, row4 = report["models"]
    assert reference["text"]["kl"] is None
    assert reference["paths"]["share"]["count"] == 60
    assert row8["text"]["kl"]["mean"]["value"] < row4["text"]["kl"]["mean"]["value"]
    assert 60 > row8["paths"]["share"]["count"] > row4["paths"]["share"]["count"]
    assert reference["size"]["bits_per_weight"] == 32
    # Rows of 64 and more columns: two bytes for the scale of each.
    assert 8 < row8["size"]["bits_per_weight"] < 8.25
    assert row4["size"]["files"] < row8["size"]["files"]
    for model in report["models"]:
        right = model["battery"]["right"]
        assert right["total"] == 16
        assert right["value"] == right["count"] / 16
        assert model["battery"]["right_with_penalty"]["total"] == 16
        assert len(model["battery"]["answers"]) == 16
        speed = model["speed"]
        assert speed["alone"]["batch"] == 1
        assert speed["alone"]["least"] <= speed["alone"]["seconds"] <= speed["alone"]["most"]
        assert speed["knee"] in speed["steps"]
        for step in speed["steps"]:
            assert step["tokens_per_second"] == step["batch"] / step["seconds"]
    pairs = [(pair["first"], pair["second"]) for pair in report["pairs"]]
    assert pairs == [("w8row", "reference"), ("w4row", "reference"), ("w8row", "w4row")]
    for pair in report["pairs"]:
        assert all(pair["verdicts"].values())
        assert pair["battery"]["found"] is (pair["battery"]["p"] <= 0.05)
    assert report["pairs"][2]["verdicts"]["agreement"].startswith("better: ")
    assert report["recommendation"] is None
    assert report["machine"]["isa"]
    assert report["software"]["python"]
    assert report["memory"]["peak_resident"] > report["memory"]["reference_weights"]
    assert list(tmp_path.iterdir()) == []
    assert any(line.startswith("w8row takes ") for line in result.stderr.splitlines())


def test_a_reference_for_people(
    farthing: CommandLine, rounded: str, tiny_model: str, text: str
) -> None:
    options = ("--tokens", "100", "--positions", "2", *QUICK)
    result = farthing("evaluate", rounded, "--text", text, "--against", tiny_model, *options)
    assert result.returncode == 0, result.stderr
    lines = {line[:14].strip(): line[14:].strip() for line in result.stdout.splitlines()}
    assert lines["Reference"] == tiny_model
    assert "3 of " in lines["Text"]
    assert "45 tokens scored" in lines["Text"]
    assert lines["Greedy paths"] == "2 positions of 1 paths"
    assert "on disk" in lines["Memory"]
    table = result.stdout.split("Agreement, 95 %")[1]
    assert "reference" in table
    assert "rounded against the reference" in result.stdout
    for name in ("Perplexity", "Next token", "Agreement"):
        assert f"  {name} " in result.stdout.split("against the reference")[1]
    assert "Battery" not in result.stdout


def test_every_share_and_mean_is_shown_with_its_interval(
    farthing: CommandLine, long_model: str
) -> None:
    options = ("--context", "32", "--tokens", "320", "--positions", "8", "--no-speed")
    options += ("--schemes", "w4row", "--repetition-penalty", "1.1")
    shown, plain = (farthing("evaluate", long_model, *options, *more) for more in ((), ("--json",)))
    assert shown.returncode == plain.returncode == 0, shown.stderr + plain.stderr
    words = " ".join(shown.stdout.split())
    for title in ("Perpl.", "Next token", "KL", "Top", "Battery", "at 1.1"):
        assert f"{title}, 95 %" in words
    for model in json.loads(plain.stdout)["models"]:
        text, battery = model["text"], model["battery"]
        low, high = (text["perplexity"][end] for end in ("low", "high"))
        assert f"{low:.4g} to {high:.4g}" in words
        for share in (text["right"], text["same_top"], *(battery[key] for key in RIGHT)):
            if share is not None:
                assert f"{share['low'] * 100:.1f}-{share['high'] * 100:.1f} %" in words
        if text["kl"] is not None:
            mean = text["kl"]["mean"]
            assert f"{mean['low']:.4f} to {mean['high']:.4f}" in words


def test_without_a_reference_there_are_no_comparisons(
    farthing: CommandLine, tiny_model: str, text: str
) -> None:
    result = farthing("evaluate", tiny_model, "--text", text, "--tokens", "0", *QUICK)
    assert result.returncode == 0, result.stderr
    assert "Perpl." in result.stdout
    assert "KL" not in result.stdout
    assert "against" not in result.stdout
    assert "on disk" not in result.stdout
    last = result.stderr.splitlines()[-1]
    count = result.stdout.split(" windows of")[0].split()[-1]
    assert f"window {count} of {count}: perplexity" in last


def test_the_kv_type_reaches_the_model(farthing: CommandLine, tiny_model: str, text: str) -> None:
    """With keys and values as the reference keeps them, a model is its own reference."""
    options = ("--text", text, "--against", tiny_model, "--positions", "2", *QUICK, "--json")
    facts = [
        json.loads(farthing("evaluate", tiny_model, *options, "--kv-cache-dtype", kv_type).stdout)
        for kv_type in ("fp32", "fp16")
    ]
    assert [each["method"] for each in facts] == [None, None], "nothing was rounded"
    exact, rounded = (each["models"][1]["text"]["kl"]["maximum"] for each in facts)
    assert exact == 0 < rounded


def test_the_default_window_is_no_longer_than_the_context(
    farthing: CommandLine, tiny_model: str
) -> None:
    """One that is asked for is not made shorter."""
    options = ("--battery", "none", "--no-speed")
    found = farthing("evaluate", tiny_model, *options)
    assert found.returncode == 0, found.stderr
    told = f"Windows have 256 tokens instead of 512: the context of {tiny_model} has no more"
    assert found.stderr.splitlines()[0] == told
    assert " 8 of " in found.stdout, "2,048 tokens"
    assert "windows of 256 tokens" in found.stdout
    one = farthing("evaluate", tiny_model, "--tokens", "300", *options)
    assert one.returncode == 0, one.stderr
    assert " 1 of " in one.stdout, "300 tokens are more than a window has here"
    few = farthing("evaluate", tiny_model, "--tokens", "255", *options)
    assert few.returncode == 2
    assert "--tokens 255 is less than a window of 256 tokens" in few.stderr
    refused = farthing("evaluate", tiny_model, "--context", "512", *options)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.endswith(
        f"windows of 512 tokens are longer than the context of {tiny_model}, 256 tokens; "
        "give a smaller --context"
    )


@pytest.mark.parametrize(
    ("options", "what", "remedy"),
    [
        ((), "the battery's questions of up to", "--battery none leaves it out"),
        (
            ("--battery", "none"),
            "sequences of 65 tokens, whose speed is measured,",
            "--no-speed leaves it out",
        ),
        (
            ("--battery", "none", "--no-speed", "--schemes", "w8row"),
            "prompts and paths of 112 tokens",
            "--positions 0 leaves them out",
        ),
    ],
)
def test_what_a_context_has_no_room_for_is_named_with_what_leaves_it_out(
    farthing: CommandLine, short_model: str, options: tuple[str, ...], what: str, remedy: str
) -> None:
    result = farthing("evaluate", short_model, *options)
    assert result.returncode == 2
    line = result.stderr.splitlines()[-1]
    assert line.startswith(f"farthing: error: {what}")
    assert line.endswith(f"longer than the context of {short_model}, 48 tokens; {remedy}")


def test_the_default_window_fits_the_reference_too(
    farthing: CommandLine, long_model: str, tiny_model: str
) -> None:
    options = ("--positions", "2", "--battery", "none", "--no-speed", "--json")
    alone = farthing("evaluate", long_model, "--battery", "none", "--no-speed", "--json")
    assert alone.returncode == 0, alone.stderr
    assert "instead of" not in alone.stderr
    assert json.loads(alone.stdout)["settings"]["context"] == 512
    beside = farthing("evaluate", long_model, "--against", tiny_model, *options)
    assert beside.returncode == 0, beside.stderr
    assert f"the context of {tiny_model} has no more" in beside.stderr
    report = json.loads(beside.stdout)
    assert report["settings"]["context"] == report["tokens"]["context"] == 256
    assert report["tokens"]["windows"] == report["settings"]["windows"] == 8


def test_recommendations_name_the_smallest(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    """With a margin that nothing leaves and one that nothing random can be shown to keep."""
    options = ("--recommend", "--schemes", "w8row,w4row", "--positions", "4", *QUICK)
    wide = farthing("evaluate", tiny_model, *options, "--margin", "90", "--max-loss", "90")
    assert wide.returncode == 0, wide.stderr
    *_, equivalent, within = wide.stdout.splitlines()
    assert equivalent == ("Smallest that is equivalent to the reference within 90 points: w4row")
    assert within == "Smallest that loses less than 90 points: w4row"
    assert "8,205 tokens scored" in wide.stdout
    narrow = farthing("evaluate", tiny_model, *options, "--margin", "0.001", "--max-loss", "0.001")
    assert narrow.stdout.splitlines()[-1].endswith(": none of these")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--text", "missing.txt"), "No such file"),
        (("--text", "empty.txt"), "empty.txt: the text is empty"),
        (("--text", "bytes.txt"), "not UTF-8 text: byte 0 cannot"),
        (("--text", "short.txt"), "too few for a window of 32"),
        (("--text", "short.txt", "--context", "8", "--schemes", "w8row"), "enough for 0"),
        (("--tokens", "31"), "--tokens 31 is less than a window of 32 tokens"),
        (("--against", "no-such-model"), "no-such-model"),
        (("--schemes", "w8row,w9row"), "weights cannot be packed in 'w9row'; there are"),
        (("--schemes", "w8row,w8row"), "--schemes names w8row twice"),
        (("--schemes", ","), "--schemes ',' names no scheme; there are keep, w8row, "),
        (("--method", "mse"), "--method mse: no weight is rounded; name schemes with --schemes"),
        (("--method", "mse", "--schemes", "keep,f16"), "--method mse: no weight is rounded; name"),
        (
            ("--margin", "1"),
            "--margin 1.0: is of a difference from a reference; name one with --against, or "
            "--schemes",
        ),
        (
            ("--schemes", "w8row", "--max-loss", "3"),
            "--max-loss 3.0: is what --recommend puts up with; give both",
        ),
        (
            ("--repetition-penalty", "1.1"),
            "--repetition-penalty 1.1: is of a battery, and --battery none leaves that out",
        ),
        (("--positions", "10"), "--positions 10: are of a reference's greedy path"),
        (("--schemes", "w8row", "--positions", "1000000"), "20834 prompts of 64 tokens"),
        (("--battery", "missing.jsonl"), "battery 'missing.jsonl': no such file"),
        (("--battery", "wrong.jsonl"), "wrong.jsonl, line 1: needs answers, a list of 1 to 100"),
        (
            ("--figure-format", "svg"),
            "--figure-format svg: is of pictures; name a folder: --figures",
        ),
        (
            ("--figures", "pictures", "--no-speed"),
            "--figures pictures: there is nothing to draw with --no-speed and no reference; name "
            "one with --against, or --schemes",
        ),
        (
            ("--figures", "short.txt/below", "--schemes", "w8row"),
            "short.txt is a file; a folder is needed",
        ),
        (("--recommend", "--tokens", "512"), "--recommend takes 8,192 scored tokens at least"),
        (
            ("--recommend", "--text", "long.txt", "--positions", "0"),
            "long.txt: 135 of its tokens are scored, and --recommend takes 8,192 at least; give a "
            "longer text",
        ),
        (
            ("--recommend", "--text", "long.txt", "--positions", "0", "--tokens", "0"),
            "long.txt: 135 of its tokens are scored, and --recommend takes 8,192 at least",
        ),
        (("--recommend", "--margin", "0"), "--margin 0 must be above 0"),
        (("--recommend", "--max-loss", "100"), "--max-loss 100 must be above 0"),
        (("--battery", "short", "--repetition-penalty", "0"), "repetition_penalty=0"),
    ],
)
def test_bad_input_is_one_line(
    farthing: CommandLine,
    tiny_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (
        ("empty.txt", b""),
        ("bytes.txt", b"\xff\xfe\x00"),
        ("short.txt", b"A penny saved."),
        ("long.txt", TEXT.encode()),
        ("wrong.jsonl", b'{"question": "Who?"}'),
    ):
        (tmp_path / name).write_bytes(content)
    asked = options if "--battery" in options else (*options, "--battery", "none")
    contexts = () if "--context" in options else ("--context", "32")
    result = farthing("evaluate", tiny_model, *contexts, *asked)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()[-1:]
    assert line.startswith("farthing: error: ")
    assert problem in line
    assert "loading" not in result.stderr


def test_a_packed_model_cannot_be_packed_again(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    packed = tmp_path / "packed"
    assert farthing("quantize", tiny_model, "-s", "w4g64", "-o", str(packed)).returncode == 0
    result = farthing("evaluate", str(packed), "--schemes", "w8row", *QUICK)
    assert result.returncode == 2
    assert "is packed already" in result.stderr.splitlines()[-1]


def test_models_of_other_vocabularies_are_named(
    farthing: CommandLine, tiny_model: str, text: str, tmp_path: Path
) -> None:
    other = str(make_tiny_model("qwen2", tmp_path / "other"))
    result = farthing("evaluate", other, "--text", text, "--against", tiny_model, *QUICK)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert other in line
    assert tiny_model in line
    assert "do not share a vocabulary" in line
