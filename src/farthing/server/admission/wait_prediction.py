"""When the next places in the queue will be free: the engine's next steps, played ahead."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from farthing.engine.fair_share import INPUT_WEIGHT, OUTPUT_WEIGHT, VirtualTokenCounters
from farthing.server.admission.answer_lengths import AnswerLengths
from farthing.server.admission.fair_order import FairOrder
from farthing.server.admission.prompts import Ask, Entered, Prompt

GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Machine:
    """What runs: at most ``slots`` sequences, steps of at most ``rows`` rows, so long each."""

    slots: int
    rows: int
    seconds: Callable[[int, int], float]  # of decoding rows and rows of prompts
    lengths: AnswerLengths
    served: VirtualTokenCounters  # all users of what runs and waits


@dataclass(slots=True)
class Forecast:
    """Seconds from the beginning of the step that is played first."""

    places: list[float] = field(default_factory=list)  # when each request's last answer began
    tokens: list[int] = field(default_factory=list)  # of prompts that have begun by then
    ends: dict[str, list[float]] = field(default_factory=dict)  # of requests, by principal
    first_step: float = 0.0
    reached: float = 0.0  # what was played; no further place is free before

    def apart(self, last: int) -> float:
        """Seconds between two places, on average over the last so many."""
        count = min(last, len(self.places))
        if count == 0:
            return max(self.reached, 1e-6)
        before = self.places[-count - 1] if len(self.places) > count else 0.0
        return max((self.places[-1] - before) / count, 1e-6)


def play(
    running: Sequence[Prompt],
    waiting: Sequence[Prompt],
    machine: Machine,
    *,
    began: float,
    further: Sequence[Sequence[Ask]],
    horizon: float,
    ends: bool = False,
) -> Forecast:
    """Plays the steps from ``began`` on until all that waits has begun, and ``further`` requests.

    A request has begun when the last of its answers has. A prompt's choices after the first wait
    until it is read, and then go ahead of other prompts; which of those is next the users' service
    decides. Each of ``further`` requests, of a user of its own, comes when a place in the queue is
    free, or when else the engine would have nothing to begin. With ``ends`` the steps go on until
    all of ``running`` and ``waiting`` have ended; ``horizon`` seconds end them anyway. Prompts wait
    in the order given; those of a request that entered after ``began`` miss the first step. Each
    answer gets a length of its own quantile, spread evenly over the answers: the first of many to
    end is much earlier than the mean of one.
    """
    player = _Player(machine, began, further)
    return player.play(running, waiting, horizon, ends=ends)


class _Player:
    """Sequences in their places, from one event to the next."""

    def __init__(self, machine: Machine, began: float, further: Sequence[Sequence[Ask]]) -> None:
        self.machine = machine
        self.began = began
        self.further = deque(further)
        self.forecast = Forecast()
        self.time = 0.0
        self.steps = 0
        self.free = machine.slots
        self.decoding: list[tuple[int, int, Prompt]] = []  # heap by the step of its last token
        self.reading: list[tuple[int, int, Prompt]] = []  # by tokens left to read
        self.ahead: list[tuple[int, int, int, int, Prompt]] = []  # heap; see _follow
        self.queue = FairOrder(self.service)
        self.late: deque[Prompt] = deque()  # came too late for the first step
        self.shares: dict[str, _Share] = {}
        self.floor = machine.served.floor
        self.unbegun: dict[Entered, int] = {}  # choices
        self.unended: dict[Entered, int] = {}
        self.count = 0
        self.begun_tokens = 0

    def play(
        self, running: Sequence[Prompt], waiting: Sequence[Prompt], horizon: float, *, ends: bool
    ) -> Forecast:
        for prompt in running:
            self._place_running(prompt)
        for prompt in waiting:
            self._expect(prompt)
        self.late.extend(waiting)
        self._let_late_in()
        while self.time < horizon and (self.unbegun or self.further or (ends and self.unended)):
            begun = self._admit()
            if not self.decoding and not self.reading:
                if not self.late:
                    break
                # Nobody was early enough for the first step; it is there all the same.
                self.began = self.late[0].request.at
                self._let_late_in()
                continue
            late = bool(self.late) and self.free > 0
            self._advance(one_step=late or bool(begun))
            self.began = inf
            self._let_late_in()
            for prompt, tokens in begun:
                self._note_begun(prompt.request, tokens)
            while self.decoding and self.decoding[0][0] <= self.steps:
                self._end(heapq.heappop(self.decoding)[2])
        self.forecast.reached = self.time
        return self.forecast

    def _let_late_in(self) -> None:
        """Queues those who have come before the next step begins."""
        while self.late and self.late[0].request.at <= self.began:
            self.queue.push(self.late.popleft())

    def service(self, user: str) -> float:
        """What ``user`` has been served until now."""
        share = self._share(user)
        return share.service + OUTPUT_WEIGHT * share.decoding * (self.steps - share.step)

    def _share(self, user: str) -> _Share:
        share = self.shares.get(user)
        if share is None:
            share = self.shares[user] = _Share(self.machine.served.service(user))
        return share

    def _charge(self, user: str, tokens: int, *, decoding: int = 0) -> None:
        """Charges a user for tokens of a prompt, or for so many sequences more from now on."""
        share = self._share(user)
        share.service = self.service(user) + INPUT_WEIGHT * tokens
        share.step = self.steps
        share.decoding += decoding

    def _expect(self, prompt: Prompt) -> None:
        """Enters the choices of a prompt that have not begun, and those that have not ended."""
        request, waiting = prompt.request, prompt.waiting
        if waiting:
            self.unbegun[request] = self.unbegun.get(request, 0) + waiting
        self.unended[request] = self.unended.get(request, 0) + waiting + len(prompt.running)

    def _place_running(self, prompt: Prompt) -> None:
        self._expect(prompt)
        reads = prompt.read < prompt.ask.prompt_tokens
        for number, choice in prompt.running.items():
            if reads and number == 0:
                self._read(prompt)
            else:
                self._decode(prompt, choice.sampled)
        if not reads:
            self._follow(prompt, prompt.waiting)

    def _read(self, prompt: Prompt) -> None:
        self.free -= 1
        self.count += 1
        left = max(prompt.ask.prompt_tokens * prompt.copies - prompt.read, 1)
        insort(self.reading, (left, self.count, prompt))

    def _follow(self, prompt: Prompt, followers: int) -> None:
        """Puts choices of a prompt that has been read ahead of prompts, by age of theirs."""
        if followers:
            self.count += 1
            priority, age = prompt.request.priority, prompt.ask.key
            heapq.heappush(self.ahead, (priority, age, self.count, followers, prompt))

    def _next_follower(self) -> Prompt:
        *order, followers, prompt = self.ahead[0]
        if followers > 1:
            priority, age, number = order
            self.ahead[0] = priority, age, number, followers - 1, prompt  # still the first
        else:
            heapq.heappop(self.ahead)
        return prompt

    def _decode(self, prompt: Prompt, sampled: int, *, given: int = 0) -> None:
        """Gives a choice of ``sampled`` tokens a place, and a length; it has ``given`` of that."""
        self.free -= 1
        self.count += 1
        ask = prompt.ask
        left = ask.max_tokens - sampled
        if not ask.ignore_eos:
            quantile = self.count * GOLDEN % 1
            left = self.machine.lengths.remainder(sampled, ask.max_tokens, quantile)
        last = self.steps + left * prompt.copies - given
        heapq.heappush(self.decoding, (last, self.count, prompt))
        self._charge(prompt.request.user, 0, decoding=1)

    def _admit(self) -> list[tuple[Prompt, int]]:
        """Fills the free places; whose choices begin, and tokens that wait no more."""
        begun = []
        while self.free > 0:
            first = self.queue.first()
            if self.ahead and (first is None or self.ahead[0][0] <= first.request.priority):
                prompt = self._next_follower()
                self._decode(prompt, 0)
                if prompt.copies == 1:
                    begun.append((prompt, 0))
                continue
            if first is None:
                if self.late or not self.further or not (self.decoding or self.reading):
                    break
                self._let_further_in()
                continue
            self.queue.pop()
            user, tokens = first.request.user, first.ask.prompt_tokens * first.copies
            self.floor = max(self.floor, int(self.service(user)))
            self._charge(user, tokens)
            self._read(first)
            if first.copies == 1:
                begun.append((first, tokens))
        return begun

    def _let_further_in(self) -> None:
        """Another request comes."""
        self.count += 1
        request = Entered("", 0.0, user=f"further request {self.count}")
        self.shares[request.user] = _Share(self.floor)
        for ask in self.further.popleft():
            prompt = Prompt(ask, request)
            self._expect(prompt)
            self.queue.push(prompt)

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
        read = []
        while self.reading and room:
            left, number, prompt = self.reading[0]
            taken = min(left, room)
            total += taken
            room -= taken
            if taken < left:
                self.reading[0] = (left - taken, number, prompt)
                break
            self.reading.pop(0)
            read.append(prompt)
        self.time += count * self.machine.seconds(decoding, total // count)
        self.steps += count
        if not self.forecast.first_step:
            self.forecast.first_step = self.time / count
        for prompt in read:
            self.free += 1
            self._decode(prompt, 0, given=1)  # by the pass that has read the last of it
            self._follow(prompt, prompt.waiting - (not prompt.running))

    def _note_begun(self, request: Entered, tokens: int) -> None:
        self.begun_tokens += tokens
        self.unbegun[request] -= 1
        if not self.unbegun[request]:
            del self.unbegun[request]
            self.forecast.places.append(self.time)
            self.forecast.tokens.append(self.begun_tokens)
            if self.further:
                self._let_further_in()

    def _end(self, prompt: Prompt) -> None:
        self.free += 1
        if prompt.copies > 1:  # the last of them began one answer before
            tokens = prompt.ask.prompt_tokens * prompt.copies
            self._note_begun(prompt.request, tokens // prompt.ask.sequences)
        self._charge(prompt.request.user, 0, decoding=-1)
        request = prompt.request
        left = self.unended.pop(request, 0) - 1
        if left > 0:
            self.unended[request] = left
        elif left == 0:
            self.forecast.ends.setdefault(request.principal, []).append(self.time)


@dataclass(slots=True)
class _Share:
    """What a user has been served."""

    service: float  # weighted tokens
    step: int = 0  # until which
    decoding: int = 0  # sequences since then
