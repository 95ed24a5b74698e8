"""The same through ``LLM``: generate, stream, and callers in several threads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, RequestOutput, SamplingParams, StreamChunk, StructuredOutputsParams
from farthing.program.kv_types import KvDtype
from farthing.program.native import NativeExecutor
from support.engine_grid import Grid
from support.recorded_logits import RecordingRunner

LENGTH = 18
PROMPTS = (
    "The miller weighs the flour, the baker weighs the bread",
    "1 + 1 = 2, 12 + 30 =",
    "The miller weighs the flour, and",
    "def reverse(node):",
    "The miller weighs the flour, the baker weighs the bread",
    "x",
    "a farthing is",
)


def _params(**own: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": LENGTH, "ignore_eos": True, "logprobs": 2, **own})


PARAMS = (
    _params(temperature=0),
    _params(temperature=0, logprobs=None),
    _params(seed=1, top_p=0.9),
    _params(seed=2, n=3),
    _params(seed=3, prompt_logprobs=1),
    _params(seed=4, stop=["a", "e"], logprobs=None),
    _params(
        seed=5,
        ignore_eos=False,
        structured_outputs=StructuredOutputsParams(regex="(penny|farthing)( and (penny|pound))+"),
    ),
)


@dataclass
class Recorded:
    """A model whose runner keeps the bits of what it draws from."""

    llm: LLM
    runner: RecordingRunner = field(init=False)

    def __post_init__(self) -> None:
        engine, given = self.llm.engine, self.llm.runner.executor
        # A row of which the token is wanted is asked for its logits, too.
        roomier = NativeExecutor(
            given.program,
            given.weights,
            num_threads=given.num_threads,
            max_rows=2 * given.max_rows,
        )
        self.runner = RecordingRunner(roomier, self.llm.runner.kv, every_row=False)
        self.runner.poison_for(engine.scheduler, engine.prefix_cache)
        engine.runner = self.runner

    def generate(self, prompts: list[str], params: list[SamplingParams]) -> list[object]:
        """All that each prompt gave."""
        return [self.all_of(output) for output in self.llm.generate(prompts, params)]

    def all_of(self, output: RequestOutput) -> object:
        """Whatever there is to compare, to the bit."""
        assert output.error is None
        choices = []
        for choice in output.outputs:
            name = output.request_id + (f"-{choice.index}" if choice.index else "")
            rows = self.runner.executor.rows[name]
            first = len(output.prompt_token_ids) - 1
            drawn = [rows[first + i] for i in range(len(choice.token_ids))]
            ended = (choice.finish_reason, choice.stop_reason)
            choices.append((choice.text, choice.token_ids, choice.logprobs, drawn, ended))
        return output.prompt_logprobs, choices


@pytest.fixture(scope="module", params=["qwen2-fp16", "gemma2-int8", "qwen2-k8v4"])
def path_and_dtype(
    request: pytest.FixtureRequest, make_grid: Callable[[tuple[str, KvDtype]], Grid]
) -> tuple[Path, KvDtype]:
    name, dtype = request.param.split("-")
    return make_grid((name, dtype)).model.path, dtype


@pytest.fixture(scope="module")
def new(path_and_dtype: tuple[Path, KvDtype]) -> Callable[..., Recorded]:
    path, dtype = path_and_dtype

    def make(**settings: Any) -> Recorded:
        given = {"max_model_len": 128, "kv_cache_tokens": 2048, "num_threads": 2, **settings}
        return Recorded(LLM(path, kv_cache_dtype=dtype, **given))

    return make


@pytest.fixture(scope="module")
def alone(new: Callable[..., Recorded]) -> list[object]:
    recorded = new(num_threads=1, enable_prefix_caching=False)
    found = [
        recorded.generate([prompt], [params])[0]
        for prompt, params in zip(PROMPTS, PARAMS, strict=True)
    ]
    assert len({str(each) for each in found}) == len(found)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_threads": 3},
        {"max_num_batched_tokens": 16},
        {"max_num_batched_tokens": 1},
        {"enable_prefix_caching": False},
        {"kv_cache_tokens": 128},
        {"batching": "static", "max_num_seqs": 4},
        {"kv": "contiguous"},
        {"kv": "contiguous", "batching": "static", "kv_cache_tokens": 512},
        {"use_cache": False},
    ],
    ids=str,
)
def test_in_any_order_beside_others_cold_and_warm(
    new: Callable[..., Recorded], alone: list[object], settings: dict[str, Any]
) -> None:
    recorded = new(**settings)
    rng = random.Random(str(settings))
    for _ in range(3):
        order = [*range(len(PROMPTS)), *[-1] * 3]
        rng.shuffle(order)
        unseeded = _params(n=2, prompt_logprobs=0)
        found = recorded.generate(
            [PROMPTS[i] for i in order], [unseeded if i < 0 else PARAMS[i] for i in order]
        )
        for i, each in zip(order, found, strict=True):
            assert i < 0 or each == alone[i]
    recorded.llm.engine.check_integrity()


def test_streams_side_by_side_of_which_one_is_closed(
    new: Callable[..., Recorded], alone: list[Any]
) -> None:
    recorded = new()
    numbers = [0, 1, 2, 3, 5, 6]
    streams = {i: recorded.llm.stream(PROMPTS[i], PARAMS[i]) for i in numbers}
    closed = recorded.llm.stream(PROMPTS[4], _params(temperature=1.5, n=2))
    for _ in range(4):
        next(closed)
    parts: dict[int, list[StreamChunk]] = {i: [] for i in numbers}
    rounds = 0
    while streams:
        for i in list(streams):
            chunk = next(streams[i], None)
            if chunk is None:
                del streams[i]
            else:
                parts[i].append(chunk)
        rounds += 1
        if rounds == 3:
            closed.close()  # type: ignore[attr-defined]
            recorded.llm.engine.check_integrity()
    for i in numbers:
        for index, (text, tokens, logprobs, _, ended) in enumerate(alone[i][1]):
            own = [chunk for chunk in parts[i] if chunk.index == index]
            assert "".join(chunk.text for chunk in own) == text
            assert [token for chunk in own for token in chunk.token_ids] == tokens
            streamed = [entry for chunk in own for entry in chunk.logprobs or []]
            assert streamed == (logprobs or [])
            assert own[-1].finish_reason == ended[0]
    assert {"".join(c.text for c in parts[i]) for i in (0, 2)} != {""}


def test_callers_in_several_threads(new: Callable[..., Recorded], alone: list[object]) -> None:
    recorded = new()

    def ask(i: int) -> object:
        return recorded.generate([PROMPTS[i]], [PARAMS[i]])[0]

    order = list(range(len(PROMPTS))) * 3
    random.Random(1).shuffle(order)
    with ThreadPoolExecutor(6) as pool:
        found: Iterator[object] = pool.map(ask, order)
        for i, each in zip(order, found, strict=True):
            assert each == alone[i]
    recorded.llm.engine.check_integrity()
