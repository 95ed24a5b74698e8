"""Greedy paths and who agrees with them, against decoding one token at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.engine.model_loader import LoadedModel, LoadOptions, load_model
from farthing.errors import InvalidParameterError
from farthing.evaluation.paths import Paths, greedy_paths, likeliest_tokens, passages
from farthing.llm import LLM
from farthing.program.step import SequenceRows, step_batch
from farthing.sampling.params import SamplingParams

WIDTH, LENGTH = 9, 7
BLOCKS = range(10)


def nothing(done: int, total: int) -> None:
    """Nobody is told."""


def prompts(count: int) -> NDArray[np.int32]:
    return np.random.default_rng(5).integers(5, 300, (count, WIDTH)).astype(np.int32)


@pytest.fixture(params=["fp16", "fp32"])
def loaded(request: pytest.FixtureRequest, reference_model: Path) -> Iterator[LoadedModel]:
    options = LoadOptions(kv_cache_dtype=request.param, max_num_batched_tokens=48)
    model = load_model(reference_model, options)
    yield model
    model.runner.close()


def walk(
    loaded: LoadedModel, count: int, positions: int, ends: frozenset[int] = frozenset()
) -> Paths:
    return greedy_paths(
        loaded, prompts(count), positions=positions, length=LENGTH, ends=ends, told=nothing
    )


def alone(loaded: LoadedModel, prompt: list[int], steps: int) -> list[int]:
    """Step by step, a sequence by itself, its tokens by NumPy from the logits."""
    tokens: list[int] = []
    rows = SequenceRows(prompt, 0, BLOCKS)
    for _ in range(steps):
        logits = loaded.runner.executor.run(step_batch([rows]), loaded.runner.kv).logits
        tokens.append(int(logits[0].argmax()))
        rows = SequenceRows([tokens[-1]], len(prompt) + len(tokens) - 1, BLOCKS)
    return tokens


def test_paths_are_what_decoding_alone_gives(loaded: LoadedModel) -> None:
    """Forty paths: more than are decoded together, and prompts of several passes."""
    paths = walk(loaded, 40, 40 * LENGTH)
    assert paths.positions == 40 * LENGTH
    for prompt, tokens in zip(paths.prompts.tolist(), paths.tokens.tolist(), strict=True):
        assert tokens == alone(loaded, prompt, LENGTH)
    assert len(set(paths.said.tolist())) > 40, "degenerate"


def test_all_positions_at_once_are_those_step_by_step(
    loaded: LoadedModel, other_model: Path
) -> None:
    """The other model, given the reference's tokens one at a time."""
    paths = walk(loaded, 6, 6 * LENGTH - 3)
    np.testing.assert_array_equal(likeliest_tokens(loaded, paths, nothing), paths.said)
    other = load_model(other_model, LoadOptions(max_num_batched_tokens=48))
    expected: list[int] = []
    for i, prompt in enumerate(paths.prompts.tolist()):
        rows = SequenceRows(prompt, 0, BLOCKS)
        for step in range(paths.lengths[i]):
            logits = other.runner.executor.run(step_batch([rows]), other.runner.kv).logits
            expected.append(int(logits[0].argmax()))
            rows = SequenceRows([int(paths.tokens[i, step])], WIDTH + step, BLOCKS)
    found = likeliest_tokens(other, paths, nothing)
    assert found.tolist() == expected
    assert 0 < (found == paths.said).sum() < paths.positions, "the models do not differ"


def test_the_engine_serves_the_same_paths(reference_model: Path) -> None:
    model = load_model(reference_model, LoadOptions())
    paths = walk(model, 5, 5 * LENGTH)
    with LLM(reference_model) as llm:
        params = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True)
        outputs = llm.generate([p.tolist() for p in paths.prompts], params)
    assert [o.outputs[0].token_ids for o in outputs] == paths.tokens.tolist()


def test_a_path_ends_at_an_end_which_counts(loaded: LoadedModel) -> None:
    """Others go on, and further prompts are taken until there are positions enough."""
    whole = walk(loaded, 4, 4 * LENGTH)
    end = int(whole.tokens[1, 2])
    cut = walk(loaded, 12, 4 * LENGTH, frozenset([end]))
    assert cut.positions == 4 * LENGTH
    assert len(cut.lengths) > 4
    for tokens, length in zip(cut.tokens.tolist(), cut.lengths.tolist(), strict=True):
        assert end not in tokens[: length - 1]
    first = whole.tokens[1].tolist().index(end) + 1
    assert cut.lengths[1] == first < LENGTH
    assert cut.said[cut.path_of == 1].tolist() == whole.tokens[1, :first].tolist()
    np.testing.assert_array_equal(likeliest_tokens(loaded, cut, nothing), cut.said)


def test_more_positions_begin_with_fewer(loaded: LoadedModel) -> None:
    few, many = walk(loaded, 10, 11), walk(loaded, 10, 50)
    assert (few.positions, many.positions) == (11, 50)
    np.testing.assert_array_equal(few.said, many.said[:11])
    assert few.path_of.tolist() == [0] * LENGTH + [1] * (11 - LENGTH)


def test_prompts_that_run_out_are_told_of(loaded: LoadedModel) -> None:
    end = int(walk(loaded, 1, 1).said[0])
    with pytest.raises(InvalidParameterError, match=r"paths end early: 2 of the text's 2"):
        greedy_paths(
            loaded,
            np.repeat(prompts(1), 2, axis=0),
            positions=2 * LENGTH,
            length=LENGTH,
            ends=frozenset([end]),
            told=nothing,
        )


def test_passages_are_disjoint_whole_and_spread() -> None:
    ids = list(range(1000, 1000 + 16 * 50 + 7))
    found = passages(ids, [1, 2], length=16, needed=50, what="a text")
    assert found.shape == (50, 16)
    assert (found[:, :2] == [1, 2]).all()
    starts = found[:, 2] - 1002
    assert sorted(starts.tolist()) == list(range(0, 800, 16))
    assert np.ptp(starts[:3]) > 400, "the first few are from one place"


def test_a_text_too_short_for_the_positions_says_how_much_there_is() -> None:
    with pytest.raises(InvalidParameterError, match=r"the text has 799 tokens, enough for 49;"):
        passages(list(range(799)), [], length=16, needed=50, what="a text")
