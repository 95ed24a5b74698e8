"""Traces: what is read, when requests come, what is made of their times."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from farthing.bench.trace import (
    RequestTimes,
    TraceRequest,
    all_at_once,
    poisson,
    read_trace,
    summarize,
)
from farthing.errors import InvalidParameterError

ONE = {"prompt": "Hello", "max_tokens": 3}


def test_lists_and_lines_are_read(tmp_path: Path) -> None:
    two = {"prompt": "You", "max_tokens": 1, "ignore_eos": False, "id": 7, "arrival": 1.5}
    expected = [TraceRequest("Hello", 3, True), TraceRequest("You", 1, False, 1.5)]
    path = tmp_path / "trace"
    path.write_text(json.dumps([ONE, two]))
    assert read_trace(path) == expected
    path.write_text(f"{json.dumps(ONE)}\n\n{json.dumps(two)}\n")
    assert read_trace(path) == expected


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_separators_of_lines_within_a_prompt_end_no_line(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    prompt = f"One{separator}two"
    line = json.dumps({**ONE, "prompt": prompt}, ensure_ascii=False)
    path.write_bytes(f"{line}\r\n{line}".encode())
    assert read_trace(path) == [TraceRequest(prompt, 3, True)] * 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no requests"),
        ("[]", "has no requests"),
        ("{", "line 1: Expecting property name"),
        (f"{json.dumps(ONE)}\n\n{{", "line 3: Expecting property name"),
        ("[" * 100_000, "nested too deep"),
        ("[1]", "request 0 must have a prompt"),
        (json.dumps([ONE, {**ONE, "prompt": ""}]), "request 1 must have a prompt"),
        (json.dumps([{**ONE, "max_tokens": 0}]), "request 0"),
        (json.dumps([{**ONE, "max_tokens": True}]), "request 0"),
        (json.dumps([{**ONE, "max_tokens": 1.5}]), "request 0"),
        (json.dumps([{**ONE, "ignore_eos": 1}]), "request 0"),
        (json.dumps([{**ONE, "arrival": -1}]), "request 0"),
        (json.dumps([{**ONE, "arrival": True}]), "request 0"),
        (json.dumps([{**ONE, "arrival": float("inf")}]), "request 0"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(InvalidParameterError, match=f"--trace {path}: .*{problem}"):
        read_trace(path)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'[{"prompt": "\xff"}]')
    with pytest.raises(InvalidParameterError, match="byte 13 is not UTF-8"):
        read_trace(path)


def test_poisson_arrivals_have_the_rate_and_the_spread_and_follow_the_seed() -> None:
    arrivals = poisson(20_000, 4.0, seed=1)
    gaps = np.diff([0.0, *arrivals])
    assert (gaps >= 0).all()
    # Mean and deviation of exponential gaps are equal; 5 standard errors of 20,000 of them.
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=5 / 20_000**0.5)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=10 / 20_000**0.5)
    assert arrivals == poisson(20_000, 4.0, seed=1) != poisson(20_000, 4.0, seed=2)
    assert all_at_once(3) == [0, 0, 0]


def test_a_summary_is_what_users_saw() -> None:
    times = [RequestTimes(1.0, 1.5, 3.0, 10), RequestTimes(2.0, 4.0, 5.0, 5)]
    summary = summarize(times)
    assert (summary.requests, summary.tokens, summary.seconds) == (2, 15, 4.0)
    assert (summary.first_token_mean, summary.latency_mean) == (1.25, 2.5)
    assert summary.tokens_s == 3.75
    assert summary.requests_s == 0.5
    assert summary.first_token_p95 == pytest.approx(0.5 + 0.95 * 1.5)
    assert summary.as_json()["p95_e2el_s"] == pytest.approx(2.0 + 0.95)
