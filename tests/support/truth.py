"""transformers as the truth: its models in float32, and in float64 throughout.

Tolerances are not chosen. A candidate's error against float64 may be at most twice the error that
transformers' own float32 run makes on the same input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

FLOAT64_PER_FLOAT32 = 2.0**-20
"""float64 has 29 bits more than float32; nine are left to luck, such as how the few frequencies of
a rotary embedding round. One float32 operation among float64 ones fails this by far."""


def load_transformers(directory: Path, *, as_it_is: bool = False) -> torch.nn.Module:
    """The model of ``directory`` in float32.

    transformers chooses the factors of longrope by the current length of each sequence, Farthing
    once, by the context that a model is run with. So unless ``as_it_is``, transformers is given
    the factors for the whole context in both places.
    """
    config = transformers.AutoConfig.from_pretrained(directory)
    rope = config.rope_parameters
    if rope.get("rope_type") == "longrope" and not as_it_is:
        long = config.max_position_embeddings > rope["original_max_position_embeddings"]
        factors = rope["long_factor" if long else "short_factor"]
        rope |= {"long_factor": factors, "short_factor": factors}
    model: torch.nn.Module = transformers.AutoModelForCausalLM.from_pretrained(
        directory,
        config=config,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",  # the others take no float64
    )
    return model.eval()


def in_float64(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of ``model`` with float64 weights, rotary frequencies and constants."""
    double = deepcopy(model).double()
    with float32_means_float64():
        for parent in list(double.modules()):
            for name, child in list(parent.named_children()):
                if name == "rotary_emb":
                    setattr(parent, name, type(child)(child.config))
                if hasattr(child, "scalar_embed_scale"):
                    child.embed_scale = torch.tensor(child.scalar_embed_scale, dtype=torch.double)
    return double


@contextmanager
def float32_means_float64() -> Iterator[None]:
    """Makes code that converts to float32 on purpose (norms, softmax, rope) stay in float64."""
    with (
        patch.object(torch, "float32", torch.float64),
        patch.object(torch, "float", torch.float64),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tiny products only lose time on several threads, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def logits(model: torch.nn.Module, tokens: Sequence[int]) -> NDArray[np.float64]:
    """Logits (T, vocab) of one sequence, in the model's own precision, as float64."""
    double = next(model.parameters()).dtype == torch.float64
    with torch.no_grad(), _one_thread(), float32_means_float64() if double else nullcontext():
        result: torch.Tensor = model(torch.tensor([list(tokens)]), use_cache=False).logits[0]
    assert result.dtype == (torch.float64 if double else torch.float32)
    return np.asarray(result.double().numpy(), np.float64)


def assert_greedy(model: torch.nn.Module, prompt: Sequence[int], generated: Sequence[int]) -> None:
    """Asserts that ``generated`` are the most likely next tokens after ``prompt``, end tokens too.

    One pass shows it: each token must be the most likely one after the prompt and those before it,
    so ``model`` would have generated them one after the other.
    """
    likely = logits(model, [*prompt, *generated[:-1]])[len(prompt) - 1 :].argmax(axis=1)
    assert list(generated) == likely.tolist()


def assert_within_yardstick(
    candidate: NDArray[np.floating],
    float32: NDArray[np.floating],
    truth: NDArray[np.float64],
) -> None:
    """Asserts that ``candidate`` errs at most twice as much as ``float32``, largest and RMS."""
    _assert_errors(candidate, truth, float32, 2.0)


def assert_equal_in_float64(
    candidate: NDArray[np.floating],
    float32: NDArray[np.floating],
    truth: NDArray[np.float64],
) -> None:
    """Asserts that ``candidate`` errs 2^20 times less than ``float32``, largest and RMS."""
    _assert_errors(candidate, truth, float32, FLOAT64_PER_FLOAT32)


def _assert_errors(
    candidate: NDArray[np.floating],
    truth: NDArray[np.float64],
    float32: NDArray[np.floating],
    factor: float,
) -> None:
    assert candidate.shape == truth.shape == float32.shape
    assert truth.std() > 0.1, "degenerate truth: any answer would pass"
    for measure in (_largest, _rms):
        error, allowed = measure(candidate - truth), factor * measure(float32 - truth)
        assert error <= allowed, f"{measure.__name__} error {error:.3g}, allowed {allowed:.3g}"


def _largest(error: NDArray[np.floating]) -> float:
    return float(np.abs(error).max())


def _rms(error: NDArray[np.floating]) -> float:
    return float(np.sqrt(np.mean(np.square(error, dtype=np.float64))))
