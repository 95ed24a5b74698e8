"""``farthing bench``: every verb on a tiny model, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, machine
from farthing.bench.records import append, machine_name
from farthing.cli.bench.app import app
from farthing.cli.bench.session import open_folder
from support.command_line import CommandLine
from support.fake_llama_cpp import write_llama_cpp, write_llama_server
from support.packing import pack

SHAPE = "layers=2,hidden=64,intermediate=96,heads=4,kv_heads=2,vocab=300"
VERBS = ("kernels", "prefill", "decode", "batch", "context", "compare", "requests", "serve")


def lines(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def check(record: dict[str, Any], rounds: int) -> None:
    """What every record of a measurement says."""
    assert record["format"] == "farthing-bench-1"
    assert record["rounds"] == rounds
    for spread in (record["seconds"], record["memory_share"], record["compute_share"]):
        assert 0 <= spread["least"] <= spread["median"] <= spread["most"]
    assert record["seconds"]["least"] > 0
    work = record["weight_bytes"] + record["kv_bytes"]
    macs = record["integer_macs"] + record["float_macs"]
    seconds = record["seconds"]["median"]
    assert record["gb_s"] == pytest.approx(work / seconds / 1e9)
    assert record["gmac_s"] == pytest.approx(macs / seconds / 1e9)
    assert record["tokens_s"] == pytest.approx(record["tokens"] / seconds)
    limits = record["limits"]
    if rounds == 1:
        integer = record["integer_macs"] / max(limits["integer_gmac_s"].values())
        floating = record["float_macs"] / max(limits["float_gmac_s"].values())
        compute = (integer + floating) / 1e9 / seconds
        assert record["compute_share"]["median"] == pytest.approx(compute)
        memory = work / limits["read_gb_s"] / 1e9 / seconds
        assert record["memory_share"]["median"] == pytest.approx(memory)
        assert record["binding"] == ("memory" if memory >= compute else "compute")
    facts = record["machine"]
    assert facts["isa"] == machine.active_isa()
    assert {"cpu", "cores", "governor", "stolen", "load_average"} <= set(facts)
    assert {"farthing", "commit", "python"} <= set(record["software"])


def test_decode_prints_a_table_and_keeps_a_line_each(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    out = tmp_path / "results"
    arguments = ["bench", "decode", tiny_model, "--rounds", "2", "--threads", "1"]
    result = farthing(*arguments, "--context", "30", "-o", str(out))
    assert result.returncode == 0
    for word in ("1 thread; 2 rounds", "Limits: read", "batch 1, context 30", "memory", "compute"):
        assert word in result.stdout
    assert f"3 results appended to {out}" in result.stderr
    records = lines(out)
    assert [(r["verb"], r["part"], r["case"]) for r in records] == [
        ("decode", "pass", "batch 1, context 30"),
        ("decode", "linear", "batch 1, context 30"),
        ("decode", "llm", "batch 1"),
    ]
    for record in records:
        check(record, 2)
        assert (record["model"], record["threads"]) == (Path(tiny_model).name, 1)
        assert set(record["schemes"]) == {"f32"}
        assert record["weights"] == "mmap"
    whole, linear, _ = records
    assert linear["weight_bytes"] == whole["weight_bytes"] > 0
    assert (linear["kv_bytes"], whole["kv_bytes"]) == (0, 3 * 31 * 2 * 2 * 16 * 2)
    again = farthing(*arguments, "--context", "30", "-o", str(out), "--json")
    printed = json.loads(again.stdout)
    assert lines(out) == records + printed
    assert len(printed) == 3


def test_copied_weights_are_measured_as_such(
    farthing: CommandLine, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack(Path(tiny_model), tmp_path / "packed", "w4row")
    placements: list[object] = []
    whole = LLM.__init__

    def noted(self: LLM, *arguments: Any, **options: Any) -> None:
        placements.append(options["weights"])
        whole(self, *arguments, **options)

    monkeypatch.setattr(LLM, "__init__", noted)
    for verb in ("prefill", "decode", "batch", "context"):
        out = tmp_path / verb
        arguments = ["bench", verb, str(packed), "--rounds", "1", "--weights", "copy"]
        sizes = {
            "prefill": ["--tokens", "9"],
            "batch": ["--batch", "2"],
            "context": ["--context", "3"],
        }
        result = farthing(*arguments, *sizes.get(verb, []), "-o", str(out))
        assert result.returncode == 0, result.stderr
        assert {r["weights"] for r in lines(out)} == {"copy"}
    assert placements == ["copy"] * 4


@pytest.mark.parametrize(
    ("arguments", "cases"),
    [
        (("prefill", "--tokens", "40"), {"prompt of 40": 2}),
        (
            ("batch", "--batch", "1,3", "--context", "20"),
            {"batch 1, context 20": 2, "batch 3, context 20": 2, "batch 1": 1, "batch 3": 1},
        ),
        (("context", "--context", "3,50"), {"batch 1, context 3": 2, "batch 1, context 50": 2}),
    ],
)
def test_verbs_measure_models_and_shapes(
    farthing: CommandLine,
    tiny_model: str,
    tmp_path: Path,
    arguments: tuple[str, ...],
    cases: dict[str, int],
) -> None:
    for target in ([tiny_model], ["--shape", SHAPE, "--scheme", "q8_0"]):
        out = tmp_path / target[-1].replace("/", "_")
        options = ["--rounds", "1", "--threads", "2", "--kv-cache-dtype", "fp32", "-o", str(out)]
        result = farthing("bench", *arguments, *target, *options)
        assert result.returncode == 0, result.stderr
        records = lines(out)
        for record in records:
            check(record, 1)
            assert record["kv_cache_dtype"] == "fp32"
        shape = target[0] == "--shape"
        counted = {name: n for name, n in cases.items() if not shape or "context" in name or n > 1}
        assert {c: [r["case"] for r in records].count(c) for c in counted} == counted
        assert len(records) == sum(counted.values())
        if shape:
            assert set(records[0]["schemes"]) == {"q8_0"}
            assert all(r["integer_macs"] > 0 for r in records)


def test_kernels_measure_one_thread_and_all(
    farthing: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "memory_available", lambda: 8 << 20)  # few of each matrix
    result = farthing(
        *("bench", "kernels", "--scheme", "q4_0,f16", "--shape-matrix", "64,96", "--rows", "1,3"),
        *("--context", "40", "--tokens", "20", "--threads", "2", "--rounds", "1"),
        *("-o", str(tmp_path)),
    )
    assert result.returncode == 0, result.stderr
    records = lines(tmp_path)
    (barrier,) = [r for r in records if r["part"] == "barrier"]
    records.remove(barrier)
    assert barrier["threads"] == 2
    assert 0 < barrier["seconds"]["least"] <= barrier["seconds"]["median"] < 1
    assert "Barrier, 2 threads: " in result.stdout
    assert len(records) == 2 * (2 * 2 + 2)
    for record in records:
        check(record, 1)
    products = [r for r in records if r["part"] == "linear"]
    assert {(r["scheme"], r["rows"], r["threads"]) for r in products} == {
        (scheme, rows, threads)
        for scheme in ("q4_0", "f16")
        for rows in (1, 3)
        for threads in (1, 2)
    }
    for r in products:
        assert r["matrix"] == [64, 96]
        assert r["weight_bytes"] >= 1 << 20
        assert r["integer_macs"] + r["float_macs"] == r["rows"] * 64 * 96 * r["matrices"]
    assert "matrices from memory, 2 threads; 1 round" in result.stdout
    without = farthing(
        *("bench", "kernels", "--scheme", "f16", "--shape-matrix", "64,96", "--rows", "1"),
        *("--no-attention", "--threads", "1", "--rounds", "1", "--json", "-o", str(tmp_path)),
    )
    assert [r["part"] for r in json.loads(without.stdout)] == ["linear"]


def test_compare_prints_ratios(farthing: CommandLine, tiny_model: str, tmp_path: Path) -> None:
    llama = write_llama_cpp(tmp_path / "llama")
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    out = tmp_path / "results"
    result = farthing(
        *("bench", "compare", tiny_model, "--llama-cpp", str(llama), "--peer-model", str(other)),
        *("--phases", "prefill,batch", "--batch", "2", "--tokens", "30", "--rounds", "2"),
        *("--threads", "1", "-o", str(out)),
    )
    assert result.returncode == 0, result.stderr
    assert "round 2 of 2, batch 2: farthing" in result.stderr
    assert "2 rounds in turns against llama.cpp version: 1.2.3" in result.stderr
    prefill, batch = lines(out)
    assert (prefill["case"], batch["case"]) == ("prefill", "batch 2")
    assert (prefill["peer_model"], batch["peer_tokens_s"]["median"]) == (other.name, 20.0)
    for record in (prefill, batch):
        ratio = record["ratio"]
        assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]
        assert f"{ratio['median']:.2f}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("decode",), "bench decode: MODEL or --shape, one is needed"),
        (("decode", "x.gguf", "--shape", "7B"), "bench decode: MODEL or --shape, both are given"),
        (("decode", "none.gguf"), "none.gguf"),
        (("decode", "--shape", "8B"), "--shape '8B': must be one of 0.5B"),
        (("batch", "--shape", SHAPE, "--scheme", "q9"), "--scheme 'q9': must be one of f32"),
        (("decode", "--shape", SHAPE, "--scheme", "q4_k"), "multiple of 256 columns, not 64"),
        (("batch", "--shape", SHAPE, "--batch", "1,x"), "--batch '1,x': must be whole numbers"),
        (("batch", "--shape", SHAPE, "--batch", "0"), "--batch '0': must be whole numbers from 1"),
        (("context", "--shape", SHAPE, "--context", ""), "--context '': must be whole numbers"),
        (("kernels", "--rows", "-1"), "--rows '-1': must be whole numbers"),
        (("kernels", "--rows", "9" * 5000), "must be whole numbers from 1 to 8192"),
        (("kernels", "--shape-matrix", "1," + "9" * 5000), "inputs from 1 to 1048576, such"),
        (("kernels", "--scheme", "q4_0,"), "--scheme '': must be one of"),
        (("kernels", "--shape-matrix", "64"), "--shape-matrix '64': must be outputs and inputs"),
        (("kernels", "--scheme", "q4_0,q9"), "--scheme 'q9': must be one of"),
        (("kernels", "--shape-matrix", "64,7"), "a q4_0 row has a multiple of 32 columns, not 7"),
        (("kernels", "--shape-matrix", "1048576,1048576"), "MiB of matrices)"),
        (("kernels", "--context", "99999999", "--scheme", "f32"), "to 1048576, separated by"),
        (("compare", "m.gguf", "--llama-cpp", "none"), "--llama-cpp none: no such folder"),
        (("decode", "--shape", "14B", "--scheme", "f32", "--context", "100000"), "MiB are availab"),
    ],
)
def test_what_cannot_be_measured_is_one_line_and_status_2(
    farthing: CommandLine, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    options = [] if arguments[0] == "compare" else ["--rounds", "1"]
    result = farthing("bench", *arguments, *options, "-o", str(tmp_path / "new" / "out"))
    assert result.returncode == 2
    assert list(tmp_path.iterdir()) == []
    assert message in result.stderr
    assert result.stderr.startswith("farthing: error: ")
    assert result.stderr.count("\n") == 1


def test_a_scheme_is_not_for_models(farthing: CommandLine, tiny_model: str, tmp_path: Path) -> None:
    result = farthing("bench", "decode", tiny_model, "--scheme", "q8_0", "-o", str(tmp_path))
    assert result.returncode == 2
    assert "--scheme q8_0: is for --shape; the weights of a model are as stored" in result.stderr


def test_a_folder_that_cannot_be_is_refused_before_anything_is_measured(
    farthing: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    long = tmp_path / "new" / "other" / ("x" * 300)
    file = tmp_path / "file"
    places = (
        (file, f"{file}: is not a folder"),
        (file / "in" / "it", f"{file}: is not a folder"),
        (long, f"{long}: File name too long"),
        (Path("/proc/self"), "/proc/self: No such file"),
        (Path("/proc/self/results"), "/proc/self/results: No such file"),
    )
    for folder, problem in places:
        result = farthing("bench", "decode", "--shape", "14B", "-o", str(folder))
        assert result.returncode == 2
        assert result.stderr.startswith(f"farthing: error: {problem}")
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_instruction_set_that_is_not_there_is_refused(
    farthing: CommandLine, tmp_path: Path
) -> None:
    result = farthing.process(
        "bench", "decode", "--shape", SHAPE, "-o", str(tmp_path), FARTHING_ISA="z80"
    )
    assert result.returncode == 2
    assert "FARTHING_ISA='z80'" in result.stderr


def test_an_installed_package_writes_to_farthings_own_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("farthing.bench.records.checkout", lambda: None)
    monkeypatch.setenv("FARTHING_HOME", str(tmp_path))
    assert open_folder(None) == tmp_path / "bench" / machine_name()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_made_with_the_first_result_and_others_are_left_alone(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for folder in (there, there / "new" / "newer"):
        assert open_folder(str(folder)) == folder
        assert list(there.iterdir()) == []
    folder = there / "new" / "newer"
    path = append([{"a": 1}], folder)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}]
    assert open_folder(str(folder)) == folder
    assert list(folder.iterdir()) == [path]


def test_a_folder_that_another_run_uses_meanwhile_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def tried(**arguments: Path) -> io.BytesIO:
        append([{"a": 1}], arguments["dir"])
        return io.BytesIO()

    monkeypatch.setattr("tempfile.TemporaryFile", tried)
    folder = open_folder(str(tmp_path / "new" / "out"))
    assert len(list(folder.glob("*.jsonl"))) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_option_is_explained(verb: str, farthing: CommandLine) -> None:
    from typer.main import get_command

    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert tuple(commands) == VERBS
    assert commands[verb].help
    assert all(parameter.help for parameter in commands[verb].params)
    result = farthing("bench", verb, "--help")
    assert result.returncode == 0
    assert f"Usage: farthing bench {verb}" in result.stdout


def test_requests_are_played_on_engines_and_a_server(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"prompt": "Hello", "max_tokens": 4}\n' * 6)
    llama = write_llama_server(tmp_path / "llama")
    out = tmp_path / "results"
    result = farthing(
        *("bench", "requests", tiny_model, "--trace", str(trace), "--slots", "2"),
        *("--systems", "continuous,static,contiguous,server", "--rounds", "2", "--load", "0.9"),
        *("--llama-cpp", str(llama), "--peer-model", str(trace), "--output", str(out)),
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("by that of llama.cpp") == 8
    assert "6 requests, all at once; medians of 2 rounds" in result.stdout
    assert "a second (Poisson)" in result.stdout
    assert "round 2 of 2, poisson, llama.cpp: " in result.stderr
    records = lines(out)
    assert [r["case"] for r in records] == [
        f"{name}, {kind}"
        for kind in ("all", "poisson")
        for name in ("continuous", "static", "contiguous", "server", "llama.cpp")
    ]
    for record in records:
        assert record["compared_with"] == "llama.cpp"
        assert (record["slots"], record["rounds"], len(record["runs"])) == (2, 2, 2)
        assert record["runs"][0]["output_tokens"] == 24
        assert record["latency_mean"]["least"] > 0
        assert str(tmp_path) not in json.dumps(record)
