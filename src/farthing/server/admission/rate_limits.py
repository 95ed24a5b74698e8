"""What one key may do: requests a minute, and at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from farthing.server.admission.limits import RateLimits
from farthing.server.admission.promises import MOST_WAIT, Promises
from farthing.server.principal import Principal

_SWEEP_AT = 256  # principals


@dataclass(slots=True)
class _Account:
    """What a principal has done."""

    requests: float = 0.0  # of this minute's, not given back by time
    at: float = 0.0  # when that was so
    last_promised: float = 0.0  # when the last who was refused may come
    concurrent: int = 0
    promises: Promises = field(default_factory=Promises)  # of those beyond the concurrent ones


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The limit that a request would break, and when it would not."""

    reason: str  # rate, concurrency
    message: str
    time: float


class RateLimiter:
    """A bucket of requests for each principal, refilled evenly, and a count of what is in work.

    A full bucket has a minute's requests. Principals whose bucket is full and who have nothing in
    work are forgotten, so memory is bounded by those who asked within a minute.
    """

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._accounts: dict[str, _Account] = {}
        self._sweep_at = _SWEEP_AT

    def __len__(self) -> int:
        """Principals that are remembered."""
        return len(self._accounts)

    def check(
        self, principal: Principal, now: float, end: Callable[[str, int], float]
    ) -> Exceeded | None:
        """The limit that one more request would break.

        ``end``: when so many requests of a principal have ended. Of several who are refused each is
        told a moment of its own.
        """
        per_minute, at_a_time = self._of(principal)
        if per_minute is None and at_a_time is None:
            return None
        account = self._account(principal.name, now, per_minute)
        again = account.promises.arrive(now)
        if per_minute is not None and account.requests > per_minute - 1:
            apart = 60 / per_minute
            free = now + (account.requests - (per_minute - 1)) * apart
            if account.last_promised >= free:
                free = account.last_promised + apart
            if free - now <= MOST_WAIT:
                account.last_promised = free
            return Exceeded("rate", f"more than {per_minute} requests a minute", free)
        if at_a_time is not None and account.concurrent >= at_a_time:
            over = account.concurrent - at_a_time  # the limit may have been lowered
            time = max(end(principal.name, over + account.promises.place(again=again)), now)
            account.promises.add(time, now, again=again)
            return Exceeded("concurrency", f"more than {at_a_time} requests at a time", time)
        return None

    def enter(self, principal: Principal, now: float) -> None:
        """Counts a request that is let in."""
        account = self._account(principal.name, now, self._of(principal)[0])
        account.requests += 1
        account.concurrent += 1
        if len(self._accounts) > self._sweep_at:
            self._sweep(now)

    def leave(self, principal: Principal) -> None:
        """Counts one that has ended."""
        self._accounts[principal.name].concurrent -= 1

    def _of(self, principal: Principal) -> tuple[int | None, int | None]:
        limits = self._limits
        per_minute, at_a_time = principal.requests_per_minute, principal.max_concurrent_requests
        return (
            limits.requests_per_minute if per_minute is None else per_minute,
            limits.max_concurrent_requests if at_a_time is None else at_a_time,
        )

    def _account(self, name: str, now: float, per_minute: int | None) -> _Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = _Account(at=now)
        refilled = (now - account.at) * (per_minute or 0) / 60
        account.requests = max(account.requests - refilled, 0.0) if per_minute else 0.0
        account.at = now
        return account

    def _sweep(self, now: float) -> None:
        """Forgets who has been away for a minute: every bucket is full then."""
        self._accounts = {
            name: account
            for name, account in self._accounts.items()
            if account.concurrent or now - account.at < 60
        }
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._accounts))
