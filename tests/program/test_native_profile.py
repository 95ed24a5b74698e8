"""Timings of a pass, instruction by instruction."""

from __future__ import annotations

import time
from pathlib import Path

from farthing.program.native import InstructionTiming
from farthing.program.step import SequenceRows, step_batch
from support.native_runs import NativeModel
from support.tiny_models import make_tiny_model


def test_a_profile_covers_the_pass_and_its_weights(tmp_path: Path) -> None:
    model = NativeModel(make_tiny_model("qwen2", tmp_path))
    run = model.run()
    batch = step_batch([SequenceRows([1, 2, 3], 0, [0])])
    run.executor.run(batch, run.kv)
    assert run.executor.profile() == []

    run.executor.set_profiling(True)
    start = time.perf_counter()
    run.executor.run(batch, run.kv)
    wall = time.perf_counter() - start
    timings = run.executor.profile()
    assert all(isinstance(t, InstructionTiming) and t.seconds > 0 for t in timings)
    assert sum(t.seconds for t in timings) < wall
    layers = model.config.num_layers
    kinds = [t.name for t in timings]
    # No row asks for its hidden state or for its best token alone.
    assert [t.name for t in timings if t.tiles == 0] == ["rms_norm", "pick"]
    assert kinds.count("attend") == kinds.count("store_kv") == layers
    assert kinds.count("linear") == 4 * layers
    assert kinds.count("head") == 1
    assert all((t.weight_bytes > 0) == (t.name in ("linear", "head")) for t in timings)
