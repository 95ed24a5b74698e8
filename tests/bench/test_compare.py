"""Turns of Farthing and of a llama.cpp that the test wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farthing.bench.compare import Comparison, compare, peer_file, wanted_phases
from farthing.bench.llama_cpp import LlamaCpp
from farthing.bench.rounds import Spread
from farthing.bench.turn import PHASES, Turn, play_in_new_process
from farthing.errors import FarthingError, InvalidParameterError
from support.fake_llama_cpp import calls, write_llama_cpp
from support.tiny_models import make_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_model("qwen2", tmp_path_factory.mktemp("model")))


def turn(model: str, phase: str, **sizes: object) -> Turn:
    small: dict[str, object] = {"prompt": 20, "depth": 5, "new": 6, "batch": (1, 3)}
    return Turn(model, phase, 1, **{**small, **sizes})  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", PHASES)
def test_a_turn_is_a_process_that_gives_rates(model: str, phase: str) -> None:
    asked = turn(model, phase)
    rates = play_in_new_process(asked)
    assert list(rates) == asked.names
    assert all(0 < rate < 1e6 for rate in rates.values())


def test_a_turn_that_fails_says_why(model: str) -> None:
    with pytest.raises(FarthingError, match=r"prefill of .*: max_model_len=5001 is more than"):
        play_in_new_process(turn(model, "prefill", prompt=5000))


def test_the_peer_is_asked_for_the_same_work(tmp_path: Path) -> None:
    peer = LlamaCpp.find(write_llama_cpp(tmp_path))
    asked = replace(turn("m.gguf", "prefill"), kv_cache_dtype="fp32")
    assert peer.play(asked) == {"prefill": 400.0}
    assert peer.play(replace(asked, phase="decode")) == {"decode": 50.0}
    assert peer.play(replace(asked, phase="batch")) == {"batch 1": 10.0, "batch 3": 30.0}
    common = ["-m", "m.gguf", "-t", "1"]
    kv = ["-ctk", "f32", "-ctv", "f32"]
    once = ["-r", "1", *kv, "-o", "json"]
    assert calls(tmp_path) == [
        ["bench", *common, *once, "-p", "20", "-n", "0"],
        ["bench", *common, *once, "-p", "0", "-n", "6", "-d", "5"],
        [
            *["batched", *common, "-tb", "1", "-c", str(3 * 48), *kv, "--output-format", "jsonl"],
            *["-npp", "16", "-ntg", "32", "-npl", "1,3"],
        ],
    ]
    assert peer.describe() == "llama.cpp version: 1.2.3 (build 7)"


def test_rounds_are_in_turns_and_ratios_of_one_round(model: str, tmp_path: Path) -> None:
    peer = LlamaCpp.find(write_llama_cpp(tmp_path))
    pairs = [(turn(model, p), turn("m.gguf", p)) for p in ("prefill", "decode")]
    said: list[str] = []
    prefill, decode = compare(pairs, peer, 2, said.append)
    assert [call[-3:-1] for call in calls(tmp_path)] == [["20", "-n"], ["6", "-d"]] * 2
    assert prefill.peer == [400.0, 400.0]
    assert decode.peer == [50.0, 50.0]
    assert len(prefill.farthing) == len(decode.farthing) == 2
    assert [line.split(":")[0] for line in said] == [
        "round 1 of 2, prefill",
        "round 1 of 2, decode",
        "round 2 of 2, prefill",
        "round 2 of 2, decode",
    ]
    record = json.loads(json.dumps(decode.record("m.gguf", {"peer": "fake"})))
    assert record["ratios"] == [ours / 50.0 for ours in decode.farthing]
    assert record["depth"] == 5
    assert (record["model"], record["peer_model"], record["peer"]) == (
        Path(model).name,
        "m.gguf",
        "fake",
    )


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    c = Comparison("decode", turn("m", "decode"), [10.0, 30.0, 80.0], [10.0, 10.0, 20.0])
    assert c.ratio == Spread(3.0, 1.0, 4.0)  # not the ratio of medians, which is 3 too
    c = Comparison("decode", turn("m", "decode"), [10.0, 20.0, 40.0], [5.0, 20.0, 10.0])
    assert c.ratio == Spread(2.0, 1.0, 4.0)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("sys.exit('cannot load')", "exit status 1: cannot load"),
        ("print('[]'); sys.exit(0)", "prints no JSON"),
        ("print('fast!'); sys.exit(0)", "prints no JSON"),
        ("print('{half'); sys.exit(0)", "prints no JSON"),
        ('print(\'[{"avg_ts": 0}]\\n{"pl": 1, "speed_tg": NaN}\'); sys.exit(0)', "prints no JSON"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe'); sys.exit(0)", "prints no JSON"),
        ("sys.stderr.buffer.write(b'bad \\xff'); sys.exit(3)", "exit status 3: bad \ufffd"),
    ],
)
@pytest.mark.parametrize(
    ("phase", "program", "wanted"),
    [
        ("prefill", "llama-bench", " with avg_ts"),
        ("batch", "llama-batched-bench", " line of batch 1"),
    ],
)
def test_a_peer_that_fails_is_named(
    tmp_path: Path, fault: str, message: str, phase: str, program: str, wanted: str
) -> None:
    peer = LlamaCpp.find(write_llama_cpp(tmp_path, fault=fault))
    with pytest.raises(FarthingError) as raised:
        peer.play(turn("m.gguf", phase))
    said = message + wanted if message == "prints no JSON" else message
    assert str(raised.value) == f"{tmp_path / 'bin' / program}: {said}"


def test_what_a_peer_prints_beside_its_rows_need_not_be_utf8(tmp_path: Path) -> None:
    peer = LlamaCpp.find(
        write_llama_cpp(tmp_path, fault="sys.stderr.buffer.write(b'token \\xf0\\x9f')")
    )
    assert peer.play(turn("m.gguf", "batch")) == {"batch 1": 10.0, "batch 3": 30.0}


def test_the_programs_are_found_from_a_folder_or_from_one_of_them(tmp_path: Path) -> None:
    folder = write_llama_cpp(tmp_path / "llama", batched=False)
    for place in (folder, folder / "bin", folder / "bin" / "llama-bench"):
        found = LlamaCpp.find(place)
        assert found.bench == folder / "bin" / "llama-bench"
        assert found.batched_bench is None
    with pytest.raises(InvalidParameterError, match=r"--llama-cpp .*none: no such folder"):
        LlamaCpp.find(tmp_path / "none")
    with pytest.raises(InvalidParameterError, match="must be llama-bench, or the folder"):
        LlamaCpp.find(tmp_path)
    (tmp_path / "text").write_text("not a program")
    with pytest.raises(InvalidParameterError, match="must be llama-bench"):
        LlamaCpp.find(tmp_path / "text")


def test_phases_are_those_that_the_build_can_do(tmp_path: Path) -> None:
    whole = LlamaCpp.find(write_llama_cpp(tmp_path / "whole"))
    part = LlamaCpp.find(write_llama_cpp(tmp_path / "part", batched=False))
    assert wanted_phases(None, whole) == ["prefill", "decode", "batch"]
    assert wanted_phases(None, part) == ["prefill", "decode"]
    assert wanted_phases("batch, prefill", whole) == ["prefill", "batch"]
    with pytest.raises(InvalidParameterError, match="batch needs llama-batched-bench beside"):
        wanted_phases("batch", part)
    with pytest.raises(InvalidParameterError, match="'train' must be one of prefill, decode"):
        wanted_phases("prefill,train", whole)


def test_llama_cpp_is_given_a_file(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    assert peer_file(file, None) == file
    assert peer_file(tmp_path, file) == file
    with pytest.raises(InvalidParameterError, match="reads GGUF files only; name one by --peer-"):
        peer_file(tmp_path, None)
    with pytest.raises(InvalidParameterError, match=r"--peer-model .*: must be a GGUF file"):
        peer_file(file, tmp_path)
    with pytest.raises(InvalidParameterError, match=r"--peer-model .*: no such file"):
        peer_file(file, tmp_path / "none")
