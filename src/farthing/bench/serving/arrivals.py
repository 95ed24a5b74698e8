"""When requests are sent: arrival processes, seeded. Times in seconds from the beginning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from farthing.errors import InvalidParameterError

RampUpName = Literal["linear", "exponential"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An arrival process.

    All at once with an infinite ``rate``; otherwise gaps are drawn from a gamma distribution of
    shape ``burstiness`` (1: a Poisson process; less: burstier; more: more even; infinite: all gaps
    equal) whose mean is ``1 / rate``. With ``ramp_up`` the rate goes from ``start_rate`` to
    ``end_rate`` from the first request to the last. With ``burst_size`` so many come together,
    every ``burst_interval`` seconds.
    """

    rate: float = math.inf  # requests a second
    burstiness: float = 1.0
    ramp_up: RampUpName | None = None
    start_rate: float | None = None
    end_rate: float | None = None
    burst_size: int | None = None
    burst_interval: float | None = None

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise InvalidParameterError(f"--request-rate {self.rate}: must be above 0, or inf")
        if not self.burstiness > 0:
            raise InvalidParameterError(f"--burstiness {self.burstiness}: must be above 0")
        self._check_ramp_up()
        if (self.burst_size is None) != (self.burst_interval is None):
            raise InvalidParameterError("--burst-size and --burst-interval: give both or none")
        if self.burst_size is not None and (self.rate != math.inf or self.ramp_up is not None):
            raise InvalidParameterError(
                "--burst-size: bursts have their own rate; leave --request-rate and "
                "--ramp-up-strategy out"
            )

    def _check_ramp_up(self) -> None:
        ends = (self.start_rate, self.end_rate)
        if self.ramp_up is None:
            if ends != (None, None):
                raise InvalidParameterError(
                    "--ramp-up-start-rps, --ramp-up-end-rps: need --ramp-up-strategy"
                )
            return
        if self.start_rate is None or self.end_rate is None:
            raise InvalidParameterError(
                f"--ramp-up-strategy {self.ramp_up}: needs --ramp-up-start-rps and "
                "--ramp-up-end-rps"
            )
        if self.rate != math.inf:
            raise InvalidParameterError(
                "--request-rate: the ramp has its own rates; leave one of them out"
            )
        if not 0 < self.start_rate <= self.end_rate < math.inf:
            raise InvalidParameterError(
                f"--ramp-up-start-rps {self.start_rate:g}, --ramp-up-end-rps {self.end_rate:g}: "
                "must be above 0 and rising"
            )

    def times(self, count: int, seed: int) -> list[float]:
        """When each of ``count`` requests is sent, ascending. The same for the same ``seed``.

        At one rate all times are stretched so that the last is sent at ``count / rate``, as vLLM
        does it: throughput then depends less on the seed.
        """
        if self.burst_size is not None and self.burst_interval is not None:
            return [i // self.burst_size * self.burst_interval for i in range(count)]
        rates = self._rates(count)
        if math.isinf(rates[0]):
            return [0.0] * count
        if math.isinf(self.burstiness):
            gaps = 1 / rates
        else:
            shape = self.burstiness
            gaps = np.random.default_rng(seed).gamma(shape, 1 / (shape * rates))
        times = np.cumsum(gaps)
        if self.ramp_up is None and times[-1] > 0:
            times *= count / self.rate / times[-1]
        return [float(time) for time in times]

    def _rates(self, count: int) -> np.ndarray:
        """Of each request, (count,), a second."""
        if self.ramp_up is None:
            return np.full(count, self.rate)
        assert self.start_rate is not None
        assert self.end_rate is not None
        progress = np.arange(count) / max(count - 1, 1)
        if self.ramp_up == "linear":
            return self.start_rate + (self.end_rate - self.start_rate) * progress
        ratio: np.ndarray = self.start_rate * (self.end_rate / self.start_rate) ** progress
        return ratio

    def describe(self) -> str:
        """In a few words."""
        if self.burst_size is not None:
            return f"{self.burst_size} at a time every {self.burst_interval:g} s"
        if self.ramp_up is not None:
            return f"{self.ramp_up} from {self.start_rate:g} to {self.end_rate:g} a second"
        if math.isinf(self.rate):
            return "all at once"
        if self.burstiness == 1:
            return f"Poisson, {self.rate:g} a second"
        return f"{self.rate:g} a second, burstiness {self.burstiness:g}"
