"""What this machine lets this process use: CPUs, memory, instruction sets, read bandwidth.

Everything read from the operating system comes from ``/proc`` and ``/sys`` below ``root``, so that
any machine can be described by a folder.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from farthing.errors import InvalidParameterError

ROOT = Path("/")

# cgroup v1 says "no limit" with the largest multiple of a page; nobody's limit is near it.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """The tightest limits over all levels of this process's control groups; None: no limit."""

    cpus: float | None = None  # CPU time per wall time
    memory_limit: int | None = None  # bytes
    memory_headroom: int | None = None  # bytes that can still be used before the limit
    versions: tuple[int, ...] = ()  # hierarchies found: 1, 2 or both


@dataclass(frozen=True, slots=True)
class HugePages:
    """``transparent`` is the kernel's mode; ``total`` and ``free`` count reserved pages."""

    transparent: str | None
    page_bytes: int
    total: int
    free: int


# --- CPUs ---------------------------------------------------------------------------------------


def allowed_cpus(root: Path = ROOT) -> tuple[int, ...]:
    """CPU numbers this process may run on (its affinity mask), ascending."""
    if root == ROOT and hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    listed = _status_field(_read(root / "proc/self/status"), "Cpus_allowed_list")
    if listed:
        return parse_cpu_list(listed)
    return tuple(range(os.cpu_count() or 1))


def physical_cores(cpus: tuple[int, ...], root: Path = ROOT) -> int:
    """How many different cores ``cpus`` are; hardware threads of one core count once."""
    cores = set()
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = _read(topology / "core_cpus_list") or _read(topology / "thread_siblings_list")
        cores.add(siblings.strip() or f"cpu{cpu}")
    return len(cores)


def default_threads(root: Path = ROOT) -> int:
    """Threads to compute with: one per allowed core, no more than the cgroup's whole CPUs.

    A second hardware thread of a core adds no bandwidth, and a thread beyond the quota makes the
    kernel stop all of them.
    """
    return _within_quota(physical_cores(allowed_cpus(root), root), root)


def usable_cpus(root: Path = ROOT) -> int:
    """Threads that can run at once: allowed CPUs, no more than the cgroup's whole ones."""
    return _within_quota(len(allowed_cpus(root)), root)


def _within_quota(cpus: int, root: Path) -> int:
    quota = cgroup_limits(root).cpus
    return max(cpus if quota is None else min(cpus, int(quota)), 1)


def cpu_model(root: Path = ROOT) -> str:
    """The processor's name as it gives it."""
    info = _read(root / "proc/cpuinfo")
    for field in ("model name", "Model", "cpu model", "Hardware"):
        found = re.search(rf"^{field}\s*:\s*(.+)$", info, re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    return platform.processor() or platform.machine() or "unknown"


def amx_features(root: Path = ROOT) -> tuple[str, ...]:
    """What of AMX the CPU has and the system offers, as it spells it: ``amx_tile``, ``amx_int8``.

    Empty without any, as on every CPU that is not Intel's.
    """
    flags = re.search(r"^flags\s*:(.*)$", _read(root / "proc/cpuinfo"), re.MULTILINE)
    return tuple(sorted(f for f in (flags[1].split() if flags else ()) if f.startswith("amx_")))


def last_level_cache_bytes(root: Path = ROOT) -> int:
    """Size of the largest cache of the first CPU, or 0 if the system does not say."""
    sizes = [0]
    for size in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        found = re.fullmatch(r"(\d+)([KMG]?)", _read(size).strip())
        if found:
            sizes.append(int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]])
    return max(sizes)


def numa_nodes(root: Path = ROOT) -> int:
    """Memory nodes that are online."""
    return len(parse_cpu_list(_read(root / "sys/devices/system/node/online"))) or 1


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Numbers of the kernel's list format: ``"0-3,8"`` is (0, 1, 2, 3, 8)."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(sorted(set(numbers)))


# --- Memory -------------------------------------------------------------------------------------


def memory_total(root: Path = ROOT) -> int:
    """Bytes of memory of the machine."""
    return _meminfo(root).get("MemTotal", 0)


def memory_available(root: Path = ROOT) -> int:
    """Bytes this process can still use without swapping or being killed.

    The least of what the kernel calls available, the headroom of every level of the cgroup, and
    the process's own address space limit.
    """
    meminfo = _meminfo(root)
    available = meminfo.get("MemAvailable", meminfo.get("MemFree"))
    candidates = [available, cgroup_limits(root).memory_headroom, _address_space_headroom(root)]
    known = [value for value in candidates if value is not None]
    if known:
        return max(min(known), 0)
    import psutil  # type: ignore[import-untyped]  # no /proc here: another kernel

    return int(psutil.virtual_memory().available)


def peak_resident_bytes(root: Path = ROOT) -> int:
    """The most memory this process has had, pages of mapped files included; 0 if nobody says.

    Not what ``getrusage`` says, which a child inherits from its parent.
    """
    status = _read(root / "proc/self/status")
    return _kilobytes(_status_field(status, "VmHWM")) or 0


def huge_pages(root: Path = ROOT) -> HugePages:
    """The kernel's huge page settings."""
    modes = _read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", modes)
    meminfo = _meminfo(root)
    return HugePages(
        transparent=chosen[1] if chosen else None,
        page_bytes=meminfo.get("Hugepagesize", 0),
        total=meminfo.get("HugePages_Total", 0),
        free=meminfo.get("HugePages_Free", 0),
    )


def _address_space_headroom(root: Path) -> int | None:
    limit = re.search(
        r"^Max address space\s+(\d+)\s", _read(root / "proc/self/limits"), re.MULTILINE
    )
    used = _kilobytes(_status_field(_read(root / "proc/self/status"), "VmSize"))
    return int(limit[1]) - used if limit and used is not None else None


def _meminfo(root: Path) -> dict[str, int]:
    fields = {}
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        number = value.split()
        if number and number[0].isdigit():
            fields[name] = int(number[0]) * (1024 if number[-1] == "kB" else 1)
    return fields


# --- Control groups -----------------------------------------------------------------------------


def cgroup_limits(root: Path = ROOT) -> CgroupLimits:
    """Limits of the control groups of this process, versions 1 and 2, with all their parents."""
    cpus: list[float] = []
    limits: list[int] = []
    headrooms: list[int] = []
    versions = set()
    for version, controllers, levels in _cgroup_folders(root):
        versions.add(version)
        for folder in levels:
            if version == 2 or "cpu" in controllers:
                cpus += _quota(folder, version)
            if version == 2 or "memory" in controllers:
                for limit in _memory_limits(folder, version):
                    limits.append(limit)
                    headrooms.append(limit - _memory_held(folder, version))
    return CgroupLimits(
        cpus=min(cpus, default=None),
        memory_limit=min(limits, default=None),
        memory_headroom=max(min(headrooms), 0) if headrooms else None,
        versions=tuple(sorted(versions)),
    )


def _cgroup_folders(root: Path) -> list[tuple[int, set[str], list[Path]]]:
    """(version, controllers, folders from the process's group up to the mount) per hierarchy."""
    groups: list[tuple[set[str], str]] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        groups.append((set(names.split(",")) - {""}, group))

    found = []
    for line in _read(root / "proc/self/mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        mount_fields, source_fields = mount.split(), source.split()
        if len(mount_fields) < 5 or len(source_fields) < 3:
            continue
        kind, options = source_fields[0], set(source_fields[2].split(","))
        if kind not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind == "cgroup2" else 1
        base, point = _unescape(mount_fields[3]), _unescape(mount_fields[4])
        for controllers, group in groups:
            # Version 2 names no controllers in /proc/self/cgroup; version 1 mounts each by name.
            belongs = not controllers if version == 2 else controllers and controllers <= options
            if belongs:
                levels = _levels(root / point.lstrip("/"), base, group)
                found.append((version, controllers, levels))
    return found


def _levels(point: Path, base: str, group: str) -> list[Path]:
    """Folders from ``group`` up to the mount ``point``, which shows the hierarchy from ``base``.

    In a container the group may be named as the host sees it, outside of what is mounted; then
    the mount point itself is this process's group.
    """
    inside = Path(group.lstrip("/"))
    if base != "/":
        start = Path(base.lstrip("/"))
        inside = inside.relative_to(start) if inside.is_relative_to(start) else Path()
    if ".." in inside.parts or not (point / inside).is_dir():
        inside = Path()
    return [point / inside, *(point / parent for parent in inside.parents)]


def _quota(folder: Path, version: int) -> list[float]:
    if version == 2:
        fields = _read(folder / "cpu.max").split()
    else:
        fields = [
            _read(folder / "cpu.cfs_quota_us").strip(),
            _read(folder / "cpu.cfs_period_us").strip(),
        ]
    if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit() and int(fields[1]) > 0:
        return [int(fields[0]) / int(fields[1])]
    return []  # "max", "-1" or no such file


def _memory_limits(folder: Path, version: int) -> list[int]:
    names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
    limits = [_read(folder / name).strip() for name in names]
    if version == 1:  # a parent outside of the mount shows only here
        limits.append(_stat(folder).get("hierarchical_memory_limit", ""))
    return [int(limit) for limit in limits if limit.isdigit() and int(limit) < _NO_LIMIT]


def _memory_held(folder: Path, version: int) -> int:
    """Bytes of the group that the kernel cannot simply drop: usage without file pages."""
    usage = _read(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes")).strip()
    stat = _stat(folder)
    prefix = "" if version == 2 else "total_"
    dropped = sum(
        int(stat.get(f"{prefix}{name}", "0")) for name in ("inactive_file", "active_file")
    )
    return max(int(usage) - dropped, 0) if usage.isdigit() else 0


def _stat(folder: Path) -> dict[str, str]:
    lines = (line.split() for line in _read(folder / "memory.stat").splitlines())
    return {fields[0]: fields[1] for fields in lines if len(fields) == 2}


# --- Native probes ------------------------------------------------------------------------------


def supported_isas() -> tuple[str, ...]:
    """Instruction sets with kernels here that CPU and operating system can run, best last."""
    from farthing import _native

    return tuple(_native.supported_isas())


def active_isa() -> str:
    """The instruction set in force.

    Raises:
        InvalidParameterError: ``FARTHING_ISA`` names a set that cannot run here.
    """
    from farthing import _native

    try:
        return str(_native.isa())
    except RuntimeError as error:
        raise InvalidParameterError(str(error)) from None


def read_bandwidth(
    *, threads: int | None = None, nbytes: int | None = None, repeats: int = 7
) -> list[float]:
    """Measured sequential read bandwidth of memory, 10^9 bytes a second, one value per repeat.

    ``nbytes`` defaults to four times the last-level cache, at least 256 MiB, at most a quarter of
    the available memory; it is split evenly over ``threads`` (default :func:`default_threads`).
    """
    from farthing import _native

    if nbytes is None:
        nbytes = max(256 << 20, 4 * last_level_cache_bytes())
        nbytes = max(min(nbytes, memory_available() // 4), 1 << 20)
    return list(_native.read_bandwidth(nbytes, threads or default_threads(), repeats))


# --- Reading ------------------------------------------------------------------------------------


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _status_field(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.+)$", status, re.MULTILINE)
    return found[1].strip() if found else ""


def _kilobytes(text: str) -> int | None:
    number = text.split()
    return int(number[0]) * 1024 if number and number[0].isdigit() else None


def _unescape(path: str) -> str:
    """Mountinfo writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)
