"""Follows the engine step by step, and says when places will be free."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import islice
from math import ceil

from farthing.server.admission.answer_lengths import AnswerLengths
from farthing.server.admission.prompts import Ask, Entered, Prompt
from farthing.server.admission.step_times import StepTimeModel
from farthing.server.admission.wait_prediction import Forecast, Machine, play
from farthing.server.seam.messages import Stepped

HORIZON = 240.0
"""Seconds that are played ahead; beyond, places come as they did at the end."""

MOST_PLAYED = 1024
"""Prompts that wait and are played; what is behind them goes on as they do."""

MOST_AGE = 1.0
"""Seconds for which a forecast holds while nobody enters, begins, ends or leaves."""

SLACK = 0.1
"""Share of a wait that is added to it: who comes too early comes in vain, and who comes too late
takes nothing from the engine, which has a queue to go on with."""

MOST_STRETCH = 4.0
"""By how much more or less than it says a forecast is believed to take."""

_WATCHED = 16  # places at a time
_NOTED = 16  # tokens of a running answer between two notes of its length
_RECENT = 32  # requests of which the usual one is the mean


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
        self._running: dict[int, Prompt] = {}
        self._gap = 0.0  # seconds between the steps of a busy engine
        self._started = 0.0  # when the last step did
        self._ended = 0.0
        self._busy = False  # whether it left work
        self._entered = 0  # prompts, ever
        self._usual_prompt = 0.0
        self._usual_limit = 0.0
        self._ignoring = 0.0  # share of prompts whose answers end by their limit
        self._freed = 0  # places in the queue, ever
        self._checks: deque[tuple[int, float, float]] = deque()  # that number, since when, expected
        self._stretch = 1.0  # actual to expected seconds until a place is free
        self._changes = 0
        # By whether it has ends: the changes it knows of, when it was made, what it is.
        self._cached: dict[bool, tuple[int, float, tuple[Forecast, float]]] = {}

    def enter(self, request: Entered) -> None:
        """Notes prompts that wait from now on."""
        self._changes += 1
        for prompt in request.prompts:
            ask = prompt.ask
            self._waiting[ask.key] = prompt
            self._entered += 1
            rate = 1 / min(self._entered, _RECENT)
            self._usual_prompt += rate * (ask.prompt_tokens - self._usual_prompt)
            self._usual_limit += rate * (ask.max_tokens - self._usual_limit)
            self._ignoring += rate * (ask.ignore_eos - self._ignoring)

    def leave(self, request: Entered) -> list[Prompt]:
        """Forgets a request; its prompts that still waited."""
        self._changes += 1
        waited = []
        for prompt in request.prompts:
            if self._waiting.pop(prompt.ask.key, None) is not None:
                waited.append(prompt)
            elif (running := self._running.pop(prompt.ask.key, None)) is not None:
                self._note_length(running, ended=False)
        return waited

    def free(self, now: float) -> None:
        """Notes that a request waits no more, and how right what was expected of it was."""
        self._freed += 1
        while self._checks and self._checks[0][0] <= self._freed:
            _, since, expected = self._checks.popleft()
            ratio = min(max((now - since) / expected, 1 / MOST_STRETCH), MOST_STRETCH)
            self._stretch += (ratio - self._stretch) / 8

    def _watch(self, forecast: Forecast, began: float, waiting: int) -> None:
        """Notes what is expected of a place in the middle of those that are taken now."""
        place = (waiting + 1) // 2
        number = self._freed + place
        if len(self._checks) < _WATCHED and place <= len(forecast.places):
            expected = forecast.places[place - 1]
            if expected > 0 and not (self._checks and number <= self._checks[-1][0]):
                self._checks.append((number, began, expected))

    def predict(self, stepped: Stepped) -> float:
        """Seconds that a step of its rows takes, by what is known so far."""
        return self.steps.predict(stepped.decode_rows, stepped.prefill_rows)

    def on_step(self, stepped: Stepped) -> list[Prompt]:
        """Learns from a step; the prompts that waited and began in it."""
        before = self._started
        self._note_time(stepped)
        begun = []
        for key in stepped.begun:
            if (prompt := self._waiting.pop(key, None)) is not None:
                prompt.begun = True
                prompt.unfinished = prompt.ask.sequences
                self._running[key] = prompt
                begun.append(prompt)
        self._note_memory(before, stepped.num_waiting)
        changes = len(begun)
        for key, read, sampled, unfinished in stepped.progress:
            if (found := self._running.get(key)) is None:
                continue
            changes += found.unfinished - unfinished
            found.read, found.sampled, found.unfinished = read, sampled, unfinished
            if not unfinished:
                self._end(found)
            elif found.sampled_each - found.noted >= _NOTED:
                self._note_length(found, ended=False)
        for key, _ in (*stepped.outputs, *stepped.failures):  # of those that had no rows
            if (found := self._running.pop(key, None)) is not None:
                changes += 1
                self._note_length(found, ended=False)
        self._changes += changes
        return begun

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
        running = sum(prompt.unfinished for prompt in self._running.values())
        first = next(iter(self._waiting.values()), None)
        held = waiting > 0 and first is not None and first.request.at < before
        if held and running < self._max_num_seqs:
            self._slots += (max(running, 1) - self._slots) / 32
        else:
            self._slots = float(self._max_num_seqs)

    def _end(self, prompt: Prompt) -> None:
        del self._running[prompt.ask.key]
        prompt.unfinished = 0
        self._note_length(prompt, ended=prompt.sampled_each < prompt.ask.max_tokens)

    def _note_length(self, prompt: Prompt, *, ended: bool) -> None:
        if not prompt.ask.ignore_eos:
            self.lengths.observe(prompt.noted, prompt.sampled_each, ended=ended)
        prompt.noted = prompt.sampled_each

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
        return self.place(len(known) + ceil(more / max(self._usual_prompt, 1.0)), now)

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
        if cached is not None and cached[0] == self._changes and now - cached[1] < MOST_AGE:
            return cached[2]
        waiting = list(islice(self._waiting.values(), MOST_PLAYED))
        if self._busy or not waiting:
            began = self._ended if self._busy else now
        else:
            began = waiting[0].request.at  # it woke up then
        forecast = play(
            list(self._running.values()),
            waiting,
            Machine(round(self._slots), self._rows, self._seconds, self.lengths),
            began=began,
            usual=self._usual(),
            further=0 if ends else self._max_num_seqs,
            horizon=HORIZON,
            ends=ends,
        )
        # A first step that should have ended ends now.
        began = max(began, now - forecast.first_step)
        if not ends:
            self._watch(forecast, began, len({id(prompt.request) for prompt in waiting}))
        self._cached[ends] = self._changes, now, (forecast, began)
        return forecast, began

    def _usual(self) -> Ask:
        """What a request asks as a rule."""
        tokens, limit = round(self._usual_prompt), round(self._usual_limit)
        return Ask(0, max(tokens, 1), 1, max(limit, 1), self._ignoring > 0.5)

    def _seconds(self, decode_rows: int, prefill_rows: int) -> float:
        return self.steps.predict(decode_rows, prefill_rows) + self._gap
