"""Ctrl-C at any line of the engine, and the ``LLM`` that goes on after it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import farthing.engine
from farthing import LLM, CompletionOutput, SamplingParams
from support.tiny_models import make_tiny_model

ENGINE = str(Path(farthing.engine.__file__).parent)
BOOKS = tuple(
    f"{ENGINE}/{name}.py"
    for name in (
        *("engine", "scheduler", "waiting_queue", "fair_share", "deadlines", "prefill"),
        *("block_pool", "paged_kv", "prefix_cache", "output_processor", "metrics"),
    )
)
PROMPTS = [list(range(10, 10 + length)) for length in (16, 32, 5, 33)]
PARAMS = [
    SamplingParams(temperature=1, seed=i, max_tokens=20, ignore_eos=True, n=1 + 2 * (i == 1))
    for i in range(4)
]
INTERRUPTS = 120


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class InterruptedLine:
    """While entered, sends SIGINT at the ``at``-th line of the engine that the thread reaches."""

    def __init__(self, at: int) -> None:
        self.lines = 0
        self._at = at

    def __enter__(self) -> InterruptedLine:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        return self._line if frame.f_code.co_filename in BOOKS else None

    def _line(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self._at:
                signal.raise_signal(signal.SIGINT)
        return self._line


def generate(llm: LLM) -> list[list[CompletionOutput]]:
    return [output.outputs for output in llm.generate(PROMPTS, PARAMS)]


@pytest.mark.parametrize("kv_cache_tokens", [2048, 96])  # the second makes requests give way
def test_whoever_is_interrupted_leaves_an_engine_that_is_whole(
    directory: Path, kv_cache_tokens: int
) -> None:
    llm = LLM(
        directory,
        num_threads=1,
        max_model_len=64,
        max_num_batched_tokens=24,
        kv_cache_tokens=kv_cache_tokens,
    )
    expected = generate(llm)
    with InterruptedLine(0) as line:
        assert generate(llm) == expected
    assert line.lines > 10 * INTERRUPTS
    for at in range(1, line.lines, line.lines // INTERRUPTS):
        with pytest.raises(KeyboardInterrupt), InterruptedLine(at):
            generate(llm)
        llm.engine.check_integrity()
        assert not llm.engine.has_work
        assert llm.engine.kv.usage([]).held_blocks == 0
        assert not llm._loop._processors
        assert generate(llm) == expected
    assert (llm.engine.metrics.preemptions > 0) == (kv_cache_tokens < 2048)
