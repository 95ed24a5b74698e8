"""The loops that say what a core can multiply, and the region that says what it can read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from farthing import _native, machine
from farthing.program.native import thread_team

LOOPS = [
    pytest.param(isa, loop, id=f"{isa} {loop['name']}")
    for isa in machine.supported_isas()
    for loop in _native.limit_loops(isa)
]


@pytest.mark.parametrize(("isa", "loop"), LOOPS)
@pytest.mark.parametrize("iterations", [0, 1, 3, 1092, 70_001])
def test_a_loop_adds_up_what_it_says(isa: str, loop: dict, iterations: int) -> None:
    """A loop that the compiler removed or shortened has another sum; 16 bits wrap at 2,185."""
    kept = loop["step"] * iterations
    if loop["sum_bits"]:
        kept %= 1 << loop["sum_bits"]
    assert _native.sum_limit_loop(isa, loop["name"], iterations) == kept * loop["sums"]


@pytest.mark.parametrize(("isa", "loop"), LOOPS)
def test_a_loop_takes_time(isa: str, loop: dict) -> None:
    for threads in (1, 3):
        seconds = _native.time_limit_loop(isa, loop["name"], thread_team(threads), 20_000, threads)
        # 20,000 iterations of twelve dependent additions, each one cycle at least, below 10 GHz
        assert seconds > 20_000 / 10e9


def test_every_set_has_loops_of_both_kinds() -> None:
    for isa in machine.supported_isas():
        assert {loop["integer"] for loop in _native.limit_loops(isa)} == {True, False}


@pytest.mark.parametrize("iterations", [0, -1, 1 << 24])
def test_iterations_beyond_what_floats_count_are_refused(iterations: int) -> None:
    isa = machine.supported_isas()[0]
    name = _native.limit_loops(isa)[0]["name"]
    with pytest.raises(ValueError, match="iterations must be from 1 to 16777215"):
        _native.time_limit_loop(isa, name, thread_team(1), iterations, 1)


def test_work_without_tiles_is_refused() -> None:
    isa = machine.supported_isas()[0]
    name = _native.limit_loops(isa)[0]["name"]
    with pytest.raises(ValueError, match="tiles must be at least 1"):
        _native.time_limit_loop(isa, name, thread_team(1), 10, 0)


def test_an_unknown_loop_and_set_are_refused() -> None:
    isa = machine.supported_isas()[0]
    with pytest.raises(ValueError, match="no loop called 'none'"):
        _native.sum_limit_loop(isa, "none", 1)
    with pytest.raises(ValueError, match="'z80'"):
        _native.limit_loops("z80")


def test_a_region_is_read_again_and_again() -> None:
    region = _native.ReadRegion(100_000, thread_team(3))
    assert region.nbytes == 3 * 8 * 8192  # whole pages for each tile
    rates = [region.read() for _ in range(3)]
    assert all(0 < rate < 10_000 for rate in rates)


def test_a_region_needs_bytes_and_its_parents_threads() -> None:
    with pytest.raises(ValueError, match="bytes must be at least 1"):
        _native.ReadRegion(0, thread_team(1))
    with pytest.raises(MemoryError):
        _native.ReadRegion(1 << 62, thread_team(1))
    program = (
        "import os\n"
        "from farthing import _native\n"
        "from farthing.program.native import thread_team\n"
        "pool = thread_team(2)\n"
        "if os.fork() == 0:\n"
        "    try: _native.ReadRegion(4096, pool)\n"
        "    except RuntimeError as error: print(error)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    child = [sys.executable, "-W", "ignore", "-c", program]
    assert "forked child" in subprocess.run(child, capture_output=True, text=True).stdout
