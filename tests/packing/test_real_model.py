"""The default model packed: what a user waits for."""

from __future__ import annotations

import resource
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from farthing.program.weights import load_weights
from support.command_line import COMMAND
from support.native_runs import NativeModel, assert_same_bits
from support.packing import RoundedInMemory, pack

pytestmark = pytest.mark.slow
TOKENS = list(range(1000, 1040))


def seconds_to_load(path: Path) -> float:
    """Seconds of all cores together, the least of five: a machine with other work is slower."""
    times = []
    for _ in range(5):
        start = time.process_time()
        checkpoint = open_checkpoint(path, FAMILIES)
        program = build_program(checkpoint.config)
        load_weights(program, checkpoint.tensors, num_threads=2)
        times.append(time.process_time() - start)
    return min(times)


def seconds_of_process(job: list[str]) -> float:
    """The same of a process, from its start to its end."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(job, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(times)


def test_weights_are_usable_in_half_a_second_and_a_process_in_three(
    qwen_gguf: Path, tmp_path: Path
) -> None:
    packed = pack(qwen_gguf, tmp_path / "packed", "w4g64", "absmax")
    assert seconds_to_load(packed) < 0.5
    assert seconds_of_process([*COMMAND, "run", str(packed), "hi", "-n", "1"]) < 3.0


def test_the_default_model_is_served_packed_as_from_its_file(
    qwen_gguf: Path, tmp_path: Path
) -> None:
    packed = pack(qwen_gguf, tmp_path / "packed", "keep")
    logits = [NativeModel(path).run().logits(TOKENS) for path in (packed, qwen_gguf)]
    assert_same_bits(*logits)


@pytest.mark.parametrize("scheme", ["w4g32", "w8tensor", "km4g64"])
def test_gemma_is_served_packed_as_rounded_in_memory(
    scheme: str, gemma_gguf: Path, tmp_path: Path
) -> None:
    packed = pack(gemma_gguf, tmp_path / "packed", scheme)
    served = NativeModel(packed).run().logits(TOKENS)
    assert_same_bits(served, RoundedInMemory(gemma_gguf, scheme).run().logits(TOKENS))
    assert np.unique(served.argmax(1)).size > 3
