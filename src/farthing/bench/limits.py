"""What this machine can do at most, measured in turns with what is compared with it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from farthing import _native, machine

LOOP_SECONDS = 0.003
"""How long one timing of a loop of multiply-adds takes, about."""

TILES_PER_THREAD = 8
"""What threads claim of a timing, as they claim the tiles of a pass."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Read bandwidth in 10^9 bytes a second; 10^9 multiply-adds a second of each loop."""

    read: float
    integer: dict[str, float]  # of int8 products, by instructions
    floating: dict[str, float]  # of float32

    @property
    def best_integer(self) -> tuple[str, float]:
        """The fastest loop of int8 products."""
        return max(self.integer.items(), key=lambda item: item[1])

    @property
    def best_floating(self) -> tuple[str, float]:
        """The fastest loop of float32."""
        return max(self.floating.items(), key=lambda item: item[1])

    def as_json(self) -> dict[str, object]:
        """As one level of a record."""
        return {
            "read_gb_s": self.read,
            "integer_gmac_s": dict(self.integer),
            "float_gmac_s": dict(self.floating),
        }


def combine(rates: Sequence[Rates], how: str = "median") -> Rates:
    """The median or mean of several, each number by itself."""
    of = statistics.median if how == "median" else statistics.fmean
    return Rates(
        of([r.read for r in rates]),
        {name: of([r.integer[name] for r in rates]) for name in rates[0].integer},
        {name: of([r.floating[name] for r in rates]) for name in rates[0].floating},
    )


def beyond_cache_bytes(least: int = 128 << 20) -> int:
    """Bytes that surely come from memory: four times the last-level cache, and ``least``.

    At most a quarter of what is available.
    """
    wanted = max(least, 4 * machine.last_level_cache_bytes())
    return max(min(wanted, machine.memory_available() // 4), 1 << 20)


class Limits:
    """Probes the machine with the threads that do the work, their memory kept between probes."""

    def __init__(self, threads: _native.ThreadPool, nbytes: int | None = None) -> None:
        self._threads = threads
        self._isa = machine.active_isa()
        self._tiles = TILES_PER_THREAD * threads.num_threads
        self._region = _native.ReadRegion(nbytes or beyond_cache_bytes(256 << 20), threads)
        self._loops = _native.limit_loops(self._isa)
        self._iterations = {loop["name"]: self._calibrate(loop["name"]) for loop in self._loops}

    @property
    def num_threads(self) -> int:
        """Threads that were probed."""
        return self._threads.num_threads

    def _calibrate(self, name: str) -> int:
        """Iterations of a tile with which a timing takes about :data:`LOOP_SECONDS`."""
        iterations = 100
        while True:
            seconds = self._time(name, iterations)
            if seconds > LOOP_SECONDS / 4 or iterations >= 1 << 20:
                return min(max(int(iterations * LOOP_SECONDS / seconds), 100), 1 << 22)
            iterations *= 4

    def _time(self, name: str, iterations: int) -> float:
        return _native.time_limit_loop(self._isa, name, self._threads, iterations, self._tiles)

    def probe(self) -> Rates:
        """Measures all of it, each the median of three, in less than a tenth of a second."""
        rates: dict[bool, dict[str, float]] = {True: {}, False: {}}
        for loop in self._loops:
            name = loop["name"]
            iterations = self._iterations[name]
            seconds = statistics.median(self._time(name, iterations) for _ in range(3))
            done = iterations * self._tiles * loop["macs"]
            rates[loop["integer"]][name] = done / seconds / 1e9
        read = statistics.median(self._region.read() for _ in range(3))
        return Rates(read, rates[True], rates[False])


def barrier_seconds(threads: _native.ThreadPool, rounds: int = 2000) -> list[float]:
    """What a team spends between two instructions, one value for each of ``rounds`` barriers."""
    return list(_native.barrier_seconds(threads, rounds))
