"""``farthing batch`` as a user runs it: files, signals, names, what is said at the end."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, SamplingParams
from support.batches import (
    answer,
    by_custom_id,
    chat,
    completion,
    error,
    read_output,
    write_lines,
)
from support.command_line import COMMAND, CommandLine
from support.pty_process import PtyProcess

SUMMARY = re.compile(
    r"[\d,]+ requests? · [\d,]+ errors?( · [\d,]+ lines? from before)? · [\d,]+ prompt tokens "
    r"\([\d,]+ cached\) · [\d,]+ tokens · [\d,.]+ s · [\d,.]+ tokens/s"
)
LONG = {"max_tokens": 100, "temperature": 0.8, "ignore_eos": True}


def many(count: int) -> list[bytes]:
    """Lines that take a while together."""
    return [completion(f"r{i}", f"line {i}", seed=i, **LONG) for i in range(count)]


def start(
    environment: Mapping[str, str], *arguments: str, limit: int | None = None
) -> subprocess.Popen[str]:
    """The command in a process of its own. ``limit``: bytes a file of it may have."""

    def prepare() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [*COMMAND, "batch", *arguments],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )


def wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.005)
    raise AssertionError(f"{path} has no {count} lines")


def answers(path: Path) -> dict[str, Any]:
    return {name: answer(record) for name, record in by_custom_id(read_output(path)).items()}


def test_every_line_is_answered_and_the_numbers_go_to_stderr(
    farthing: CommandLine, tiny_model: str, llm: LLM, tmp_path: Path
) -> None:
    lines = [
        chat("chat", max_tokens=6, temperature=0),
        b"nonsense",
        completion("text", max_tokens=5, temperature=0, model=Path(tiny_model).name),
    ]
    source, target = write_lines(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    result = farthing.process("batch", str(source), str(target), "-m", tiny_model)
    assert (result.returncode, result.stdout) == (0, "")
    said = result.stderr.splitlines()
    assert SUMMARY.fullmatch(said[-1])
    assert said[-1].startswith("3 requests · 1 error · ")
    assert said[-2].startswith("3 of 3 lines · ")
    records = read_output(target)
    assert len(records) == 3
    found = by_custom_id(records)
    (expected,) = llm.chat(
        [{"role": "user", "content": "What does a farthing buy?"}],
        SamplingParams(temperature=0, max_tokens=6),
    )
    body = answer(found["chat"])
    assert body["choices"][0]["message"]["content"] == expected.outputs[0].text
    assert body["model"] == Path(tiny_model).name
    assert answer(found["text"])["model"] == Path(tiny_model).name


def test_the_end_as_json(farthing: CommandLine, tiny_model: str, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", [completion("a", max_tokens=5, ignore_eos=True), b"?"])
    command = ("batch", str(source), str(tmp_path / "out"), "-m", tiny_model, "--json")
    first = json.loads(farthing(*command).stdout)
    assert first["seconds"] > 0
    assert first["tokens_per_second"] > 0
    assert first["prompt_tokens"] > 0
    kept = {"requests": 2, "errors": 1, "earlier": 0, "completion_tokens": 5, "cached_tokens": 0}
    assert {name: first[name] for name in kept} == kept
    second = farthing(*command)
    assert json.loads(second.stdout)["earlier"] == 2
    assert json.loads(second.stdout)["requests"] == 0
    assert "has 2 lines already, 1 of them errors; they are kept" in second.stderr
    third = json.loads(farthing(*command, "--retry-errors").stdout)
    assert (third["earlier"], third["requests"], third["errors"]) == (1, 1, 1)


@pytest.mark.parametrize("how", ["same", "symlink", "hard link", "dots"])
def test_the_output_may_not_be_the_input(farthing: CommandLine, tmp_path: Path, how: str) -> None:
    source = write_lines(tmp_path / "in", many(2))
    target = {"same": source, "dots": tmp_path / "x" / ".." / "in"}.get(how, tmp_path / "out")
    (tmp_path / "x").mkdir()
    if how == "symlink":
        target.symlink_to(source)
    elif how == "hard link":
        target.hardlink_to(source)
    before = source.read_bytes()
    result = farthing("batch", str(source), str(target), "-m", "/no/such/model")
    assert result.returncode == 2
    assert "the output is the input" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert source.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("absent", "out", "there is no such file"),
        ("folder", "out", "the input must be a file"),
        ("in", "folder", "the output must be a file"),
        ("in", "absent/out", "No such file or directory"),
        ("in", "notes", "is no line of a batch's output"),
    ],
)
def test_files_that_cannot_be_used_are_told_before_a_model_is_looked_for(
    farthing: CommandLine, tmp_path: Path, source: str, target: str, text: str
) -> None:
    write_lines(tmp_path / "in", many(1))
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes").write_text("precious\n")
    result = farthing(
        "batch", str(tmp_path / source), str(tmp_path / target), "-m", "/no/such/model"
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert (tmp_path / "notes").read_text() == "precious\n"


def test_a_model_that_is_not_there_leaves_no_output(farthing: CommandLine, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", many(1))
    result = farthing("batch", str(source), str(tmp_path / "out"), "-m", "/no/such/model")
    assert result.returncode == 2
    assert "/no/such/model" in result.stderr
    assert not (tmp_path / "out").exists()


def test_names_that_requests_may_ask_for(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    names = [tiny_model, Path(tiny_model).name, "gpt-4o-mini", "another"]
    lines = [completion(name, max_tokens=1, model=name) for name in names]
    source, target = write_lines(tmp_path / "in", lines), tmp_path / "out"
    command = ("batch", str(source), str(target), "-m", tiny_model)
    farthing(*command, "--served-model-name", "gpt-4o-mini")
    found = by_custom_id(read_output(target))
    for name in names[:3]:
        assert answer(found[name])["model"] == name
    told = error(found["another"])
    assert (told["param"], told["code"]) == ("model", "model_not_found")
    assert "'gpt-4o-mini'" in told["message"]


@pytest.mark.parametrize(
    "options",
    [
        ("--max-num-seqs", "1"),
        ("--threads", "2"),
        ("--batching", "static"),
        ("--kv", "contiguous", "--max-model-len", "256", "--kv-cache-tokens", "1024"),
        ("--no-cache",),
        ("--no-prefix-caching",),
        ("--kv-cache-memory-bytes", "100000"),
    ],
    ids=lambda options: options[0],
)
def test_how_it_is_computed_changes_nothing(
    farthing: CommandLine, tiny_model: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    source = write_lines(tmp_path / "in", many(5))
    for target, further in (("plain", ()), ("out", options)):
        command = ("batch", str(source), str(tmp_path / target), "-m", tiny_model)
        assert farthing(*command, *further).returncode == 0
    assert answers(tmp_path / "plain") == answers(tmp_path / "out")
    order = [record["custom_id"] for record in read_output(tmp_path / "out")]
    assert options[0] != "--max-num-seqs" or order == [f"r{i}" for i in range(5)]


def test_lines_share_what_was_read_only_with_those_of_their_salt(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    prompt = "a prompt that is long enough to fill a block and more " * 2
    salts = ["me", "you", "me", None]
    lines = [
        completion(f"r{i}", prompt, max_tokens=1, user=f"u{i}", priority=i, cache_salt=salt)
        for i, salt in enumerate(salts)
    ]
    source = write_lines(tmp_path / "in", lines)
    command = ("batch", str(source), str(tmp_path / "out"), "-m", tiny_model, "--max-num-seqs", "1")
    assert farthing(*command).returncode == 0
    usages = {r["custom_id"]: r["response"]["body"]["usage"] for r in read_output(tmp_path / "out")}
    cached = {name: u["prompt_tokens_details"]["cached_tokens"] for name, u in usages.items()}
    assert [cached[f"r{i}"] > 0 for i in range(4)] == [False, False, True, False]


def test_a_contiguous_cache_tells_its_waste(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "in", many(3))
    command = ("batch", str(source), str(tmp_path / "out"), "-m", tiny_model, "--kv", "contiguous")
    result = farthing(*command, "--max-model-len", "256", "--kv-cache-tokens", "1024")
    waste = re.search(r"([\d.]+)% of the reserved KV cache held nothing", result.stderr)
    assert waste is not None, result.stderr
    assert 50 < float(waste[1]) < 100, "prompts of a few tokens, answers of 100, in slots of 256"


def test_prefixes_are_kept_from_one_run_to_the_next(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "in", many(3))
    command = ("batch", str(source), "-m", tiny_model, "--json")
    runs = []
    for target in ("first", "second"):
        result = farthing(
            *command[:2],
            str(tmp_path / target),
            *command[2:],
            "--prefix-cache",
            str(tmp_path / "kept"),
        )
        assert result.returncode == 0, result.stderr
        runs.append(json.loads(result.stdout))
    assert runs[1]["cached_tokens"] > runs[0]["cached_tokens"]
    assert answers(tmp_path / "first") == answers(tmp_path / "second")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_interrupted_it_goes_on_where_it_stopped(
    farthing: CommandLine,
    environment: dict[str, str],
    tiny_model: str,
    tmp_path: Path,
    number: signal.Signals,
    status: int,
) -> None:
    lines = many(200)
    lines[3:3] = [b"nonsense", completion("r0")]
    source, target = write_lines(tmp_path / "in", lines), tmp_path / "out"
    command = (str(source), str(target), "-m", tiny_model, "--max-num-seqs", "8")
    process = start(environment, *command)
    wait_for_lines(target, 6)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (status, "")
    if number is not signal.SIGKILL:
        said = stderr.splitlines()
        assert SUMMARY.fullmatch(said[-2])
        assert said[-1].startswith(f"Stopped by {number.name} after ")
        assert said[-1].endswith(" of 202 lines; the same command goes on from there")
    first = target.read_bytes().split(b"\n")[:-1]
    assert 6 <= len(first) < 202
    assert farthing("batch", *command).returncode == 0
    assert target.read_bytes().split(b"\n")[: len(first)] == first
    records = read_output(target)
    assert len(records) == 202
    good = [record for record in records if record["response"]["status_code"] == 200]
    assert len(by_custom_id(good)) == 200
    whole = tmp_path / "whole"
    assert farthing("batch", str(source), str(whole), "-m", tiny_model).returncode == 0
    expected = [r for r in read_output(whole) if r["response"]["status_code"] == 200]
    assert {r["custom_id"]: answer(r) for r in good} == {
        r["custom_id"]: answer(r) for r in expected
    }


def test_a_full_disk_is_named_and_leaves_whole_lines(
    farthing: CommandLine, environment: dict[str, str], tiny_model: str, tmp_path: Path
) -> None:
    source, target = write_lines(tmp_path / "in", many(30)), tmp_path / "out"
    command = (str(source), str(target), "-m", tiny_model)
    process = start(environment, *command, limit=6000)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, "")
    assert "the file may not become larger; all lines in it are whole" in stderr
    assert str(target) in stderr
    assert 0 < len(read_output(target)) < 30
    assert farthing("batch", *command).returncode == 0
    assert len(by_custom_id(read_output(target))) == 30


def test_a_terminal_gets_a_bar(
    environment: dict[str, str], tiny_model: str, tmp_path: Path
) -> None:
    source, target = write_lines(tmp_path / "in", [b"?", *many(60)]), tmp_path / "out"
    command = [*COMMAND, "batch", str(source), str(target), "-m", tiny_model]
    with PtyProcess(command, environment) as terminal:
        terminal.expect(r"\d+ of 61 lines · [\d,.]+ tokens/s · 1 error")
        terminal.expect(SUMMARY.pattern)
        assert terminal.wait() == 0
    assert len(read_output(target)) == 61


def test_where_nobody_sees_a_bar_ten_lines_tell(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    lines = [completion(str(i), max_tokens=1) for i in range(100)]
    source = write_lines(tmp_path / "in", lines)
    said = farthing("batch", str(source), str(tmp_path / "out"), "-m", tiny_model).stderr
    told = [int(line.split()[0]) for line in said.splitlines()[:-1]]
    assert len(told) == 10
    assert told == sorted(told)
    assert told[-1] == 100


def test_an_empty_input_has_nothing_to_answer(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"\n\n")
    result = farthing("batch", str(source), str(tmp_path / "out"), "-m", tiny_model)
    assert result.returncode == 0
    assert result.stderr.startswith("0 requests · 0 errors · ")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_real_model_answers_as_it_does_alone(
    farthing: CommandLine, environment: dict[str, str], qwen_gguf: Path, tmp_path: Path
) -> None:
    questions = ["What is a farthing?", "Write a haiku about bread.", "2 + 2 = ?", "Say one word."]
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "logprobs": True}
    form = {"response_format": {"type": "json_object"}}
    lines = [chat(f"q{i}", q, **fields) for i, q in enumerate(questions)]
    lines.append(chat("json", "A farthing in JSON.", **fields, **form))
    source, target = write_lines(tmp_path / "in", lines), tmp_path / "out"
    environment = {**environment, "FARTHING_MODEL_PATH": os.environ["FARTHING_MODEL_PATH"]}
    result = CommandLine(environment).process("batch", str(source), str(target))
    assert result.returncode == 0, result.stderr
    found = by_custom_id(read_output(target))
    llm = LLM(qwen_gguf)
    params = SamplingParams(temperature=0, max_tokens=24, logprobs=0)
    for index, question in enumerate(questions):
        (output,) = llm.chat([{"role": "user", "content": question}], params)
        (choice,) = answer(found[f"q{index}"])["choices"]
        assert choice["message"]["content"] == output.outputs[0].text
        logprobs = output.outputs[0].logprobs
        assert logprobs is not None
        assert [each["logprob"] for each in choice["logprobs"]["content"]] == [
            next(iter(entry.values())).logprob for entry in logprobs
        ]
    assert answer(found["json"])["choices"][0]["message"]["content"].lstrip().startswith("{")
