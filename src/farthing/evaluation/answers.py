"""A battery put to a loaded model: greedy answers through the engine that serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.engine.build import EngineOptions, build_engine
from farthing.engine.in_flight import run_in_flight
from farthing.engine.loop import EngineLoop
from farthing.engine.model_loader import LoadedModel
from farthing.engine.output_processor import OutputProcessor
from farthing.errors import FarthingError
from farthing.evaluation.battery import MAX_ANSWER_TOKENS, STOP, Battery, is_right, prompt
from farthing.sampling.params import SamplingParams
from farthing.tokenization.tokenizer import Tokenizer

AT_A_TIME = 32
"""Questions that are answered together."""

Told = Callable[[int, int], None]
"""Is told of questions that have been answered, and of all."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What a model said to each question, in the battery's order."""

    texts: tuple[str, ...]
    right: NDArray[np.bool_]  # (questions,)


def longest_question(tokenizer: Tokenizer, battery: Battery) -> int:
    """Tokens that a question takes at most, its answer included."""
    return max(len(tokenizer.encode(prompt(item))) for item in battery.items) + MAX_ANSWER_TOKENS


def answer_params(repetition_penalty: float) -> SamplingParams:
    """Greedy, to the end of the line. Raises :class:`InvalidParameterError` for the penalty."""
    return SamplingParams(
        temperature=0,
        max_tokens=MAX_ANSWER_TOKENS,
        stop=[STOP],
        repetition_penalty=repetition_penalty,
    )


def answer(loaded: LoadedModel, battery: Battery, repetition_penalty: float, told: Told) -> Answers:
    """The model's greedy answers, of which the first line counts.

    A ``repetition_penalty`` of 1 is none, and then the answers are the likeliest tokens. Whatever
    the KV cache held is overwritten. Raises what ended an answer.
    """
    engine = build_engine(
        loaded,
        EngineOptions(
            max_num_seqs=AT_A_TIME, max_num_batched_tokens=loaded.runner.executor.max_rows
        ),
    )
    params = answer_params(repetition_penalty)

    def prepare(text: str, params: SamplingParams) -> list[OutputProcessor]:
        requests = engine.make_request(loaded.tokenizer.encode(text), params)
        return [OutputProcessor(request, text, loaded.tokenizer) for request in requests]

    count = len(battery.items)
    texts = [""] * count
    asked = ((i, prompt(item), params) for i, item in enumerate(battery.items))
    outputs = run_in_flight(EngineLoop(engine), asked, AT_A_TIME, prepare=prepare, on_pass=None)
    for done, (i, output) in enumerate(outputs, 1):
        if isinstance(output, Exception):
            raise output
        if output.error is not None:
            raise FarthingError(f"question {i + 1}: {output.error}")
        texts[i] = output.outputs[0].text.strip()
        told(done, count)
    right = [is_right(item, text) for item, text in zip(battery.items, texts, strict=True)]
    return Answers(tuple(texts), np.array(right))
