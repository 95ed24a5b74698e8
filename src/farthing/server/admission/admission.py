"""Who may wait: a queue of bounded length, and the time to come again for all beyond it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from farthing.openai_protocol.errors import RequestError
from farthing.server.admission.forecasting import Begun, Forecasting
from farthing.server.admission.limits import QueueLimits, RateLimits
from farthing.server.admission.numbers import AdmissionNumbers, Refusal
from farthing.server.admission.promises import LEAST_WAIT, MOST_WAIT, Promises
from farthing.server.admission.prompts import Ask, Entered, Prompt, prompt_tokens
from farthing.server.admission.rate_limits import RateLimiter
from farthing.server.admission.step_times import LinearStepTimes, StepTimeModel, first_guess
from farthing.server.principal import Principal
from farthing.server.seam.messages import EngineInfo, Stepped

__all__ = ["Admission", "Ask", "Place"]


class Admission:
    """Lets requests in while there is room for them to wait.

    A request waits from :meth:`enter` until the engine has begun all its answers; the tokens of a
    prompt count until the first of its own has. Neither number is ever above its limit. Who finds
    no room is told when there will be, each a place of his own. Who comes is not known by name, so
    his place is not kept for him alone. ``max_num_seqs``, ``max_num_batched_tokens`` and
    ``fair_share`` are the engine's. One thread.
    """

    def __init__(
        self,
        limits: QueueLimits,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int = 512,
        rates: RateLimits | None = None,
        fair_share: bool = True,
        steps: StepTimeModel | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._fair_share = fair_share
        self._waiting = 0  # requests
        self._tokens = 0  # of prompts that wait
        self._promises = Promises()
        self._rates = RateLimiter(rates or RateLimits())
        self._forecasting = Forecasting(
            max_num_seqs, max_num_batched_tokens, steps or LinearStepTimes()
        )
        self.numbers = AdmissionNumbers()

    @classmethod
    def for_engine(
        cls,
        info: EngineInfo,
        limits: QueueLimits,
        *,
        rates: RateLimits | None = None,
        fair_share: bool = True,
    ) -> Admission:
        """Before the engine that says ``info`` of itself."""
        guess = first_guess(info.weight_bytes, info.num_threads, info.read_bandwidth)
        return cls(
            limits,
            max_num_seqs=info.max_num_seqs,
            max_num_batched_tokens=info.max_num_batched_tokens,
            rates=rates,
            fair_share=fair_share,
            steps=LinearStepTimes(guess),
        )

    def enter(
        self, principal: Principal, asks: Sequence[Ask], *, retries: int | None = None
    ) -> Place:
        """A place for a request of ``principal`` with the prompts of ``asks``, of keys not in use.

        ``retries``: how often it has come before, as clients of OpenAI's kind say in
        ``x-stainless-retry-count``; None: they do not say. Who is known to come for the first time
        has no place, while more than half of them are taken, that those need who were told to come.

        Raises :class:`RequestError`: 400 for more tokens than may ever wait, 429 with the seconds
        after which to come again where a limit of the key or of the queue is reached.
        """
        now = self._clock()
        tokens = prompt_tokens(asks)
        if tokens > self.limits.max_prompt_tokens:
            self.numbers.refusals[Refusal.TOO_LARGE] += 1
            raise RequestError(
                f"the request has {tokens} prompt tokens, at most "
                f"{self.limits.max_prompt_tokens} may wait (max_num_queued_tokens)",
                code="too_many_prompt_tokens",
            )
        exceeded = self._rates.check(
            principal, now, lambda name, count: self._forecasting.end(name, count, now)
        )
        if exceeded is not None:
            raise self._refused(
                Refusal(exceeded.reason),
                "rate_limit_exceeded",
                f"this key has {exceeded.message}",
                exceeded.time - now,
            )
        again = retries != 0 and self._promises.arrive(now)
        if self._waiting >= self.limits.max_requests:
            raise self._queue_full(Refusal.QUEUE_REQUESTS, tokens, now, again=again)
        if self._tokens + tokens > self.limits.max_prompt_tokens:
            raise self._queue_full(Refusal.QUEUE_TOKENS, tokens, now, again=again)
        if retries == 0 and not self._has_place_for_newcomer(now):
            raise self._queue_full(Refusal.PROMISED, tokens, now, again=False)
        self._rates.enter(principal, now)
        user = asks[0].user if asks and self._fair_share else ""
        request = Entered(principal.name, now, user, asks[0].priority if asks else 0)
        request.prompts = [Prompt(ask, request) for ask in asks]
        request.waiting = sum(ask.sequences for ask in asks)
        if asks:
            self._waiting += 1
            self._tokens += tokens
            self._forecasting.enter(request)
        self._count()
        return Place(self, principal, request)

    def refuse_if_full(self, principal: Principal, *, retries: int | None = None) -> None:
        """Refuses who finds no place, whatever the prompts are: they need not be read for that.

        Raises as :meth:`enter`.
        """
        if self._waiting >= self.limits.max_requests:
            self.enter(principal, (), retries=retries)

    def _has_place_for_newcomer(self, now: float) -> bool:
        free = self.limits.max_requests - self._waiting
        if free >= self._waiting:
            return True  # whoever does not come leaves the engine without work otherwise
        forecasting = self._forecasting
        return self._promises.allow(free, lambda time: forecasting.freed(time, now), now)

    def on_step(self, stepped: Stepped) -> float:
        """Takes note of a step: who began and how far all have come, and how long it took.

        Returns the seconds, above 0, that it was expected to take before that was known.
        """
        predicted = self._forecasting.predict(stepped)
        self._note_begun(self._forecasting.on_step(stepped, self._clock()))
        return predicted

    def _note_begun(self, begun: Begun) -> None:
        self._tokens -= begun.tokens
        self._waiting -= begun.requests
        self._count()

    def _leave(self, principal: Principal, request: Entered) -> None:
        if request.left:
            return
        request.left = True
        self._rates.leave(principal)
        self._note_begun(self._forecasting.leave(request, self._clock()))

    def _queue_full(self, reason: Refusal, tokens: int, now: float, *, again: bool) -> RequestError:
        limits, promises, forecasting = self.limits, self._promises, self._forecasting
        option = "max_num_queued_reqs"
        if reason is Refusal.QUEUE_REQUESTS:
            message = f"{self._waiting} requests wait, which is the most that may"
        elif reason is Refusal.PROMISED:
            message = f"{self._waiting} requests wait and others were told to come, of at most "
            message += str(limits.max_requests)
        else:
            message = f"{self._tokens} of {limits.max_prompt_tokens} prompt tokens wait already"
            message += f", this request has {tokens}"
            option = "max_num_queued_tokens"
        place = promises.place(again=again) - (limits.max_requests - self._waiting)
        missing = self._tokens + promises.room(tokens, again=again) - limits.max_prompt_tokens
        free = max(forecasting.place(place, now), forecasting.room(missing, now))
        wait = max(free - now, LEAST_WAIT)
        promises.add(now + wait, now, tokens, again=again)
        return self._refused(reason, "queue_full", f"{message} ({option})", wait)

    def _refused(self, reason: Refusal, code: str, message: str, wait: float) -> RequestError:
        told = min(max(wait, LEAST_WAIT), MOST_WAIT)
        self.numbers.refusals[reason] += 1
        self.numbers.promised.observe(told)
        when = f"try again in {max(wait, LEAST_WAIT):.1f} seconds"
        return RequestError(
            f"{message}; {when}",
            status=429,
            type="rate_limit_error",
            code=code,
            retry_after=told,
        )

    def _count(self) -> None:
        self.numbers.waiting_requests = self._waiting
        self.numbers.waiting_tokens = self._tokens


class Place:
    """A request's, from when it is let in until it leaves; also a context manager."""

    __slots__ = ("_admission", "_principal", "_request")

    def __init__(self, admission: Admission, principal: Principal, request: Entered) -> None:
        self._admission = admission
        self._principal = principal
        self._request = request

    def leave(self) -> None:
        """Gives the place back, wherever the request stands. Twice is once."""
        self._admission._leave(self._principal, self._request)

    def __enter__(self) -> Place:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves."""
        self.leave()
