"""When the next places in the queue will be free: the engine's next steps, played ahead."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from farthing.server.admission.answer_lengths import AnswerLengths
from farthing.server.admission.prompts import Ask, Entered, Prompt

GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Machine:
    """What runs: at most ``slots`` sequences, steps of at most ``rows`` rows, so long each."""

    slots: int
    rows: int
    seconds: Callable[[int, int], float]  # of decoding rows and rows of prompts
    lengths: AnswerLengths


@dataclass(slots=True)
class Forecast:
    """Seconds from the beginning of the step that is played first."""

    places: list[float] = field(default_factory=list)  # when each request has wholly begun
    tokens: list[int] = field(default_factory=list)  # of prompts that have begun by then
    ends: dict[str, list[float]] = field(default_factory=dict)  # of requests, by principal
    first_step: float = 0.0

    def apart(self, last: int) -> float:
        """Seconds between two places, on average over the last so many."""
        count = min(last, len(self.places))
        if count == 0:
            return self.first_step
        before = self.places[-count - 1] if len(self.places) > count else 0.0
        return max((self.places[-1] - before) / count, 1e-6)


def play(
    running: Sequence[Prompt],
    waiting: Sequence[Prompt],
    machine: Machine,
    *,
    began: float,
    usual: Ask,
    further: int,
    horizon: float,
    ends: bool = False,
) -> Forecast:
    """Plays the steps from ``began`` on until all that waits has begun, and ``further`` requests.

    Further ones are like ``usual``: whoever gets a place in the queue keeps the engine busy. With
    ``ends`` it goes on until all of ``running`` and ``waiting`` have ended; ``horizon`` seconds end
    it anyway. Prompts wait in the order given; those of a request that entered after ``began`` miss
    the first step. Each answer gets a length of its own quantile, spread evenly over the answers:
    the first of many to end is much earlier than the mean of one.
    """
    player = _Player(machine, began, usual, further)
    return player.play(running, waiting, horizon, ends=ends)


class _Player:
    """Sequences in their places, from one event to the next."""

    def __init__(self, machine: Machine, began: float, usual: Ask, further: int) -> None:
        self.machine = machine
        self.began = began
        self.usual = usual
        self.further = further
        self.forecast = Forecast()
        self.time = 0.0
        self.steps = 0
        self.free = machine.slots
        self.decoding: list[tuple[int, int, Prompt]] = []  # heap by the step of its last token
        self.reading: list[tuple[int, int, Prompt]] = []  # by tokens left to read
        self.ahead: list[Prompt] = []  # choices whose prompt is read, without a place
        self.unbegun: dict[Entered, int] = {}  # prompts
        self.unended: dict[Entered, int] = {}  # choices
        self.count = 0
        self.begun_tokens = 0

    def play(
        self, running: Sequence[Prompt], waiting: Sequence[Prompt], horizon: float, *, ends: bool
    ) -> Forecast:
        for prompt in running:
            self._place_running(prompt)
        for prompt in waiting:
            request = prompt.request
            self.unbegun[request] = self.unbegun.get(request, 0) + 1
            self.unended[request] = self.unended.get(request, 0) + prompt.ask.sequences
        queue = list(reversed(waiting))
        while self.time < horizon and (queue or self.further > 0 or (ends and self.unended)):
            begun = self._admit(queue)
            if not self.decoding and not self.reading:
                if not queue:
                    break
                # Nobody was early enough for the first step; it is there all the same.
                self.began = queue[-1].request.at
                continue
            late = self.steps == 0 and bool(queue) and self.free > 0
            self._advance(one_step=late or bool(begun))
            for prompt in begun:
                self._note_begun(prompt)
            while self.decoding and self.decoding[0][0] <= self.steps:
                self._end(heapq.heappop(self.decoding)[2])
        return self.forecast

    def _place_running(self, prompt: Prompt) -> None:
        request = prompt.request
        self.unended[request] = self.unended.get(request, 0) + prompt.unfinished
        if prompt.sampled == 0:
            self._read(prompt)
            return
        for _ in range(prompt.unfinished):
            self._decode(prompt)

    def _read(self, prompt: Prompt) -> None:
        self.free -= 1
        self.count += 1
        left = max(prompt.ask.prompt_tokens - prompt.read, 1)
        insort(self.reading, (left, self.count, prompt))

    def _decode(self, prompt: Prompt) -> None:
        """Gives a choice a place and a length."""
        self.free -= 1
        self.count += 1
        ask, sampled = prompt.ask, prompt.sampled_each
        left = ask.max_tokens - sampled
        if not ask.ignore_eos:
            quantile = self.count * GOLDEN % 1
            left = self.machine.lengths.remainder(sampled, ask.max_tokens, quantile)
        if not sampled:
            left -= 1  # the pass that read its prompt has given the first
        heapq.heappush(self.decoding, (self.steps + left, self.count, prompt))

    def _admit(self, queue: list[Prompt]) -> list[Prompt]:
        """Fills the free places; the prompts that begin."""
        begun = []
        while self.free > 0:
            if self.ahead:
                self._decode(self.ahead.pop())
            elif queue:
                if self.steps == 0 and queue[-1].request.at > self.began:
                    break
                prompt = queue.pop()
                self._read(prompt)
                begun.append(prompt)
            elif self.further > 0 and (self.decoding or self.reading):
                self.further -= 1
                request = Entered("", self.began)
                prompt = Prompt(self.usual, request)
                self.unbegun[request] = 1
                self._read(prompt)
                begun.append(prompt)
            else:
                break
        return begun

    def _advance(self, *, one_step: bool) -> None:
        """Plays steps up to the next event, or one."""
        decoding = len(self.decoding)
        rows = max(self.machine.rows - decoding, 1)
        count = self.decoding[0][0] - self.steps if decoding else 0
        if self.reading:
            reading = self.reading[0][0] // rows
            count = min(count, reading) if decoding else reading
        if one_step or count < 1:
            count = 1
        total = 0
        room = rows * count
        while self.reading and room:
            left, number, prompt = self.reading[0]
            taken = min(left, room)
            total += taken
            room -= taken
            if taken < left:
                self.reading[0] = (left - taken, number, prompt)
                break
            self.reading.pop(0)
            self.free += 1
            self.ahead.append(prompt)
            self.ahead.extend([prompt] * (prompt.ask.sequences - 1))
        self.time += count * self.machine.seconds(decoding, total // count)
        self.steps += count
        if not self.forecast.first_step:
            self.forecast.first_step = self.time / count
        while self.ahead and self.free > 0:
            self._decode(self.ahead.pop())

    def _note_begun(self, prompt: Prompt) -> None:
        self.begun_tokens += prompt.ask.prompt_tokens
        request = prompt.request
        self.unbegun[request] -= 1
        if not self.unbegun[request]:
            self.forecast.places.append(self.time)
            self.forecast.tokens.append(self.begun_tokens)

    def _end(self, prompt: Prompt) -> None:
        self.free += 1
        request = prompt.request
        left = self.unended.pop(request, 0) - 1
        if left > 0:
            self.unended[request] = left
        elif left == 0:
            self.forecast.ends.setdefault(request.principal, []).append(self.time)
