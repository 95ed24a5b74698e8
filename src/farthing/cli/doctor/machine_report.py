"""The facts that ``farthing doctor`` tells about this machine, as plain data."""

from __future__ import annotations

import platform
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from farthing import machine
from farthing.cli.version import version
from farthing.machine import ROOT

# Packages whose version can change what is read or computed.
PACKAGES = ("numpy", "tokenizers", "safetensors", "gguf", "jinja2", "huggingface-hub")


def machine_facts(root: Path = ROOT) -> dict[str, Any]:
    """CPUs, limits and memory; bytes and CPU numbers."""
    allowed = machine.allowed_cpus(root)
    limits = machine.cgroup_limits(root)
    return {
        "cpu": {
            "model": machine.cpu_model(root),
            "allowed_cpus": list(allowed),
            "allowed_cores": machine.physical_cores(allowed, root),
            "last_level_cache_bytes": machine.last_level_cache_bytes(root),
            "numa_nodes": machine.numa_nodes(root),
        },
        "cgroup": {**asdict(limits), "versions": list(limits.versions)},
        "threads": machine.default_threads(root),
        "memory": {
            "total": machine.memory_total(root),
            "available": machine.memory_available(root),
        },
        "huge_pages": asdict(machine.huge_pages(root)),
    }


AMX_NOT_USED = (
    "no kernels are written for it, as its tiles want 16 rows and more, so that it is for prompts "
    "alone, and there is no machine to prove its bits on"
)


def isa_facts(root: Path = ROOT) -> dict[str, Any]:
    """Instruction sets with kernels here, best last, the one in force, and AMX, which has none."""
    return {
        "supported": list(machine.supported_isas()),
        "active": machine.active_isa(),
        "amx": {
            "features": list(machine.amx_features(root)),
            "used": False,
            "why_not": AMX_NOT_USED,
        },
    }


def describe_amx(amx: dict[str, Any]) -> str:
    """What :func:`isa_facts` says of AMX, in words."""
    features = amx["features"]
    has = f"this CPU has {', '.join(features)}" if features else "this CPU has none"
    return f"{has}; not used: {amx['why_not']}"


def bandwidth_facts(repeats: int = 7) -> dict[str, Any]:
    """Read bandwidth with the threads that will be used, 10^9 bytes a second."""
    threads = machine.default_threads()
    rates = machine.read_bandwidth(threads=threads, repeats=repeats)
    return {
        "threads": threads,
        "repeats": repeats,
        "median": median(rates),
        "lowest": min(rates),
        "highest": max(rates),
    }


def software_facts() -> dict[str, Any]:
    """Versions of Farthing, Python, the system and the packages that matter."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = installed(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "farthing": version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": packages,
    }


def cache_facts() -> dict[str, Any]:
    """The cache folder and what the fetched models in it take, in bytes."""
    from farthing import catalog
    from farthing.download.settings import DownloadSettings

    models = [model for model in catalog.installed() if model.owned]  # others are used in place
    return {
        "folder": str(DownloadSettings.from_environment().home),
        "models": len(models),
        "bytes": sum(model.bytes for model in models),
    }


def describe_cpus(cpus: list[int]) -> str:
    """CPU numbers as ranges: [0, 1, 2, 5] is ``"0-2,5"``."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
