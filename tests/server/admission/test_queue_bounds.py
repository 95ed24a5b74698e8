"""Neither number of what waits is ever above its limit, whatever happens in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from farthing.errors import InvalidParameterError
from farthing.openai_protocol.errors import RequestError
from farthing.server.admission.admission import Admission, Ask, Place
from farthing.server.admission.limits import QueueLimits, RateLimits
from farthing.server.admission.numbers import Refusal
from farthing.server.admission.promises import LEAST_WAIT, MOST_WAIT
from farthing.server.principal import ANYBODY
from server.admission.steps import stepped

MAX_REQUESTS, MAX_TOKENS = 4, 100


def entered(admission: Admission, asks: list[Ask]) -> Place | RequestError:
    try:
        return admission.enter(ANYBODY, asks)
    except RequestError as error:
        return error


class Choices:
    """Those of a prompt, by number."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.to_come = set(range(ask.sequences))
        self.running: set[int] = set()
        self.begun = False

    @property
    def waiting_tokens(self) -> int:
        return self.ask.prompt_tokens if self.to_come and not self.begun else 0


class Traffic(RuleBasedStateMachine):
    """Anyone enters, begins, advances, ends and leaves at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 50.0
        self.admission = Admission(
            QueueLimits(MAX_REQUESTS, MAX_TOKENS), max_num_seqs=2, clock=lambda: self.now
        )
        self.keys = 0
        self.places: dict[int, tuple[Place, list[Choices]]] = {}
        self.refused = 0

    @rule(
        sizes=st.lists(st.integers(1, 60), min_size=1, max_size=3),
        choices=st.integers(1, 3),
        ignore_eos=st.booleans(),
    )
    def enter(self, sizes: list[int], choices: int, ignore_eos: bool) -> None:
        asks = [Ask(self.keys + i, n, choices, 20, ignore_eos) for i, n in enumerate(sizes)]
        self.keys += len(sizes)
        tokens = self.tokens()
        fits = self.waiting() < MAX_REQUESTS and tokens + sum(sizes) <= MAX_TOKENS
        place = entered(self.admission, asks)
        if isinstance(place, RequestError):
            assert not fits
            self.refused += 1
            self.check_refusal(place, sum(sizes))
            return
        assert fits
        self.places[asks[0].key] = place, [Choices(ask) for ask in asks]

    @rule()
    def ask_before_reading(self) -> None:
        full = self.waiting() >= MAX_REQUESTS
        try:
            self.admission.refuse_if_full(ANYBODY)
            assert not full
        except RequestError as error:
            assert full
            self.refused += 1
            self.check_refusal(error, 0)

    def check_refusal(self, error: RequestError, tokens: int) -> None:
        if tokens > MAX_TOKENS:
            assert error.status == 400
            assert error.retry_after is None
            assert str(tokens) in str(error)
            assert str(MAX_TOKENS) in str(error)
            return
        assert (error.status, error.type, error.code) == (429, "rate_limit_error", "queue_full")
        assert error.retry_after is not None
        assert LEAST_WAIT <= error.retry_after <= MOST_WAIT

    def waiting(self) -> int:
        """Requests of which an answer has not begun."""
        return sum(any(each.to_come for each in all_of) for _, all_of in self.places.values())

    def tokens(self) -> int:
        return sum(each.waiting_tokens for _, all_of in self.places.values() for each in all_of)

    @rule(pick=st.randoms(use_true_random=False), seconds=st.floats(0, 5))
    def step(self, pick, seconds: float) -> None:
        begun, progress = [], []
        for each in [each for _, all_of in self.places.values() for each in all_of]:
            key, length = each.ask.key, each.ask.prompt_tokens
            if each.to_come and pick.random() < 0.4:
                # The first reads the prompt, the others may follow together.
                number = min(each.to_come)
                new = {number} if number == 0 else set(each.to_come)
                each.to_come -= new
                each.running |= new
                each.begun = True
                begun += [(key, number) for number in new]
            for number in [n for n in each.running if pick.random() < 0.7]:
                ends = pick.random() < 0.2
                progress.append((key, number, length, pick.randint(1, 20), ends))
                each.running -= {number} if ends else set()
            if each.to_come and pick.random() < 0.1:  # its time has run out
                number = each.to_come.pop()
                progress.append((key, number, length, 0, True))
        gone = [(self.keys + 1000, 0)] if pick.random() < 0.3 else []
        self.admission.on_step(
            stepped(self.now, self.now + seconds, begun=[*begun, *gone], progress=progress)
        )
        self.now += seconds

    @rule(seconds=st.floats(0, 400))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(pick=st.randoms(use_true_random=False), twice=st.booleans())
    def leave(self, pick, twice: bool) -> None:
        if not self.places:
            return
        number = pick.choice(list(self.places))
        place, _ = self.places.pop(number)
        place.leave()
        if twice:
            place.leave()

    @invariant()
    def counts_are_right_and_bounded(self) -> None:
        numbers = self.admission.numbers
        assert numbers.waiting_requests == self.waiting() <= MAX_REQUESTS
        assert numbers.waiting_tokens == self.tokens() <= MAX_TOKENS
        assert sum(numbers.refusals.values()) == self.refused
        assert numbers.promised.count == self.refused - numbers.refusals[Refusal.TOO_LARGE]


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_an_empty_queue_refuses_nobody_who_may_ever_wait() -> None:
    admission = Admission(QueueLimits(1, 10), max_num_seqs=1)
    for key in range(20):
        with admission.enter(ANYBODY, [Ask(key, 10, 1, 5)]):
            assert admission.numbers.waiting_requests == 1
    assert admission.numbers.refusals.total() == 0


def test_a_request_waits_until_the_last_of_its_prompts_has_begun() -> None:
    admission = Admission(QueueLimits(1, 100), max_num_seqs=4)
    place = admission.enter(ANYBODY, [Ask(1, 10, 1, 5), Ask(2, 20, 1, 5)])
    admission.on_step(stepped(0.0, 0.1, begun=[(1, 0)]))
    assert (admission.numbers.waiting_requests, admission.numbers.waiting_tokens) == (1, 20)
    with pytest.raises(RequestError):
        admission.enter(ANYBODY, [Ask(3, 1, 1, 5)])
    admission.on_step(stepped(0.1, 0.2, begun=[(2, 0)]))
    assert (admission.numbers.waiting_requests, admission.numbers.waiting_tokens) == (0, 0)
    place.leave()
    admission.enter(ANYBODY, [Ask(4, 1, 1, 5)])


def test_a_request_waits_until_the_last_of_its_choices_has_begun() -> None:
    """Its tokens no longer than until the first has, which reads them for all."""
    admission = Admission(QueueLimits(1, 100), max_num_seqs=2)
    place = admission.enter(ANYBODY, [Ask(1, 10, 3, 5)])
    admission.on_step(stepped(0.0, 0.1, begun=[(1, 0)], progress=[(1, 0, 10, 1, False)]))
    assert (admission.numbers.waiting_requests, admission.numbers.waiting_tokens) == (1, 0)
    admission.on_step(stepped(0.1, 0.2, begun=[(1, 1)], progress=[(1, 1, 10, 1, False)]))
    with pytest.raises(RequestError):
        admission.enter(ANYBODY, [Ask(2, 1, 1, 5)])
    admission.on_step(stepped(0.2, 0.3, progress=[(1, 0, 10, 5, True)]))
    assert admission.numbers.waiting_requests == 1
    admission.on_step(stepped(0.3, 0.4, begun=[(1, 2)], progress=[(1, 2, 10, 1, False)]))
    assert admission.numbers.waiting_requests == 0
    place.leave()


@pytest.mark.parametrize("begun", [0, 1])
def test_choices_that_end_before_they_begin_wait_no_more(begun: int) -> None:
    admission = Admission(QueueLimits(1, 100), max_num_seqs=1)
    admission.enter(ANYBODY, [Ask(1, 10, 3, 5)])
    admission.on_step(stepped(0.0, 0.1, begun=[(1, 0)][:begun]))
    ends = [(1, number, 10, 0, True) for number in range(3)]
    admission.on_step(stepped(0.1, 0.2, progress=ends[:2]))
    assert admission.numbers.waiting_requests == 1
    admission.on_step(stepped(0.2, 0.3, progress=ends[2:]))
    assert (admission.numbers.waiting_requests, admission.numbers.waiting_tokens) == (0, 0)


def test_who_leaves_while_he_waits_makes_room_at_once() -> None:
    admission = Admission(QueueLimits(1, 100), max_num_seqs=4)
    admission.enter(ANYBODY, [Ask(1, 10, 1, 5)]).leave()
    place = admission.enter(ANYBODY, [Ask(2, 100, 1, 5)])
    admission.on_step(stepped(0.0, 0.1, begun=[(1, 0)]))  # told too late, of one that is gone
    assert admission.numbers.waiting_requests == 1
    place.leave()


def test_the_message_says_which_limit_it_was() -> None:
    admission = Admission(QueueLimits(2, 100), max_num_seqs=4)
    admission.enter(ANYBODY, [Ask(1, 90, 1, 5)])
    with pytest.raises(RequestError, match=r"90 of 100 prompt tokens .* has 11 .*queued_tokens"):
        admission.enter(ANYBODY, [Ask(2, 11, 1, 5)])
    admission.enter(ANYBODY, [Ask(3, 10, 1, 5)])
    with pytest.raises(RequestError, match=r"2 requests wait.*max_num_queued_reqs.*again in"):
        admission.enter(ANYBODY, [Ask(4, 1, 1, 5)])
    refusals = admission.numbers.refusals
    assert refusals == {Refusal.QUEUE_TOKENS: 1, Refusal.QUEUE_REQUESTS: 1}


def test_limits_suit_the_engine_unless_they_are_given() -> None:
    fitting = QueueLimits.for_engine
    assert fitting(max_num_seqs=32, max_model_len=8192) == QueueLimits(64, 262_144)
    assert fitting(max_num_seqs=1, max_model_len=500_000) == QueueLimits(64, 500_000)
    assert fitting(max_num_seqs=100, max_model_len=10, max_prompt_tokens=5) == QueueLimits(200, 5)
    with pytest.raises(InvalidParameterError, match=r"queued_reqs must .* not 0; whatever comes"):
        QueueLimits(0, 1)
    with pytest.raises(InvalidParameterError, match=r"queued_tokens must .* not 0; whatever comes"):
        QueueLimits(1, 0)
    with pytest.raises(InvalidParameterError, match="requests_per_minute"):
        RateLimits(requests_per_minute=0)
