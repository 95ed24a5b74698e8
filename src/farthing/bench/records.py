"""One JSON line a measurement, with the machine it was taken on."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from farthing import machine
from farthing.bench.rounds import Measurement
from farthing.bench.target import Target
from farthing.program.work import weight_bytes_by_scheme
from farthing.version import installed_version

FORMAT = "farthing-bench-1"

Record = dict[str, Any]


def results_folder(home: Path, root: Path | None = None) -> Path:
    """Where results go if nobody says: ``bench/results/<machine>`` of the checkout that runs.

    An installed package has no checkout; then ``bench/<machine>`` in ``home``, Farthing's own
    folder. ``root``: the checkout to assume.
    """
    root = root or checkout()
    folder = home / "bench" if root is None else root / "bench" / "results"
    return folder / machine_name()


@cache
def checkout() -> Path | None:
    """The folder of the repository this package runs from, or None if it is installed."""
    root = Path(__file__).parents[3]
    inside = (root / "pyproject.toml").is_file() and (root / "csrc").is_dir()
    return root if inside else None


def machine_name(model: str | None = None) -> str:
    """The CPU's name and number of cores as the name of a folder: ``amd-epyc-2-cores``."""
    name = re.sub(r"\((r|tm)\)", "", (model or machine.cpu_model()).lower())
    words = "-".join(re.findall(r"[a-z0-9.]+", name)) or "unknown"
    return f"{words[:60].strip('-.')}-{machine.physical_cores(machine.allowed_cpus())}-cores"


def machine_facts() -> dict[str, Any]:
    """What a figure depends on; bytes. None: the system does not say."""
    allowed = machine.allowed_cpus()
    return {
        "cpu": machine.cpu_model(),
        "allowed_cpus": len(allowed),
        "cores": machine.physical_cores(allowed),
        "isa": machine.active_isa(),
        "supported_isas": list(machine.supported_isas()),
        "last_level_cache_bytes": machine.last_level_cache_bytes(),
        "memory_bytes": machine.memory_total(),
        "numa_nodes": machine.numa_nodes(),
        "huge_pages": machine.huge_pages().transparent,
        "governor": _governor(),
        "load_average": list(os.getloadavg()),
        "system": platform.platform(),
    }


def software_facts() -> dict[str, Any]:
    """Version, and the commit where it runs from a checkout; ``+`` marks uncommitted changes."""
    return {
        "farthing": installed_version(),
        "commit": _commit(),
        "python": platform.python_version(),
    }


@cache
def _commit() -> str | None:
    root = checkout()
    if root is None:
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or no repository
        return None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _governor(root: Path = machine.ROOT) -> str | None:
    path = root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Jiffies of all CPUs since boot, from ``/proc/stat``; zeros where there is none."""

    total: int
    stolen: int  # by the host, which ran someone else

    @classmethod
    def now(cls, root: Path = machine.ROOT) -> CpuTime:
        """Reads them."""
        try:
            line = (root / "proc/stat").read_text(encoding="utf-8").partition("\n")[0]
        except OSError:
            return cls(0, 0)
        fields = [int(field) for field in line.split()[1:9]]
        return cls(sum(fields), fields[7] if len(fields) > 7 else 0)

    def stolen_since(self, earlier: CpuTime) -> float | None:
        """Share of CPU time that the host gave to others; None if nothing is known."""
        total = self.total - earlier.total
        return (self.stolen - earlier.stolen) / total if total > 0 else None


def model_name(model: str) -> str:
    """What a record calls a model: a file or a directory by its own name, not by where it lies."""
    path = Path(model).expanduser()
    return path.resolve().name if path.exists() else model


def target_facts(target: Target) -> dict[str, Any]:
    """What was measured: its name, the packed bytes of its matrices by scheme, where they lie."""
    return {
        "model": model_name(target.name),
        "schemes": weight_bytes_by_scheme(target.weights),
        "weights": target.placement,
        "kv_cache_dtype": target.kv_cache_dtype,
    }


def record_of(
    measurement: Measurement, verb: str, num_threads: int, facts: Mapping[str, Any]
) -> Record:
    """The record of one measurement; ``facts`` are those of all of a run."""
    case, work = measurement.case, measurement.case.work
    seconds = measurement.seconds
    return {
        **head(verb),
        "case": case.name,
        "part": case.part,
        **case.settings,
        "threads": num_threads,
        "rounds": measurement.rounds,
        "seconds": seconds.as_json(),
        "tokens": case.tokens,
        "tokens_s": case.tokens / seconds.median,
        "weight_bytes": work.weight_bytes,
        "kv_bytes": work.kv_bytes,
        "integer_macs": work.integer_macs,
        "float_macs": work.float_macs,
        "gb_s": work.total_bytes / seconds.median / 1e9,
        "gmac_s": work.macs / seconds.median / 1e9,
        "memory_share": measurement.memory_share.as_json(),
        "compute_share": measurement.compute_share.as_json(),
        "binding": measurement.binding,
        "limits": measurement.rates.as_json(),
        **facts,
    }


def run_facts(before: CpuTime) -> dict[str, Any]:
    """Machine and software, and what the host took since ``before``."""
    facts = machine_facts() | {"stolen": CpuTime.now().stolen_since(before)}
    return {"machine": facts, "software": software_facts()}


def head(verb: str) -> Record:
    """What every record begins with."""
    return {"format": FORMAT, "time": timestamp(), "verb": verb}


def timestamp(now: float | None = None) -> str:
    """``now`` (seconds since 1970) in UTC, to the second."""
    moment = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def append(records: Sequence[Record], folder: Path) -> Path:
    """Appends ``records`` to today's file in ``folder``, made if need be; returns its path.

    All lines are written at once: runs side by side do not mix theirs. Raises ``OSError`` naming
    the file when there is no room for all of them, and then leaves none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{timestamp()[:10]}.jsonl"
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    with path.open("ab", buffering=0) as file:
        end = file.tell()
        try:
            while lines:  # a disk that gets full takes a part, and refuses the rest
                lines = lines[file.write(lines) :]
        except OSError as error:
            file.truncate(end)
            raise OSError(error.errno, error.strerror, str(path)) from error
    return path
