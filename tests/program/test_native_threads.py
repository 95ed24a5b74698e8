"""The thread team: whether its threads spin, and what happens when the system refuses one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from farthing import _native, machine
from farthing.program.native import thread_team

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
    _native.ThreadPool(1000, spin=False)
except RuntimeError as error:
    print(error)
assert status("Threads") == before
print(_native.ThreadPool(2, spin=False).num_threads)
"""


def test_a_refused_thread_is_an_error_and_ends_those_that_started() -> None:
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    message, threads = child.stdout.splitlines()
    assert message.startswith("could not start thread ")
    assert " of 1000: " in message
    assert threads == "2"


def test_threads_spin_only_within_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "default_threads", lambda: 2)
    assert thread_team(2).spin
    assert not thread_team(3).spin


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_a_thread_count_outside_its_range_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"num_threads={count} must be from 1 to 1024"):
        _native.ThreadPool(count, spin=True)


def test_a_forked_child_is_told_to_load_again_and_ends_cleanly() -> None:
    child = (
        "import os\n"
        "import numpy as np\n"
        "from farthing import _native\n"
        "team = _native.ThreadPool(3, False)\n"
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
