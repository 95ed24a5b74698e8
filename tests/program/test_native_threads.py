"""The thread team: who is awake when, what a barrier costs, what happens if a thread is refused."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from farthing import _native, machine
from farthing.program.native import thread_team
from farthing.program.step import SequenceRows, step_batch
from farthing.sampling.sampler import SampledRow, Sampler
from support.native_runs import NativeModel

CHILD = """
import resource
from pathlib import Path
from farthing import _native

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field + ":")))

before = status("Threads")
used = status("VmSize") * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
try:
    _native.ThreadPool(1000, 2)
except RuntimeError as error:
    print(error)
assert status("Threads") == before
print(_native.ThreadPool(2, 2).num_threads)
"""


def test_a_refused_thread_is_an_error_and_ends_those_that_started() -> None:
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    message, threads = child.stdout.splitlines()
    assert message.startswith("could not start thread ")
    assert " of 1000: " in message
    assert threads == "2"


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether ``condition()`` came true in time; the machine may be busy with others."""
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.002)
    return met


def test_a_team_knows_the_cpus_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    team = thread_team(64)
    assert (team.num_threads, team.cpus) == (64, 2)
    assert thread_team(64, cpus=5).cpus == 5


def test_an_idle_team_uses_no_cpu() -> None:
    team = _native.ThreadPool(4, 4)
    _native.barrier_seconds(team, 5)
    assert until(lambda: team.asleep == 3)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.01


def test_a_waiting_thread_stays_awake_for_the_next_pass_and_no_longer() -> None:
    """The inverse of the one above: right after work nobody sleeps yet."""
    team = _native.ThreadPool(2, 2)

    def awake_after_a_run() -> bool:
        _native.barrier_seconds(team, 1)
        return team.asleep == 0

    assert until(awake_after_a_run)
    assert until(lambda: team.asleep == 1)


def test_no_more_threads_are_awake_than_cpus() -> None:
    team = _native.ThreadPool(16, 2)
    assert until(lambda: team.asleep == 15)
    _native.barrier_seconds(team, 200)
    # A thread on its way to sleep may be counted for a moment.
    assert team.asleep >= 12
    alone = _native.ThreadPool(16, 1)
    assert until(lambda: alone.asleep == 15)
    _native.barrier_seconds(alone, 2000)
    assert alone.asleep == 15


def test_threads_stay_on_the_cpus_of_the_process() -> None:
    child = (
        "import os\n"
        "from pathlib import Path\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from farthing import _native\n"
        "from farthing.program.native import thread_team\n"
        "team = thread_team(4)\n"
        "assert team.cpus == 1\n"
        "_native.barrier_seconds(team, 100)\n"
        "masks = {os.sched_getaffinity(int(t.name)) == os.sched_getaffinity(0)\n"
        "         for t in Path('/proc/self/task').iterdir()}\n"
        "print(len(list(Path('/proc/self/task').iterdir())), masks)\n"
    )
    result = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    threads, masks = result.stdout.split(maxsplit=1)
    assert int(threads) >= 4
    assert masks.strip() == "{True}"


@pytest.mark.parametrize(("threads", "cpus"), [(1, 1), (2, 2), (3, 1), (3, 3), (16, 2)])
def test_runs_end_whoever_sleeps_meanwhile(threads: int, cpus: int) -> None:
    """Pauses around the time threads stay awake: they fall asleep while the next run begins."""
    team = _native.ThreadPool(threads, cpus)
    for pause in (0.0, 0.0009, 0.0011, 0.0013):
        values = _native.start_seconds(team, 10, pause)
        assert len(values) == 10
        assert min(values) > 0
    for _ in range(10):
        assert len(_native.barrier_seconds(team, 5)) == 5


def test_the_caller_sleeps_while_another_thread_is_in_a_long_tile() -> None:
    """Of three long tiles on two threads one is left to wait for the last: often the caller."""
    logits = np.zeros((1, 8_000_000), np.float32)  # all alike: noise for every token
    rows = [SampledRow(1.0, seed, 1) for seed in range(3)]

    def spent(sampler: Sampler, count: int) -> float:
        start = time.thread_time()
        assert sampler.draw(logits, rows[:count], [0] * count) == expected[:count]
        return time.thread_time() - start

    expected = Sampler().draw(logits, rows, [0] * 3)
    one = min(spent(Sampler(), 1) for _ in range(5))
    assert one > 0.004  # more than a waiting thread stays awake
    shared = Sampler(thread_team(2, cpus=2))
    assert until(lambda: spent(shared, 3) < 1.5 * one)


def test_threads_that_are_done_take_tiles_of_others_shares() -> None:
    """Four long tiles in one thread's share, four short ones in the other's."""
    logits = np.zeros((1, 2_000_000), np.float32)
    long = [SampledRow(1.0, seed, 1) for seed in range(4)]  # noise for every token
    short = [SampledRow(0.0, 0, 1)] * 4
    shared = Sampler(thread_team(2, cpus=2))

    def callers(sampler: Sampler, rows: list[SampledRow]) -> float:
        """CPU time of the thread whose share comes first, in long tiles."""
        start = time.thread_time()
        assert sampler.draw(logits, rows, [0] * len(rows)) == tokens(rows)
        return (time.thread_time() - start) / one

    def tokens(rows: list[SampledRow]) -> list[int]:
        return [expected[row.seed] if row.temperature else 0 for row in rows]

    expected = Sampler().draw(logits, long, [0] * 4)
    one = 1.0
    one = min(callers(Sampler(), long) for _ in range(5)) / 4
    light = min(callers(Sampler(), short) for _ in range(5))
    assert light < 2
    half = (4 + light) / 2
    assert until(lambda: callers(shared, [*long, *short]) < (4 + half) / 2)
    assert until(lambda: callers(shared, [*short, *long]) > (light + half) / 2)


def test_a_barrier_costs_less_than_two_microseconds() -> None:
    """Where two threads have a CPU each; in company the best hundredth is told."""
    if machine.usable_cpus() < 2:
        pytest.skip("one CPU")
    team = _native.ThreadPool(2, 2)
    values = sorted(s for _ in range(5) for s in _native.barrier_seconds(team, 2000))
    assert values[len(values) // 100] < 2e-6


@pytest.mark.parametrize("value", [0, -1])
def test_timings_need_rounds_and_a_time(value: int) -> None:
    team = _native.ThreadPool(1, 1)
    with pytest.raises(ValueError, match=f"rounds={value} must be from 1 to 1000000"):
        _native.barrier_seconds(team, value)
    with pytest.raises(ValueError, match=r"idle=-1\.0+ must be from 0 to 60 seconds"):
        _native.start_seconds(team, 1, -1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "cpus", "bound"),
    [(8, 2, 1.5), (64, 2, 1.5), (8, 8, 3.0), (64, 64, 6.0)],
    ids=["8", "64", "8-forced", "64-forced"],
)
def test_more_threads_than_cpus_do_not_collapse(
    qwen_gguf: Path, threads: int, cpus: int, bound: float
) -> None:
    """A step of the default model, in turns with two threads on two CPUs.

    Forced: all threads play as if each had a CPU, as when a process is confined while it runs.
    """
    if (machine.usable_cpus(), os.cpu_count()) != (2, 2):
        pytest.skip("needs a machine of two CPUs")
    run = NativeModel(qwen_gguf).run(tokens=128)
    batch = step_batch([SequenceRows([5], 64, run.new_sequence(80))])
    teams = [thread_team(2), thread_team(threads, cpus)]
    ratios = []
    for _ in range(9):
        seconds = []
        for team in teams:
            run.executor._threads = team
            run.executor.run(batch, run.kv)  # wakes them
            start = time.perf_counter()
            for _ in range(3):
                run.executor.run(batch, run.kv)
            seconds.append(time.perf_counter() - start)
        ratios.append(seconds[1] / seconds[0])
    assert statistics.median(ratios) < bound, ratios


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_a_thread_count_outside_its_range_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"num_threads={count} must be from 1 to 1024"):
        _native.ThreadPool(count, 2)
    with pytest.raises(ValueError, match="cpus=0 must be from 1"):
        _native.ThreadPool(2, 0)


def test_a_forked_child_is_told_to_load_again_and_ends_cleanly() -> None:
    child = (
        "import os\n"
        "import numpy as np\n"
        "from farthing import _native\n"
        "team = _native.ThreadPool(3, 2)\n"
        "kv = _native.KvPool('fp16', 1, 1, 16, 1)\n"
        "program = _native.Program(1, _native.isa())\n"
        "table = _native.Matrix('f32', 4, 16)\n"
        "program.embed(table, program.output('T', 16))\n"
        "one = np.zeros(1, np.int32)\n"
        "def run():\n"
        "    program.run(team, kv, one, one, np.array([0, 1], np.int32), one[None], one[:0],\n"
        "                one[:0], one[:0], [np.empty((1, 16), np.float32)], one[:0])\n"
        "run()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        run()\n"
        "    except RuntimeError as error:\n"
        "        assert 'forked child' in str(error)\n"
        "        del team\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "run()\n"
    )
    subprocess.run([sys.executable, "-c", child], check=True, timeout=60)
