"""A batch over a model: every line answered, each as if it were alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, RequestOutput, SamplingParams
from farthing.batch.output import open_output
from farthing.batch.run import MAX_UNKNOWN_FIELDS, BatchRun, Counts
from farthing.openai_protocol.names import ModelNames
from support.bad_lines import bad_lines
from support.batches import answer, by_custom_id, chat, completion, error, read_output, write_lines

NAMES = ModelNames(["tiny"])
BAD = bad_lines("bad", "first")


class LeaveError(Exception):
    """The run is ended from outside."""


def run(
    llm: LLM, source: Path, target: Path, *, leave_after: int | None = None, retry: bool = False
) -> tuple[Counts, list[str]]:
    """One run; its counts and notes. Left after so many lines of it are finished."""
    notes: list[str] = []

    def watch(counts: Counts) -> None:
        if leave_after is not None and counts.answered + counts.errors >= leave_after:
            raise LeaveError

    with open_output(target, retry_errors=retry) as output:
        batch = BatchRun(llm, NAMES, output, watch=watch, note=notes.append)
        if leave_after is None:
            batch.run(source)
        else:
            with pytest.raises(LeaveError):
                batch.run(source)
    return batch.counts, notes


def request(index: int) -> tuple[bytes, str, SamplingParams]:
    """A good line of its own length, sampling and form; its prompt and parameters."""
    fields: dict[str, Any] = {
        "max_tokens": 1 + index * 7 % 13,
        "temperature": (index % 3) / 2,
        "seed": index,
        "ignore_eos": index % 2 == 0,
    }
    params = SamplingParams(**fields)
    prompt = "penny " * (index % 6) + f"line {index}"
    if index % 5 == 0:
        fields["n"] = 1 + index % 3
        params = SamplingParams(**fields)
    make = chat if index % 4 == 0 else completion
    return make(f"r{index}", prompt, **fields), prompt, params


def expected(llm: LLM, index: int) -> RequestOutput:
    """What the LLM alone answers to ``request(index)``."""
    _, prompt, params = request(index)
    if index % 4 == 0:
        return llm.chat([{"role": "user", "content": prompt}], params)[0]
    return llm.generate(prompt, params)[0]


def texts_of(body: dict[str, Any]) -> list[str]:
    choices = body["choices"]
    return [c["message"]["content"] if "message" in c else c["text"] for c in choices]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_line_gets_a_line_that_says_why(llm: LLM, tmp_path: Path, kind: str) -> None:
    bad = BAD[kind]
    good = completion("first", max_tokens=2), completion("last", "Two", max_tokens=2)
    source = write_lines(tmp_path / "in", [good[0], bad.raw, good[1]])
    counts, _ = run(llm, source, tmp_path / "out")
    records = read_output(tmp_path / "out")
    assert (counts.answered, counts.errors, counts.finished) == (2, 1, 3)
    (told,) = [record for record in records if record["response"]["status_code"] != 200]
    names = "first" if kind == "custom_id again" else "bad"
    assert told["custom_id"] == (names if bad.named else None)
    assert told["response"]["status_code"] == bad.status
    found = error(told)
    assert found["code"] == bad.code
    assert found["message"].startswith("line 2: ")
    assert bad.text in found["message"]
    assert len(found["message"].splitlines()) == 1
    assert "Z" * 65 not in json.dumps(told)
    assert "9" * 65 not in json.dumps(told)
    assert sorted(r["custom_id"] for r in records if r is not told) == ["first", "last"]
    before = (tmp_path / "out").read_bytes()
    counts, _ = run(llm, source, tmp_path / "out")
    assert (counts.answered, counts.errors, counts.earlier) == (0, 0, 3)
    assert (tmp_path / "out").read_bytes() == before


def test_two_hundred_lines_every_seventh_bad(llm: LLM, tmp_path: Path) -> None:
    lines, wrong = [], {}
    for index in range(200):
        if index % 7 == 6:
            kinds = bad_lines(f"bad{index}", "r0")
            kind = list(kinds)[index // 7 % len(kinds)]
            wrong[index + 1] = kinds[kind]
            lines.append(kinds[kind].raw)
        else:
            lines.append(request(index)[0])
    source = write_lines(tmp_path / "in", lines)
    counts, _ = run(llm, source, tmp_path / "out")
    records = read_output(tmp_path / "out")
    assert len(records) == 200
    assert (counts.answered, counts.errors) == (172, 28)
    told = {
        int(error(record)["message"].split(":")[0].removeprefix("line ")): record
        for record in records
        if record["response"]["status_code"] != 200
    }
    assert told.keys() == wrong.keys()
    for number, bad in wrong.items():
        assert told[number]["response"]["status_code"] == bad.status
        assert bad.text in error(told[number])["message"]
    good = by_custom_id(r for r in records if r["response"]["status_code"] == 200)
    prompt_tokens = completion_tokens = 0
    for index in range(200):
        if index % 7 == 6:
            continue
        body = answer(good.pop(f"r{index}"))
        output = expected(llm, index)
        assert texts_of(body) == [each.text for each in output.outputs]
        assert [c["finish_reason"] for c in body["choices"]] == [
            each.finish_reason for each in output.outputs
        ]
        assert body["usage"]["prompt_tokens"] == len(output.prompt_token_ids)
        generated = sum(len(each.token_ids) for each in output.outputs)
        assert body["usage"]["completion_tokens"] == generated
        prompt_tokens += len(output.prompt_token_ids)
        completion_tokens += generated
    assert not good
    assert (counts.prompt_tokens, counts.completion_tokens) == (prompt_tokens, completion_tokens)


def test_log_probabilities_are_the_same_bits_as_alone(llm: LLM, tmp_path: Path) -> None:
    fields = {"max_tokens": 9, "temperature": 1.1, "logprobs": 3, "ignore_eos": True}
    prompts = [f"line {index}" for index in range(20)]
    lines = [completion(p, p, seed=index, **fields) for index, p in enumerate(prompts)]
    run(llm, write_lines(tmp_path / "in", lines), tmp_path / "out")
    found = by_custom_id(read_output(tmp_path / "out"))
    for index, prompt in enumerate(prompts):
        (output,) = llm.generate(prompt, SamplingParams(seed=index, **fields))  # type: ignore[arg-type]
        values = answer(found[prompt])["choices"][0]["logprobs"]["token_logprobs"]
        logprobs = output.outputs[0].logprobs
        assert logprobs is not None
        assert values == [next(iter(entry.values())).logprob for entry in logprobs]


@pytest.mark.parametrize("leave_after", [1, 5, 11])
def test_a_run_that_was_left_is_gone_on_with(llm: LLM, tmp_path: Path, leave_after: int) -> None:
    bad = bad_lines("bad", "r0")
    lines = [request(index)[0] for index in range(24)]
    lines[5:5] = [bad["J1 no JSON"].raw, bad["custom_id again"].raw, bad["S2"].raw, b""]
    source = write_lines(tmp_path / "in", lines)
    run(llm, source, tmp_path / "whole")
    run(llm, source, tmp_path / "out", leave_after=leave_after)
    first = read_output(tmp_path / "out")
    assert leave_after <= len(first) < 27
    counts, _ = run(llm, source, tmp_path / "out")
    assert counts.earlier == len(first)
    assert counts.finished == 27
    records = read_output(tmp_path / "out")
    assert records[: len(first)] == first

    def said(path: Path) -> dict[str, Any]:
        return {
            record["id"]: answer(record)
            if record["response"]["status_code"] == 200
            else error(record)
            for record in read_output(path)
        }

    assert said(tmp_path / "out") == said(tmp_path / "whole")
    assert not llm.engine.has_work


def test_lines_are_found_again_wherever_they_are(llm: LLM, tmp_path: Path) -> None:
    lines = [request(index)[0] for index in range(9)]
    run(llm, write_lines(tmp_path / "in", lines[:6]), tmp_path / "out")
    counts, _ = run(llm, write_lines(tmp_path / "in", lines[::-1]), tmp_path / "out")
    assert (counts.earlier, counts.answered) == (6, 3)
    assert len(by_custom_id(read_output(tmp_path / "out"))) == 9


def test_errors_stay_until_they_are_to_be_tried_again(llm: LLM, tmp_path: Path) -> None:
    wrong = completion("a", max_tokens=0), b"no JSON", completion("b", max_tokens=2)
    right = completion("a", max_tokens=2), completion("c", max_tokens=2), wrong[2]
    run(llm, write_lines(tmp_path / "in", wrong), tmp_path / "out")
    source = write_lines(tmp_path / "in", right)
    counts, _ = run(llm, source, tmp_path / "out")
    assert (counts.earlier, counts.answered, counts.errors) == (2, 1, 0)
    assert len(read_output(tmp_path / "out")) == 4
    counts, _ = run(llm, source, tmp_path / "out", retry=True)
    assert (counts.earlier, counts.answered, counts.errors) == (2, 1, 0)
    found = by_custom_id(read_output(tmp_path / "out"))
    assert {record["response"]["status_code"] for record in found.values()} == {200}
    assert sorted(found) == ["a", "b", "c"]


def test_answers_come_as_they_end(llm: LLM, tmp_path: Path) -> None:
    lines = [
        completion("long", max_tokens=60, ignore_eos=True),
        completion("short", max_tokens=2, ignore_eos=True),
    ]
    run(llm, write_lines(tmp_path / "in", lines), tmp_path / "out")
    assert [r["custom_id"] for r in read_output(tmp_path / "out")] == ["short", "long"]


def test_the_prompts_of_a_line_are_answered_in_their_order(llm: LLM, tmp_path: Path) -> None:
    prompts = [f"{'bread ' * (index % 5)}number {index}" for index in range(20)]
    fields = {"max_tokens": 30, "temperature": 1.0, "seed": 3}  # they end when they like
    source = write_lines(tmp_path / "in", [completion("a", prompts, **fields)])
    counts, _ = run(llm, source, tmp_path / "out")
    (record,) = read_output(tmp_path / "out")
    outputs = llm.generate(prompts, SamplingParams(**fields))  # type: ignore[arg-type]
    texts = [output.outputs[0].text for output in outputs]
    assert len(set(texts)) == 20
    assert [choice["text"] for choice in answer(record)["choices"]] == texts
    assert counts.answered == 1
    assert counts.prompt_tokens == sum(len(output.prompt_token_ids) for output in outputs)


def test_lines_that_need_no_model_can_be_left_too(llm: LLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", [b"nonsense"] * 50)
    counts, _ = run(llm, source, tmp_path / "out", leave_after=7)
    assert counts.errors == len(read_output(tmp_path / "out")) == 7
    counts, _ = run(llm, source, tmp_path / "out")
    assert (counts.earlier, counts.errors) == (7, 43)


def test_the_file_is_read_as_places_come_free(
    llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = read = 0
    original = BatchRun._begin

    def begin(self: BatchRun, line: Any) -> Any:
        nonlocal ahead, read
        read += 1
        ahead = max(ahead, read - self.counts.finished)
        return original(self, line)

    monkeypatch.setattr(BatchRun, "_begin", begin)
    lines = [completion(str(i), max_tokens=1 + i % 5) for i in range(100)]
    run(llm, write_lines(tmp_path / "in", lines), tmp_path / "out")
    assert read == 100
    assert ahead <= 9, "eight places and the line that waits for one"


def test_unknown_fields_are_told_of_once(llm: LLM, tmp_path: Path) -> None:
    lines = [completion(str(i), max_tokens=1, mood=1, user="me") for i in range(3)]
    lines.append(completion("many", max_tokens=1, **{f"field{i}": 1 for i in range(99)}))
    counts, notes = run(llm, write_lines(tmp_path / "in", lines), tmp_path / "out")
    assert counts.answered == 4
    assert notes[0] == "line 1: unknown fields are left out: 'mood'"
    assert len(notes) == MAX_UNKNOWN_FIELDS
    assert len([note for note in notes if "mood" in note]) == 1


def test_a_failing_output_ends_the_run(llm: LLM, tmp_path: Path) -> None:
    from farthing.errors import FarthingError
    from support.full_disk import files_of_at_most

    source = write_lines(tmp_path / "in", [request(index)[0] for index in range(12)])
    with files_of_at_most(2500), pytest.raises(FarthingError, match="all lines in it are whole"):
        run(llm, source, tmp_path / "out")
    assert 0 < len(read_output(tmp_path / "out")) < 12
    counts, _ = run(llm, source, tmp_path / "out")
    assert counts.finished == 12
    assert len(by_custom_id(read_output(tmp_path / "out"))) == 12
