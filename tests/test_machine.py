"""Limits of CPUs and memory, read from folders that look like other machines."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from farthing import machine
from farthing.errors import InvalidParameterError
from farthing.machine import CgroupLimits

GIB = 1 << 30
V1_NO_LIMIT = "9223372036854771712\n"


class Tree:
    """A folder with the parts of /proc and /sys that a test names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mounts: list[str] = []
        self.groups: list[str] = []
        self.write("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n")
        self.cpus("0-7")

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def cpus(self, allowed: str, vm_size: str = "100000 kB") -> None:
        self.write("proc/self/status", f"VmSize: {vm_size}\nCpus_allowed_list:\t{allowed}\n")

    def mount(self, kind: str, point: str, options: str, base: str = "/") -> None:
        self.mounts.append(f"40 31 0:30 {base} {point} rw,relatime shared:9 - {kind} c {options}")
        self.write("proc/self/mountinfo", "\n".join(self.mounts) + "\n")

    def group(self, controllers: str, path: str) -> None:
        self.groups.append(f"{0 if not controllers else 4}:{controllers}:{path}")
        self.write("proc/self/cgroup", "\n".join(self.groups) + "\n")

    def v2(self, group: str) -> None:
        self.mount("cgroup2", "/sys/fs/cgroup", "rw,nsdelegate")
        self.group("", group)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (0,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-1,8,10-11\n", (0, 1, 8, 10, 11)),
        ("", ()),
        ("\n", ()),
        ("3,1", (1, 3)),
    ],
)
def test_cpu_lists_in_the_kernels_format(text: str, expected: tuple[int, ...]) -> None:
    assert machine.parse_cpu_list(text) == expected


def test_allowed_cpus_are_those_of_the_status_file(tree: Tree) -> None:
    tree.cpus("2-3,9")
    assert machine.allowed_cpus(tree.root) == (2, 3, 9)


def test_hardware_threads_of_one_core_count_once(tree: Tree) -> None:
    for cpu in range(8):
        tree.write(
            f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", f"{cpu % 4},{cpu % 4 + 4}\n"
        )
    assert machine.physical_cores(tuple(range(8)), tree.root) == 4
    assert machine.physical_cores((0, 1, 4), tree.root) == 2
    assert machine.default_threads(tree.root) == 4
    assert machine.usable_cpus(tree.root) == 8


def test_cpus_without_a_topology_are_cores(tree: Tree) -> None:
    assert machine.default_threads(tree.root) == 8


@pytest.mark.parametrize(
    ("quota", "threads"), [("300000 100000", 3), ("250000 100000", 2), ("20000 100000", 1)]
)
def test_v2_quota_bounds_the_threads(tree: Tree, quota: str, threads: int) -> None:
    tree.v2("/app.slice/me.scope")
    tree.write("sys/fs/cgroup/app.slice/me.scope/cpu.max", quota + "\n")
    limits = machine.cgroup_limits(tree.root)
    assert limits.versions == (2,)
    assert limits.cpus == int(quota.split()[0]) / 100000
    assert machine.default_threads(tree.root) == threads
    assert machine.usable_cpus(tree.root) == threads


def test_v2_limits_of_a_parent_hold_for_its_children(tree: Tree) -> None:
    tree.v2("/pod/container")
    tree.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n")
    tree.write("sys/fs/cgroup/pod/cpu.max", "150000 50000\n")
    tree.write("sys/fs/cgroup/pod/container/memory.max", "max\n")
    tree.write("sys/fs/cgroup/pod/container/memory.current", f"{GIB}\n")
    tree.write("sys/fs/cgroup/pod/memory.max", f"{4 * GIB}\n")
    tree.write("sys/fs/cgroup/pod/memory.current", f"{3 * GIB}\n")
    assert machine.cgroup_limits(tree.root) == CgroupLimits(
        cpus=3.0, memory_limit=4 * GIB, memory_headroom=GIB, versions=(2,)
    )
    assert machine.memory_available(tree.root) == GIB


def test_the_smallest_headroom_is_not_always_that_of_the_smallest_limit(tree: Tree) -> None:
    tree.v2("/pod/container")
    tree.write("sys/fs/cgroup/pod/container/memory.max", f"{4 * GIB}\n")
    tree.write("sys/fs/cgroup/pod/container/memory.current", f"{GIB}\n")
    tree.write("sys/fs/cgroup/pod/memory.max", f"{8 * GIB}\n")
    tree.write("sys/fs/cgroup/pod/memory.current", f"{7 * GIB}\n")
    limits = machine.cgroup_limits(tree.root)
    assert limits.memory_limit == 4 * GIB
    assert limits.memory_headroom == GIB


def test_v2_memory_high_is_a_limit_too(tree: Tree) -> None:
    tree.v2("/me")
    tree.write("sys/fs/cgroup/me/memory.max", f"{8 * GIB}\n")
    tree.write("sys/fs/cgroup/me/memory.high", f"{2 * GIB}\n")
    assert machine.cgroup_limits(tree.root).memory_limit == 2 * GIB


def test_file_pages_of_the_group_count_as_available(tree: Tree) -> None:
    tree.v2("/me")
    tree.write("sys/fs/cgroup/me/memory.max", f"{4 * GIB}\n")
    tree.write("sys/fs/cgroup/me/memory.current", f"{4 * GIB}\n")
    tree.write(
        "sys/fs/cgroup/me/memory.stat",
        f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\n",
    )
    assert machine.memory_available(tree.root) == 3 * GIB


def test_a_group_over_its_limit_has_no_memory_left(tree: Tree) -> None:
    tree.v2("/me")
    tree.write("sys/fs/cgroup/me/memory.max", f"{GIB}\n")
    tree.write("sys/fs/cgroup/me/memory.current", f"{2 * GIB}\n")
    assert machine.memory_available(tree.root) == 0


def test_v1_controllers_mounted_together(tree: Tree) -> None:
    tree.mount("cgroup", "/sys/fs/cgroup/cpu,cpuacct", "rw,cpu,cpuacct")
    tree.mount("cgroup", "/sys/fs/cgroup/memory", "rw,memory")
    tree.group("cpu,cpuacct", "/docker/abc")
    tree.group("memory", "/docker/abc")
    cpu, memory = "sys/fs/cgroup/cpu,cpuacct/docker", "sys/fs/cgroup/memory/docker"
    tree.write(f"{cpu}/abc/cpu.cfs_quota_us", "-1\n")
    tree.write(f"{cpu}/abc/cpu.cfs_period_us", "100000\n")
    tree.write(f"{cpu}/cpu.cfs_quota_us", "200000\n")
    tree.write(f"{cpu}/cpu.cfs_period_us", "100000\n")
    tree.write(f"{memory}/abc/memory.limit_in_bytes", f"{2 * GIB}\n")
    tree.write(f"{memory}/abc/memory.usage_in_bytes", f"{GIB}\n")
    tree.write(f"{memory}/abc/memory.stat", f"inactive_file 1\ntotal_inactive_file {GIB // 2}\n")
    tree.write(f"{memory}/memory.limit_in_bytes", V1_NO_LIMIT)
    assert machine.cgroup_limits(tree.root) == CgroupLimits(
        cpus=2.0, memory_limit=2 * GIB, memory_headroom=2 * GIB - GIB // 2, versions=(1,)
    )
    assert machine.default_threads(tree.root) == 2


def test_v1_limit_of_a_parent_outside_of_the_container(tree: Tree) -> None:
    tree.mount("cgroup", "/sys/fs/cgroup/memory", "rw,memory", base="/docker/abc")
    tree.group("memory", "/docker/abc")
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NO_LIMIT)
    tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", f"{GIB}\n")
    tree.write("sys/fs/cgroup/memory/memory.stat", f"hierarchical_memory_limit {3 * GIB}\n")
    limits = machine.cgroup_limits(tree.root)
    assert limits.memory_limit == 3 * GIB
    assert limits.memory_headroom == 2 * GIB


@pytest.mark.parametrize("group", ["/kubepods/pod1/abc", "/../../elsewhere", "/"])
def test_in_a_container_the_mount_point_is_the_group(tree: Tree, group: str) -> None:
    tree.mount("cgroup2", "/sys/fs/cgroup", "rw")
    tree.group("", group)
    tree.write("sys/fs/cgroup/cpu.max", "100000 100000\n")
    tree.write("sys/fs/cgroup/memory.max", f"{GIB}\n")
    limits = machine.cgroup_limits(tree.root)
    assert limits.cpus == 1.0
    assert limits.memory_limit == GIB


def test_a_machine_with_both_versions_keeps_the_tighter_limit(tree: Tree) -> None:
    tree.mount("cgroup", "/sys/fs/cgroup/cpu", "rw,cpu")
    tree.mount("cgroup2", "/sys/fs/cgroup/unified", "rw")
    tree.group("cpu", "/a")
    tree.group("", "/b")
    tree.write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "400000\n")
    tree.write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
    tree.write("sys/fs/cgroup/unified/b/cpu.max", "300000 100000\n")
    limits = machine.cgroup_limits(tree.root)
    assert limits.cpus == 3.0
    assert limits.versions == (1, 2)


def test_a_mount_point_with_a_space(tree: Tree) -> None:
    tree.mount("cgroup2", r"/sys/fs/c\040group", "rw")
    tree.group("", "/")
    tree.write("sys/fs/c group/cpu.max", "100000 50000\n")
    assert machine.cgroup_limits(tree.root).cpus == 2.0


def test_without_cgroups_the_kernels_estimate_counts(tree: Tree) -> None:
    assert machine.cgroup_limits(tree.root) == CgroupLimits()
    assert machine.memory_available(tree.root) == 16 * GIB
    assert machine.memory_total(tree.root) == 32 * GIB


def test_an_address_space_limit_bounds_the_memory(tree: Tree) -> None:
    tree.cpus("0", vm_size=f"{GIB // 1024} kB")
    tree.write(
        "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n"
        f"Max address space         {3 * GIB}            unlimited            bytes\n",
    )
    assert machine.memory_available(tree.root) == 2 * GIB
    tree.write(
        "proc/self/limits", "Max address space         unlimited            unlimited  bytes\n"
    )
    assert machine.memory_available(tree.root) == 16 * GIB


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ("processor\t: 0\nmodel name\t: AMD  EPYC 9654\nmodel\t: 17\n", "AMD EPYC 9654"),
        ("processor : 0\nModel : Raspberry Pi 5 Model B\n", "Raspberry Pi 5 Model B"),
    ],
)
def test_cpu_model(tree: Tree, info: str, expected: str) -> None:
    tree.write("proc/cpuinfo", info)
    assert machine.cpu_model(tree.root) == expected


def test_cpu_model_is_never_empty(tmp_path: Path) -> None:
    assert machine.cpu_model(tmp_path).strip()


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (
            "processor\t: 0\nflags\t\t: fpu amx_tile amx_bf16 avx512f amx_int8 xamx_y\nbugs: x\n",
            ("amx_bf16", "amx_int8", "amx_tile"),
        ),
        ("flags\t\t: fpu avx2\nbugs\t\t: amx_tile\nvmx flags\t: amx_tile\n", ()),
        ("flags\t\t:\nbugs\t\t: amx_tile\n", ()),
        ("processor\t: 0\nFeatures\t: fp asimd\n", ()),
        ("", ()),
    ],
)
def test_amx_is_what_the_system_says(tree: Tree, info: str, expected: tuple[str, ...]) -> None:
    tree.write("proc/cpuinfo", info)
    assert machine.amx_features(tree.root) == expected


def test_huge_pages(tree: Tree) -> None:
    tree.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    tree.write(
        "proc/meminfo", "HugePages_Total:      10\nHugePages_Free: 4\nHugepagesize:    2048 kB\n"
    )
    assert machine.huge_pages(tree.root) == machine.HugePages("madvise", 2 << 20, 10, 4)


def test_the_largest_cache_is_the_last_level(tree: Tree) -> None:
    for index, size in enumerate(("32K", "1024K", "48M")):
        tree.write(f"sys/devices/system/cpu/cpu0/cache/index{index}/size", size + "\n")
    assert machine.last_level_cache_bytes(tree.root) == 48 << 20


def test_numa_nodes(tree: Tree) -> None:
    assert machine.numa_nodes(tree.root) == 1
    tree.write("sys/devices/system/node/online", "0-1\n")
    assert machine.numa_nodes(tree.root) == 2


def test_this_machine_has_cpus_and_memory() -> None:
    cpus = machine.allowed_cpus()
    assert set(cpus) == os.sched_getaffinity(0)
    assert 1 <= machine.default_threads() <= len(cpus)
    assert 0 < machine.memory_available() <= machine.memory_total()


def test_this_process_may_narrow_its_cpus() -> None:
    program = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
        "from farthing import machine; print(machine.default_threads())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == "1\n"


def test_the_active_instruction_set_is_a_supported_one() -> None:
    isas = machine.supported_isas()
    assert isas[0] == "scalar"
    assert machine.active_isa() in isas


@pytest.mark.parametrize("forced", ["scalar", "avx2"])
def test_an_instruction_set_can_be_forced(forced: str) -> None:
    if forced not in machine.supported_isas():
        pytest.skip(f"this machine has no {forced}")
    result = subprocess.run(
        [sys.executable, "-c", "from farthing import machine; print(machine.active_isa())"],
        env={**os.environ, "FARTHING_ISA": forced},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout.strip() == forced


def test_an_impossible_instruction_set_is_refused() -> None:
    program = (
        "from farthing import machine, errors\n"
        "try: machine.active_isa()\n"
        "except errors.InvalidParameterError as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FARTHING_ISA": "z80"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "FARTHING_ISA='z80'" in result.stdout
    assert "scalar" in result.stdout
    assert issubclass(InvalidParameterError, ValueError)


def test_read_bandwidth_gives_one_rate_for_each_repeat() -> None:
    rates = machine.read_bandwidth(threads=2, nbytes=64 << 20, repeats=5)
    assert len(rates) == 5
    assert all(0.1 < rate < 10_000 for rate in rates)


def test_read_bandwidth_does_not_outrun_a_copy_that_numpy_makes() -> None:
    """A wrong clock or a removed loop would show as an impossible rate."""
    data = np.ones(32 << 20, dtype=np.uint64)  # 256 MiB, far beyond the cache
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        total = int(data.sum())
        seconds.append(time.perf_counter() - start)
        assert total == data.size
    one_thread = data.nbytes / min(seconds) / 1e9
    measured = median(machine.read_bandwidth(threads=1, nbytes=data.nbytes, repeats=5))
    assert measured > one_thread / 3
    assert measured < one_thread * 8


@pytest.mark.parametrize(
    "arguments", [{"nbytes": 0}, {"nbytes": 1, "threads": -1}, {"nbytes": 1, "repeats": 0}]
)
def test_read_bandwidth_refuses_empty_work(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        machine.read_bandwidth(**{"threads": 1, "repeats": 1, **arguments})
