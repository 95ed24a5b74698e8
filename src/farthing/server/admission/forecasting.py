"""Follows the engine step by step, and says when places will be free."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from dataclasses import dataclass
from itertools import cycle, groupby, islice
from math import ceil
from statistics import fmean

from farthing.engine.fair_share import VirtualTokenCounters
from farthing.server.admission.answer_lengths import AnswerLengths
from farthing.server.admission.prompts import Ask, Choice, Entered, Prompt, prompt_tokens
from farthing.server.admission.step_times import StepTimeModel
from farthing.server.admission.wait_prediction import Forecast, Machine, play
from farthing.server.seam.messages import Stepped

HORIZON = 240.0
"""Seconds that are played ahead; beyond, places come as they did before."""

MOST_PLAYED = 4096
"""Answers that wait and are played one by one; of more, prompts of a request are one long one."""

MOST_AGE = 1.0
"""Seconds for which a forecast holds while nobody enters, begins, ends or leaves."""

MANY = 1024
"""Answers that wait beyond which it holds as long whoever does: it takes some ten milliseconds."""

SLACK = 0.1
"""Share of a wait that is added to it: who comes too early comes in vain, and who comes too late
takes nothing from the engine, which has a queue to go on with."""

MOST_STRETCH = 4.0
"""By how much more or less than it says a forecast is believed to take."""

_WATCHED = 16  # places at a time
_NOTED = 16  # tokens of a running answer between two notes of its length
_RECENT = 32  # requests, as which further ones are believed to be


@dataclass(slots=True)
class Begun:
    """What waits no more."""

    tokens: int = 0  # of prompts
    requests: int = 0


class Forecasting:
    """What runs and waits in the engine, as far as steps have told, and what follows from it."""

    def __init__(
        self, max_num_seqs: int, max_num_batched_tokens: int, steps: StepTimeModel
    ) -> None:
        self.lengths = AnswerLengths()
        self.steps = steps
        self._rows = max_num_batched_tokens
        self._max_num_seqs = max_num_seqs
        self._slots = float(max_num_seqs)  # fewer while memory admits no more
        self._waiting: dict[int, Prompt] = {}  # by key, in order of arrival
        self._running: dict[int, Prompt] = {}  # those of which a choice has begun
        self._num_waiting = 0  # requests of which an answer has not
        self._gap = 0.0  # seconds between the steps of a busy engine
        self._started = 0.0  # when the last step did
        self._ended = 0.0
        self._busy = False  # whether it left work
        self._recent: deque[list[Ask]] = deque(maxlen=_RECENT)  # requests, the last first
        self._served = VirtualTokenCounters()  # as the engine has them
        self._users_waiting: Counter[str] = Counter()  # prompts
        self._freed = 0  # places in the queue, ever
        self._checks: deque[tuple[int, float, float]] = deque()  # that number, since when, expected
        self._stretch = 1.0  # actual to expected seconds until a place is free
        self._answers = 0  # that wait
        self._changes = 0
        # By whether it has ends: the changes it knows of, when it was made, what it is.
        self._cached: dict[bool, tuple[int, float, tuple[Forecast, float]]] = {}

    def enter(self, request: Entered) -> None:
        """Notes prompts that wait from now on."""
        self._changes += 1
        self._num_waiting += 1
        self._answers += request.waiting
        for prompt in request.prompts:
            self._waiting[prompt.ask.key] = prompt
        self._recent.appendleft([prompt.ask for prompt in request.prompts])
        self._served.enter(request.user)
        if not self._users_waiting[request.user]:
            self._served.lift(request.user, None)
        self._users_waiting[request.user] += len(request.prompts)

    def leave(self, request: Entered, now: float) -> Begun:
        """Forgets a request; what of it still waited."""
        self._changes += 1
        begun = Begun()
        for prompt in request.prompts:
            self._drop(prompt, begun, now)
        self._served.leave(request.user)
        return begun

    def _drop(self, prompt: Prompt, begun: Begun, now: float) -> None:
        """Forgets a prompt, wherever it is."""
        if self._waiting.pop(prompt.ask.key, None) is not None:
            self._leave_queue(prompt, begun)
        elif self._running.pop(prompt.ask.key, None) is None:
            return
        for choice in prompt.running.values():
            self._note_length(prompt.ask, choice, ended=False)
        self._wait_no_more(prompt, prompt.waiting, begun, now)

    def _leave_queue(self, prompt: Prompt, begun: Begun) -> None:
        begun.tokens += prompt.ask.prompt_tokens
        user = prompt.request.user
        self._users_waiting[user] -= 1
        if not self._users_waiting[user]:
            del self._users_waiting[user]

    def _wait_no_more(self, prompt: Prompt, count: int, begun: Begun, now: float) -> None:
        """Notes that so many of its choices have begun, or never will."""
        request = prompt.request
        self._answers -= count
        prompt.waiting -= count
        request.waiting -= count
        if count and not request.waiting:
            begun.requests += 1
            self._num_waiting -= 1
            self._free(now)

    def _free(self, now: float) -> None:
        """Notes that a request waits no more, and how right what was expected of it was."""
        self._freed += 1
        while self._checks and self._checks[0][0] <= self._freed:
            _, since, expected = self._checks.popleft()
            ratio = min(max((now - since) / expected, 1 / MOST_STRETCH), MOST_STRETCH)
            self._stretch += (ratio - self._stretch) / 8

    def _watch(self, forecast: Forecast, began: float) -> None:
        """Notes what is expected of a place in the middle of those that are taken now."""
        place = (self._num_waiting + 1) // 2
        number = self._freed + place
        if len(self._checks) < _WATCHED and place <= len(forecast.places):
            expected = forecast.places[place - 1]
            if expected > 0 and not (self._checks and number <= self._checks[-1][0]):
                self._checks.append((number, began, expected))

    def predict(self, stepped: Stepped) -> float:
        """Seconds that a step of its rows takes, by what is known so far."""
        return self.steps.predict(stepped.decode_rows, stepped.prefill_rows)

    def on_step(self, stepped: Stepped, now: float) -> Begun:
        """Learns from a step; what waited and began in it, or ended without that."""
        before = self._started
        self._note_time(stepped)
        begun = Begun()
        for key, number in stepped.begun:
            if (prompt := self._waiting.pop(key, None)) is not None:
                self._leave_queue(prompt, begun)
                self._running[key] = prompt
                self._served.admitted(prompt.request.user)
                self._served.charge(prompt.request.user, prompt.ask.prompt_tokens, 0)
            elif (prompt := self._running.get(key)) is None:
                continue
            prompt.running[number] = Choice()
            self._wait_no_more(prompt, 1, begun, now)
        self._note_memory(before, stepped.num_waiting)
        self._changes += len(stepped.begun)
        for key, number, read, sampled, ended in stepped.progress:
            prompt = self._running.get(key) or self._waiting.get(key)
            if prompt is None:
                continue
            prompt.read = prompt.ask.prompt_tokens if sampled else read
            choice = prompt.running.get(number)
            if choice is not None:
                self._served.charge(prompt.request.user, 0, sampled - choice.sampled)
                choice.sampled = sampled
                if sampled - choice.noted >= _NOTED and not ended:
                    self._note_length(prompt.ask, choice, ended=False)
            if ended:
                self._end(prompt, number, begun, now)
        for key, _ in stepped.failures:
            if (prompt := self._running.get(key) or self._waiting.get(key)) is not None:
                self._changes += 1
                self._drop(prompt, begun, now)
        return begun

    def _end(self, prompt: Prompt, number: int, begun: Begun, now: float) -> None:
        """Notes the end of a choice."""
        self._changes += 1
        if (choice := prompt.running.pop(number, None)) is None:  # before it had begun
            self._wait_no_more(prompt, 1, begun, now)
        else:
            self._note_length(prompt.ask, choice, ended=choice.sampled < prompt.ask.max_tokens)
        if not prompt.running and not prompt.waiting:
            self._drop(prompt, begun, now)

    def _note_time(self, stepped: Stepped) -> None:
        seconds = stepped.ended - stepped.started
        decode, prefill = stepped.decode_rows, stepped.prefill_rows
        if seconds > 0 and decode + prefill > 0:
            self.steps.observe(decode, prefill, seconds)
            if self._busy:
                gap = min(max(stepped.started - self._ended, 0.0), seconds)
                self._gap += (gap - self._gap) / 16
        self._started, self._ended = stepped.started, stepped.ended
        self._busy = stepped.num_running + stepped.num_waiting > 0

    def _note_memory(self, before: float, waiting: int) -> None:
        """Notes how many may run, if someone from ``before`` was not let begin though fewer did."""
        running = sum(len(prompt.running) for prompt in self._running.values())
        if waiting and running < self._max_num_seqs and self._is_held(before):
            self._slots += (max(running, 1) - self._slots) / 32
        else:
            self._slots = float(self._max_num_seqs)

    def _is_held(self, before: float) -> bool:
        """Whether someone could have begun already ``before``, had there been memory."""
        first = next(iter(self._waiting.values()), None)
        if first is not None and first.request.at < before:
            return True
        prompts = self._running.values()
        return any(p.waiting and p.read >= p.ask.prompt_tokens for p in prompts)

    def _note_length(self, ask: Ask, choice: Choice, *, ended: bool) -> None:
        if not ask.ignore_eos:
            self.lengths.observe(choice.noted, choice.sampled, ended=ended)
        choice.noted = choice.sampled

    def place(self, number: int, now: float) -> float:
        """When the ``number``-th place of the queue from now on is free; 0 and less: it is."""
        if number <= 0:
            return now
        forecast, began = self._forecast(now)
        known = len(forecast.places)
        if number <= known:
            after = forecast.places[number - 1]
        else:
            after = forecast.places[-1] if known else 0.0
            after += (number - known) * forecast.apart(self._max_num_seqs)
            after = max(after, forecast.reached)
        return began + after * self._scale()

    def _scale(self) -> float:
        """Seconds that are told for one that is foretold."""
        return self._stretch * (1 + SLACK)

    def freed(self, time: float, now: float) -> int:
        """Places that come free until ``time``."""
        forecast, began = self._forecast(now)
        after = (time - began) / self._scale()
        count = bisect_right(forecast.places, after)
        if count == len(forecast.places):
            last = forecast.places[-1] if count else 0.0
            count += int(max(after - last, 0.0) / forecast.apart(self._max_num_seqs))
        return count

    def room(self, tokens: int, now: float) -> float:
        """When prompts of so many tokens that wait now, or will, have begun."""
        if tokens <= 0:
            return now
        forecast, _ = self._forecast(now)
        known = forecast.tokens
        if known and tokens <= known[-1]:
            return self.place(bisect_left(known, tokens) + 1, now)
        more = tokens - (known[-1] if known else 0)
        return self.place(len(known) + ceil(more / self._usual_tokens), now)

    def end(self, principal: str, count: int, now: float) -> float:
        """When so many requests of ``principal`` have ended that have not yet."""
        forecast, began = self._forecast(now, ends=True)
        times = forecast.ends.get(principal, [])
        if count <= len(times):
            after = times[count - 1]
        else:
            last = times[-1] if times else HORIZON
            after = last * count / max(len(times), 1)
        return began + after * self._scale()

    def _forecast(self, now: float, *, ends: bool = False) -> tuple[Forecast, float]:
        """The next steps and when the first of them began: until places are free, or all ends."""
        cached = self._cached.get(ends)
        if cached is not None and now - cached[1] < MOST_AGE:
            changes, _, found = cached
            if changes == self._changes or self._answers > MANY:
                return found
        waiting = self._first_to_wait()
        if self._busy or not waiting:
            began = self._ended if self._busy else now
        else:
            began = waiting[0].request.at  # it woke up then
        forecast = play(
            list(self._running.values()),
            waiting,
            Machine(round(self._slots), self._rows, self._seconds, self.lengths, self._served),
            began=began,
            further=() if ends else self._further(),
            horizon=HORIZON,
            ends=ends,
        )
        # A first step that should have ended ends now.
        began = max(began, now - forecast.first_step)
        if not ends:
            self._watch(forecast, began)
        self._cached[ends] = self._changes, now, (forecast, began)
        return forecast, began

    def _first_to_wait(self) -> list[Prompt]:
        """The prompts that wait, those of a request taken together where they are many."""
        together = -(-self._answers // MOST_PLAYED)
        if together <= 1:
            return list(self._waiting.values())
        prompts: list[Prompt] = []
        for request, group in groupby(self._waiting.values(), key=lambda prompt: prompt.request):
            if len(prompts) >= MOST_PLAYED:
                break
            while few := list(islice(group, together)):
                prompts.append(Prompt(few[0].ask, request, copies=len(few)))
        return prompts

    def _further(self) -> list[list[Ask]]:
        """Requests that may come next: as those that came last.

        Twice as many as run, so that the second half finds all places to run taken, however few
        wait: how far apart those begin says when those behind them do.
        """
        requests: list[list[Ask]] = []
        answers = 0
        for asks in islice(cycle(self._recent), 2 * self._max_num_seqs):
            if answers >= MANY:
                break
            requests.append(asks)
            answers += sum(ask.sequences for ask in asks)
        return requests

    @property
    def _usual_tokens(self) -> float:
        """Of the prompts of a request, in the mean."""
        return max(fmean(map(prompt_tokens, self._recent)), 1.0) if self._recent else 1.0

    def _seconds(self, decode_rows: int, prefill_rows: int) -> float:
        return self.steps.predict(decode_rows, prefill_rows) + self._gap
