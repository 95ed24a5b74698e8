"""The promise, one sentence a test: the same bits however a sequence is computed.

Each test runs on tiny float models of every kind, on two with an adapter beside them (one of them
quantized) and, marked slow, on real quantized ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farthing import _native
from farthing.program.kv_types import KV_DTYPES, KvDtype
from farthing.program.step import SequenceRows
from support.kv_types import kv_type_params
from support.native_runs import NativeModel, assert_same_bits
from support.tiny_adapters import make_tiny_adapter
from support.tiny_gguf import write_gguf
from support.tiny_models import KINDS, make_tiny_model

REAL = {"qwen2.5-coder-0.5b": "qwen_gguf", "gemma-3-270m": "gemma_gguf"}
ADAPTED = {"qwen2-tied with adapter": "F32", "llama-mha in 8 bits with adapter": "Q8_0"}
KINDS_AND_REAL = [
    *KINDS,
    *ADAPTED,
    *(pytest.param(name, marks=pytest.mark.slow) for name in REAL),
]
CHUNKS = (1, 7, 16, 64)


@pytest.fixture(scope="module", params=KINDS_AND_REAL)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeModel:
    if request.param in REAL:
        return NativeModel(request.getfixturevalue(REAL[request.param]))
    path: Path = tmp_path_factory.mktemp("tiny")
    if request.param in ADAPTED:
        kind, scheme = request.param.partition(" ")[0], ADAPTED[request.param]
        base = make_tiny_model(kind, path)
        adapter = make_tiny_adapter(base, path / "adapter", "every layer and the output")
        return NativeModel(write_gguf(kind, base, path / "base.gguf", scheme), adapter)
    return NativeModel(make_tiny_model(request.param, path))


@pytest.fixture(scope="module")
def tokens(model: NativeModel) -> list[int]:
    """A sequence that ends in the middle of a block and of every chunk size."""
    rng = np.random.default_rng(7)
    return rng.integers(0, model.config.vocab_size, 105).tolist()


@pytest.fixture(scope="module")
def whole(model: NativeModel, tokens: list[int]) -> np.ndarray:
    return model.run().logits(tokens)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_prompt_in_chunks_gives_the_bits_of_the_whole(
    model: NativeModel, tokens: list[int], whole: np.ndarray, chunk: int
) -> None:
    assert_same_bits(model.run().logits(tokens, chunk), whole)


@pytest.mark.parametrize("kv_dtype", kv_type_params())
def test_cached_generation_gives_the_bits_of_recomputing_everything(
    model: NativeModel, tokens: list[int], kv_dtype: str
) -> None:
    prompt = tokens[:45]
    cached, cached_logits = model.run(kv_dtype=kv_dtype).greedy(prompt, 20)
    uncached, logits = model.run(kv_dtype=kv_dtype, seed=1).greedy(prompt, 20, use_cache=False)
    assert cached == uncached
    assert_same_bits(cached_logits, logits)


def test_a_sequence_in_a_batch_gives_the_bits_it_gives_alone(
    model: NativeModel, tokens: list[int], whole: np.ndarray
) -> None:
    rng = np.random.default_rng(8)
    others = [rng.integers(0, model.config.vocab_size, n).tolist() for n in (1, 17, 60, 33)]
    batch = [*others[:2], tokens, *others[2:]]
    for chunk in (1, 23):
        run = model.run(seed=2)
        assert_same_bits(run.batched_logits(batch, chunk)[2], whole)


def test_a_prompt_beside_decoding_neighbours_gives_the_same_bits(
    model: NativeModel, tokens: list[int], whole: np.ndarray
) -> None:
    run = model.run(seed=3)
    neighbour, own = run.new_sequence(64), run.new_sequence(len(tokens))
    run.step([SequenceRows(tokens[:20], 0, neighbour)])
    parts = []
    for i, start in enumerate(range(0, len(tokens), 30)):
        piece = tokens[start : start + 30]
        decode = SequenceRows([tokens[20 + i]], 20 + i, neighbour)
        _, logits = run.step([decode, SequenceRows(piece, start, own, logits=len(piece))])
        parts.append(logits)
    assert_same_bits(np.concatenate(parts), whole)


@pytest.mark.parametrize("num_threads", [1, 2, 3, 64])
def test_any_number_of_threads_gives_the_same_bits(
    model: NativeModel, tokens: list[int], whole: np.ndarray, num_threads: int
) -> None:
    run = model.run(num_threads=num_threads)
    part = tokens[:40] if model.config.num_layers > 8 else tokens
    assert_same_bits(run.logits(part, 9), whole[: len(part)])


@pytest.mark.parametrize("isa", _native.supported_isas())
def test_every_instruction_set_gives_the_same_bits(
    model: NativeModel, tokens: list[int], whole: np.ndarray, isa: str
) -> None:
    part = tokens[:20] if model.config.num_layers > 8 else tokens  # scalar code is slow
    assert_same_bits(model.run(isa=isa).logits(part, 11), whole[: len(part)])


def test_what_stood_in_the_cache_before_does_not_matter(
    model: NativeModel, tokens: list[int], whole: np.ndarray
) -> None:
    run = model.run(tokens=112)  # the pool holds this one sequence
    dirty = run.new_sequence(112)
    run.step([SequenceRows(tokens[::-1], 0, dirty)])
    logits = run.step([SequenceRows(tokens, 0, dirty, logits=len(tokens))])[0]
    assert_same_bits(logits, whole)


def test_a_changed_token_changes_the_bits_after_it_and_none_before(
    model: NativeModel, tokens: list[int], whole: np.ndarray
) -> None:
    """The inverse test: were the comparison blind, this one would fail."""
    config = model.config
    reach = len(tokens)  # where every layer slides, what is far enough behind no longer matters
    windows = [config.window(layer) for layer in range(config.num_layers)]
    if None not in windows:
        reach = 1 + sum(window - 1 for window in windows if window)
    changed = list(tokens)
    changed[50] = (changed[50] + 1) % config.vocab_size
    logits = model.run().logits(changed)
    assert_same_bits(logits[:50], whole[:50])
    assert (logits[50 : 50 + reach] != whole[50 : 50 + reach]).any(axis=1).all()
    if 50 + reach < len(tokens):
        assert_same_bits(logits[50 + reach :], whole[50 + reach :])


def test_the_cache_type_shows_in_the_bits(model: NativeModel, tokens: list[int]) -> None:
    """The inverse test for the KV type: each rounds in its own way, fp32 not at all."""
    logits = {dtype: model.run(kv_dtype=dtype).logits(tokens[:40]) for dtype in KV_DTYPES}
    full = logits.pop("fp32")
    errors = {dtype: float(np.abs(x - full).mean()) for dtype, x in logits.items()}
    # A head's numbers keep eleven bits of its largest, eight, or four.
    assert 0 < errors["fp16"] < errors["int8"] < errors["int4"]
    assert errors["int8"] < full.std()
    # Keys and values each count. Values in 8 bits add less than what any change at all does in many
    # layers: there activations are rounded to other codes.
    assert max(errors["fp16"], errors["k16v8"]) < errors["k16v4"]
    assert errors["int8"] < errors["k8v4"]
    assert len(set(errors.values())) == len(errors)


@pytest.fixture(scope="module", params=kv_type_params("fp16"))
def other_cache(
    request: pytest.FixtureRequest, model: NativeModel, tokens: list[int]
) -> tuple[KvDtype, list[int], np.ndarray]:
    """A type of the cache, tokens, and their logits."""
    part = tokens[:20] if model.config.num_layers > 8 else tokens  # scalar code is slow
    return request.param, part, model.run(kv_dtype=request.param).logits(part)


@pytest.mark.parametrize("num_threads", [3, 64])
@pytest.mark.parametrize("isa", _native.supported_isas())
def test_other_caches_give_the_same_bits_in_any_chunks(
    model: NativeModel,
    other_cache: tuple[KvDtype, list[int], np.ndarray],
    num_threads: int,
    isa: str,
) -> None:
    kv_dtype, part, whole = other_cache
    run = model.run(kv_dtype=kv_dtype, isa=isa, num_threads=num_threads, seed=4)
    assert_same_bits(run.logits(part, 9), whole)


def test_other_caches_give_the_same_bits_in_a_batch(
    model: NativeModel, other_cache: tuple[KvDtype, list[int], np.ndarray]
) -> None:
    kv_dtype, part, whole = other_cache
    for chunk in (1, 23):
        run = model.run(kv_dtype=kv_dtype, seed=5)
        batch = [part[:7], part[::-1], part, part[3:]]
        assert_same_bits(run.batched_logits(batch, chunk)[2], whole)


@pytest.mark.slow
def test_a_real_window_crossed_in_any_chunks_gives_the_same_bits(gemma_gguf: Path) -> None:
    model = NativeModel(gemma_gguf)
    assert model.config.sliding_window == 512
    tokens = np.random.default_rng(9).integers(0, model.config.vocab_size, 570).tolist()
    last = 40  # whose window begins past the first token

    def logits(chunk: int, num_threads: int = 2) -> np.ndarray:
        run = model.run(num_threads=num_threads)
        table, parts = run.new_sequence(len(tokens)), []
        for start in range(0, len(tokens), chunk):
            piece = tokens[start : start + chunk]
            rows = SequenceRows(piece, start, table, logits=min(last, len(piece)))
            parts += run.step([rows])
        return np.concatenate(parts[-last:])[-last:]

    whole = logits(512)
    for chunk, num_threads in ((1, 2), (61, 3), (320, 1)):
        assert_same_bits(logits(chunk, num_threads), whole)
