"""Contexts of more than two spans: the same bits however they are cut and who computes what.

A step of few rows shares the spans of a context out among the threads. All logits are compared with
those of passes by one thread, which shares nothing out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from farthing import _native
from farthing.program.kv_types import KvDtype
from farthing.program.step import SequenceRows
from support.kv_types import kv_type_params
from support.native_runs import Logits, NativeModel, NativeRun, assert_same_bits
from support.packing import pack
from support.tiny_models import KINDS, make_model

SPAN = 1024
LENGTH = 2 * SPAN + 90
LAST = 6  # rows that are computed again and again
# The second with a window that begins inside the first span, and with a softcap of the scores. The
# third, packed, rounds what each kv head's tile makes, and a gate's columns by parts.
MODELS = {
    "qwen2": replace(KINDS["qwen2"], num_layers=2, context_length=4096),
    "gemma2": replace(
        KINDS["gemma2"],
        num_layers=2,
        num_heads=8,
        sliding_window=1300,
        sliding_layers=(True, False),
        context_length=4096,
    ),
    "qwen2 in w4g32": replace(
        KINDS["qwen2-tied"],
        num_layers=2,
        hidden_size=128,
        num_heads=8,
        num_kv_heads=2,
        intermediate_size=600,
        context_length=4096,
    ),
}


@dataclass(frozen=True)
class Case:
    """A model whose cache holds a long sequence, and its logits."""

    model: NativeModel
    kv_dtype: KvDtype
    tokens: list[int]
    filled: NativeRun
    table: list[int]
    before: Logits  # (LENGTH - LAST, vocab)
    whole: Logits  # (LAST, vocab), by one thread in one pass

    def run(self, **options: object) -> NativeRun:
        """Another executor before the same cache."""
        run = self.model.run(kv_dtype=self.kv_dtype, tokens=16, **options)  # type: ignore[arg-type]
        return NativeRun(run.executor, self.filled.kv, 0)

    def last(self, run: NativeRun, chunk: int = 1) -> Logits:
        """Logits of the last rows, ``chunk`` a pass."""
        parts = []
        for start in range(LENGTH - LAST, LENGTH, chunk):
            piece = self.tokens[start : min(start + chunk, LENGTH)]
            parts += run.step([SequenceRows(piece, start, self.table, logits=len(piece))])
        return np.concatenate(parts)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeModel:
    path = make_model(MODELS[request.param], tmp_path_factory.mktemp("tiny"))
    if scheme := request.param.partition(" in ")[2]:
        path = pack(path, tmp_path_factory.mktemp("packed") / "model", scheme)
    return NativeModel(path)


@pytest.fixture(scope="module", params=kv_type_params())
def case(request: pytest.FixtureRequest, model: NativeModel) -> Case:
    tokens = np.random.default_rng(3).integers(0, model.config.vocab_size, LENGTH).tolist()
    filled = model.run(kv_dtype=request.param, tokens=LENGTH + 512, num_threads=1)
    table = list(filled.new_sequence(LENGTH))
    before = []
    for start in range(0, LENGTH - LAST, 512):
        piece = tokens[start : min(start + 512, LENGTH - LAST)]
        before += filled.step([SequenceRows(piece, start, table, logits=len(piece))])
    rows = SequenceRows(tokens[-LAST:], LENGTH - LAST, table, logits=LAST)
    (whole,) = filled.step([rows])
    return Case(model, request.param, tokens, filled, table, np.concatenate(before), whole)


@pytest.mark.parametrize("num_threads", [1, 2, 3, 64])
def test_decoding_gives_the_bits_of_one_pass(case: Case, num_threads: int) -> None:
    run = case.run(num_threads=num_threads)
    for chunk in (1, 4):
        assert_same_bits(case.last(run, chunk), case.whole)


@pytest.mark.parametrize("isa", _native.supported_isas())
def test_every_instruction_set_gives_the_same_bits(case: Case, isa: str) -> None:
    assert_same_bits(case.last(case.run(isa=isa, num_threads=2), 3), case.whole)


@pytest.mark.parametrize(("num_threads", "chunk"), [(3, 300), (64, 77)])
def test_the_whole_context_anew_gives_the_same_bits(
    case: Case, num_threads: int, chunk: int
) -> None:
    run = case.model.run(kv_dtype=case.kv_dtype, num_threads=num_threads, tokens=LENGTH + 16)
    logits = run.logits(case.tokens, chunk)
    assert_same_bits(logits, np.concatenate([case.before, case.whole]))


def test_neighbours_long_and_short_do_not_matter(case: Case) -> None:
    """Beside another long context some tiles are shared, and beside many short ones all."""
    run = case.run(num_threads=3)
    short = [case.filled.new_sequence(16) for _ in range(9)]
    for row in range(LENGTH - LAST, LENGTH):
        own = SequenceRows([case.tokens[row]], row, case.table, logits=1)
        others = [SequenceRows([5 + i], 0, table, logits=0) for i, table in enumerate(short)]
        logits = run.step([*others[:4], own, *others[4:]])
        assert_same_bits(logits[4], case.whole[row - LENGTH : row - LENGTH + 1 or None])


def test_the_oldest_visible_token_shows_in_the_bits(case: Case) -> None:
    """The inverse test: a comparison that did not see the first span would pass this too."""
    changed = NativeRun(case.run(num_threads=2).executor, case.filled.kv, 0)
    table = [*case.filled.new_sequence(16), *case.table[1:]]
    changed.step([SequenceRows([(t + 1) % 100 for t in case.tokens[:16]], 0, table, logits=0)])
    rows = SequenceRows(case.tokens[-LAST:], LENGTH - LAST, table, logits=LAST)
    (logits,) = changed.step([rows])
    assert (logits != case.whole).any(axis=1).all()


def test_what_is_shared_out(model: NativeModel) -> None:
    """Spans of long contexts where threads would have nothing to do, whole contexts elsewhere."""
    heads, position = model.config.num_kv_heads, 2 * SPAN + 50

    def tiles(num_threads: int, position: int, sequences: int = 1) -> list[int]:
        """Of the layers without a window."""
        run = model.run(num_threads=num_threads, tokens=64)
        run.executor.set_profiling(True)
        table = list(range(4)) * (position // 64 + 1)
        rows = [
            # The block that is written must be another in each.
            SequenceRows([1], position, [*table[: position // 16], i], logits=0)
            for i in range(sequences)
        ]
        run.step(rows)
        counts = [t.tiles for t in run.executor.profile() if t.name == "attend"]
        windows = [model.config.window(layer) for layer in range(model.config.num_layers)]
        return [n for n, window in zip(counts, windows, strict=True) if window is None]

    assert set(tiles(1, position)) == {heads}
    assert set(tiles(2, SPAN - 1)) == {heads}
    assert set(tiles(2, position)) == {3 * heads}
    assert set(tiles(64, position)) == {3 * heads}
    assert set(tiles(2, position, sequences=4)) == {4 * heads}
    assert set(tiles(8, position, sequences=4)) == {3 * 4 * heads}


def test_where_the_memory_for_parts_ends(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The last tile gets what is left, and its first part several spans."""
    model = NativeModel(make_model(MODELS["qwen2"], tmp_path_factory.mktemp("tiny")))
    config, rows, position = model.config, 16, 260_000
    rng = np.random.default_rng(4)
    first = rng.integers(0, config.vocab_size, 64).tolist()
    last = rng.integers(0, config.vocab_size, (5, rows)).tolist()
    results, tiles = [], []
    for num_threads in (1, 3):
        run = model.run(num_threads=num_threads, tokens=64 + 5 * rows)
        run.step([SequenceRows(first, 0, [0, 1, 2, 3], logits=0)])
        run.executor.set_profiling(True)
        earlier = [0, 1, 2, 3] * (position // 64)
        earlier += [0, 1][: position // 16 - len(earlier)]
        steps = [
            SequenceRows(tokens, position, [*earlier, 4 + i], logits=rows)
            for i, tokens in enumerate(last)
        ]
        results.append(np.concatenate(run.step(steps)))
        tiles.append(next(t.tiles for t in run.executor.profile() if t.name == "attend"))
    assert_same_bits(results[1], results[0])
    spans = (position + rows - 1) // SPAN + 1
    whole = len(last) * config.num_kv_heads
    part_floats = rows * config.num_heads // config.num_kv_heads * (config.head_dim + 2)
    assert tiles == [whole, (2 << 20) // part_floats]
    assert tiles[1] < whole * spans
