"""The steps played ahead, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from time import perf_counter

import pytest

from farthing.engine.fair_share import VirtualTokenCounters
from farthing.openai_protocol.errors import RequestError
from farthing.server.admission import forecasting
from farthing.server.admission.admission import Admission, Ask
from farthing.server.admission.answer_lengths import AnswerLengths
from farthing.server.admission.forecasting import HORIZON, SLACK
from farthing.server.admission.limits import QueueLimits
from farthing.server.admission.promises import MOST_WAIT
from farthing.server.admission.prompts import Choice, Entered, Prompt
from farthing.server.admission.step_times import LinearStepTimes
from farthing.server.admission.wait_prediction import Forecast, Machine, play
from farthing.server.principal import ANYBODY
from farthing.server.seam.messages import EngineInfo
from server.admission.steps import stepped


def prompts(*asks: Ask, at: float = 0.0, name: str = "", user: str = "") -> list[Prompt]:
    """One request with those prompts."""
    request = Entered(name, at, user)
    request.prompts = [Prompt(ask, request) for ask in asks]
    request.waiting = sum(ask.sequences for ask in asks)
    return request.prompts


def ask(prompt_tokens: int, max_tokens: int, sequences: int = 1) -> Ask:
    return Ask(0, prompt_tokens, sequences, max_tokens, ignore_eos=True)


def decoding(limit: int, sampled: int, name: str = "") -> Prompt:
    [prompt] = prompts(ask(10, limit), name=name)
    run(prompt, sampled)
    return prompt


def run(prompt: Prompt, *sampled: int) -> None:
    """Its first choices have so many tokens."""
    prompt.read = prompt.ask.prompt_tokens
    prompt.running = {number: Choice(tokens) for number, tokens in enumerate(sampled)}
    prompt.waiting = prompt.ask.sequences - len(sampled)


def seconds(decode: int, prefill: int) -> float:
    return 1.0 + prefill / 100


def served_alike(*prompts: Sequence[Prompt]) -> VirtualTokenCounters:
    counters = VirtualTokenCounters()
    for prompt in chain(*prompts):
        counters.enter(prompt.request.user)
    return counters


def forecast(
    running: list[Prompt],
    waiting: list[Prompt],
    *,
    slots: int = 2,
    rows: int = 100,
    further: int = 0,
    ends: bool = False,
    began: float = 10.0,
) -> Forecast:
    machine = Machine(slots, rows, seconds, AnswerLengths(), served_alike(running, waiting))
    return play(
        running,
        waiting,
        machine,
        began=began,
        further=[[ask(10, 4)]] * further,
        horizon=1000.0,
        ends=ends,
    )


def test_a_place_is_free_after_the_step_in_which_the_one_before_began() -> None:
    """Both places are taken; after three steps one is free, and the fourth reads 50 tokens."""
    found = forecast([decoding(10, 7), decoding(50, 1)], prompts(ask(50, 5)))
    assert found.places == pytest.approx([3 + 1.5])
    assert found.tokens == [50]


def test_long_prompts_take_several_steps_to_read_and_begin_in_the_first() -> None:
    """The second is begun in the step after the first has ended: 250 tokens at 99 a step."""
    found = forecast([decoding(1000, 1)], [*prompts(ask(250, 1)), *prompts(ask(30, 5))], rows=100)
    first = 1 + 99 / 100
    assert found.places == pytest.approx([first, 3 + 250 / 100 + 1 + 30 / 100])


def test_who_entered_in_the_middle_of_a_step_misses_it() -> None:
    early = forecast([decoding(50, 1)], prompts(ask(50, 5), at=10.0))
    late = forecast([decoding(50, 1)], prompts(ask(50, 5), at=10.5))
    assert early.places == pytest.approx([1.5])
    assert late.places == pytest.approx([2.5])


def test_an_idle_engine_begins_when_the_first_has_come() -> None:
    found = forecast([], [*prompts(ask(50, 5), at=10.0), *prompts(ask(50, 5), at=10.1)])
    assert found.places == pytest.approx([1.5, 3.0])
    assert forecast([], [], further=5).places == []


def test_a_request_has_begun_when_its_last_prompt_has() -> None:
    found = forecast([decoding(10, 6)], prompts(*[ask(10, 100)] * 2), slots=2)
    assert found.places == pytest.approx([1.1 + 3 + 1.1])


def test_choices_take_a_place_each_ahead_of_those_who_wait() -> None:
    """In two places a prompt of three choices takes one, then both."""

    def places(choices: int) -> list[float]:
        asks = [ask(100, 4, choices), ask(100, 1), ask(100, 1)]
        return forecast([], [p for a in asks for p in prompts(a, at=10.0)]).places

    # A step reads the first prompt, two the second beside it; then there is room for the third.
    assert places(1) == pytest.approx([2.0, 2.0, 2.0 + 1.99 + 1.01 + 1.99])
    # The second choice begins when the second prompt's only token is there, the third when the
    # first choice has four. The third prompt is next when the second choice has.
    assert places(3) == pytest.approx([2.0, 2.0 + 1.99 + 1.01 + 1 + 1, 7.0 + 1 + 1 + 1.99])


def test_choices_of_a_prompt_that_has_been_read_go_ahead() -> None:
    """One of four runs, in both places then two, then the last; then who waits."""
    [prompt] = prompts(ask(10, 5, 4))
    run(prompt, 2)
    found = forecast([prompt], prompts(ask(10, 5)))
    # The second begins at once, the third when the first has its five tokens, after three steps,
    # the fourth when the second has, after five; the other prompt after eight.
    assert found.places == pytest.approx([6, 8 + 1.1])


def test_lists_take_turns_with_those_who_came_later() -> None:
    """Of equal service, each user's first prompt is before anybody's second."""

    def places(*users: str) -> list[float]:
        first, second = users
        waiting = prompts(*[ask(10, 11)] * 4, user=first) + prompts(ask(10, 11), user=second)
        return forecast([], waiting, slots=1, began=10.0).places

    # Ten steps after that which reads it, each.
    assert places("a", "b") == pytest.approx([2 * 11.1 - 10, 5 * 11.1 - 10])
    assert places("a", "a") == pytest.approx([4 * 11.1 - 10, 5 * 11.1 - 10])


def test_who_was_served_more_waits_longer() -> None:
    waiting = prompts(ask(10, 11), user="a") + prompts(ask(20, 11), user="b")
    served = served_alike(waiting)
    served.charge("a", 1, 0)
    machine = Machine(1, 100, seconds, AnswerLengths(), served)
    found = play([], waiting, machine, began=0.0, further=(), horizon=1e9)
    assert found.tokens == [20, 30]


def test_a_more_urgent_prompt_goes_before_other_prompts_choices() -> None:
    [prompt] = prompts(ask(10, 5, 2))
    run(prompt, 2)
    [urgent] = prompts(ask(10, 5), user="urgent")
    urgent.request.priority = -1
    found = forecast([prompt], [urgent], slots=1)
    assert found.tokens == [10, 10]
    assert found.places == pytest.approx([3 + 1.1, 3 + 5.1 + 1])


def test_further_requests_go_on_as_the_usual_one_does() -> None:
    """Two places, four steps each: a place in two steps on average."""
    found = forecast([decoding(4, 1), decoding(4, 3)], [], further=20)
    assert len(found.places) == 20
    assert found.apart(10) == pytest.approx((4 + 0.1 * 2) / 2, rel=0.1)


def test_ends_are_told_by_whose_they_are() -> None:
    running = [decoding(10, 4, "a"), decoding(10, 7, "b")]
    found = forecast(running, prompts(ask(10, 3), name="a"), ends=True)
    assert found.ends == {"b": [3.0], "a": pytest.approx([6.1, 6.1])}


def test_of_many_answers_the_first_to_end_is_early() -> None:
    """Sixteen places and answers of 100 tokens in the mean: one ends every few steps."""
    lengths = AnswerLengths()
    for i in range(3000):
        length = 1 + (i * 7919) % 200
        lengths.observe(0, length, ended=True)
    running = []
    for _ in range(16):
        [prompt] = prompts(Ask(0, 10, 1, 10_000))
        run(prompt, 1)
        running.append(prompt)
    waiting = [prompt for _ in range(16) for prompt in prompts(Ask(0, 1, 1, 10_000))]
    served = served_alike(running, waiting)
    machine = Machine(16, 512, lambda d, p: 1.0, lengths, served)
    found = play(running, waiting, machine, began=0.0, further=(), horizon=1e9)
    # Lengths are spread evenly up to 200, and those who begin later end as well: after a share x
    # of 200 steps 16 * (x + x * x / 2) have ended. Means would have the first end after a hundred.
    assert found.places[0] < 30
    assert found.places[7] == pytest.approx(200 * 0.385, rel=0.25)


class Steady:
    """An admission whose engine decodes 32 answers of 512 tokens, 50 ms a step, 64 waiting."""

    def __init__(self, model: LinearStepTimes | None = None) -> None:
        self.now = 100.0
        self.admission = Admission(
            QueueLimits(64, 262_144), max_num_seqs=32, steps=model, clock=lambda: self.now
        )
        self.sampled = 1
        self.begun = list(range(32))
        for key in self.begun:
            self.enter(key)
        self.predicted = [self.step(self.begun)]
        for key in range(32, 96):
            self.enter(key)

    def enter(self, key: int) -> None:
        self.admission.enter(ANYBODY, [Ask(key, 100, 1, 512, ignore_eos=True)])

    def step(self, begun: list[int] | None = None) -> float:
        self.now += 0.05
        self.sampled += 1
        return self.admission.on_step(
            stepped(
                self.now - 0.05,
                self.now,
                decode_rows=32,
                num_running=32,
                num_waiting=64,
                begun=[(key, 0) for key in begun or []],
                progress=[(key, 0, 100, self.sampled, False) for key in self.begun],
            )
        )

    def refusal(self) -> RequestError:
        with pytest.raises(RequestError) as caught:
            self.enter(10**9)
        return caught.value


def test_a_wait_is_what_is_left_of_the_answers_and_never_above_two_minutes() -> None:
    steady = Steady()
    for _ in range(100):
        steady.step()
    wait = steady.refusal().retry_after
    left = (512 - steady.sampled) * 0.05
    # All 32 end in the same step; those who take their places have begun in the next.
    assert wait == pytest.approx(left * (1 + SLACK), rel=0.15)
    last = [steady.refusal() for _ in range(300)][-1]
    assert last.retry_after == MOST_WAIT
    told = float(str(last).split("again in ")[1].split()[0])
    assert told > MOST_WAIT


def test_each_step_is_predicted_before_it_is_learnt_from() -> None:
    steady = Steady(LinearStepTimes((1.0, 0.0, 0.0)))
    assert steady.predicted == [1.0]
    for _ in range(200):
        steady.predicted.append(steady.step())
    assert steady.predicted[-1] == pytest.approx(0.05, rel=0.05)


def test_an_engine_says_what_its_steps_may_take() -> None:
    info = EngineInfo(
        max_model_len=1000,
        vocab_size=10,
        num_blocks=100,
        block_tokens=16,
        max_num_seqs=2,
        max_num_batched_tokens=64,
        num_threads=4,
        isa="avx2",
        fingerprint="",
        kv_cache_dtype="fp16",
        weight_bytes=40_000_000_000,
        prefix_caching=True,
        restored_tokens=0,
    )
    of_one_row = Admission.for_engine(info, QueueLimits(8, 1000)).on_step(
        stepped(0.0, 0.1, decode_rows=1)
    )
    assert of_one_row == pytest.approx(2.0 + 0.125, rel=0.01)
    admission = Admission.for_engine(info, QueueLimits(8, 1000))
    for key in range(8):
        admission.enter(ANYBODY, [Ask(key, 10, 1, 50)])
    with pytest.raises(RequestError) as caught:
        admission.enter(ANYBODY, [Ask(9, 10, 1, 50)])
    # The first to come wakes the engine, which reads its ten tokens.
    told = (2.0 + 10 * 0.125) * (1 + SLACK)
    assert caught.value.retry_after == pytest.approx(told, rel=0.01)


def test_predictions_that_are_always_wrong_by_half_are_corrected() -> None:
    class Half(LinearStepTimes):
        def predict(self, decode_rows: int, prefill_rows: int) -> float:
            return super().predict(decode_rows, prefill_rows) / 2

    steady = Steady(Half())
    for _ in range(60):
        steady.step()
    before = steady.refusal().retry_after
    assert before is not None
    keys = iter(range(32, 96))
    left = 512 - steady.sampled
    for _ in range(3):  # the answers end, others begin in their places
        for _ in range(left):
            steady.step()
        ended, steady.begun = steady.begun, [key for _, key in zip(range(21), keys, strict=False)]
        steady.now += 0.05
        steady.admission.on_step(
            stepped(
                steady.now - 0.05,
                steady.now,
                decode_rows=32,
                num_running=32,
                begun=[(key, 0) for key in steady.begun],
                progress=[(key, 0, 100, 512, True) for key in ended],
            )
        )
        steady.sampled = 1
        left = 300
    assert steady.admission._forecasting._stretch > 1.2


def test_a_refusal_and_a_step_cost_little() -> None:
    """Far below what they may: a thousand refusals at once a millisecond each, a step as much."""
    steady = Steady()
    for _ in range(50):
        steady.step()
    started = perf_counter()
    waits = [steady.refusal().retry_after for _ in range(1000)]
    refusal = (perf_counter() - started) / 1000
    started = perf_counter()
    for _ in range(100):
        steady.step()
    step = (perf_counter() - started) / 100
    print(f"refusal {refusal * 1e6:.1f} us, step of 32 {step * 1e6:.1f} us")
    assert len(set(waits)) > 2
    assert refusal < 1e-3
    assert step < 1e-3


@pytest.mark.parametrize("users", [1, 4, 16])
def test_of_very_many_answers_those_of_a_request_are_played_together(
    monkeypatch: pytest.MonkeyPatch, users: int
) -> None:
    """Sixteen lists of 250 prompts, in parts of sixteen: what one by one says, by a fifth."""
    monkeypatch.setattr(forecasting, "HORIZON", 1e9)

    def told(most: int) -> float:
        monkeypatch.setattr(forecasting, "MOST_PLAYED", most)
        admission = Admission(QueueLimits(16, 262_144), max_num_seqs=4)
        for number in range(16):
            user = f"user {number % users}"
            asks = [
                Ask(1000 * number + i, 4, 1, 16, ignore_eos=True, user=user) for i in range(250)
            ]
            admission.enter(ANYBODY, asks)
        return wait_of(admission)

    one_by_one = told(4000)
    assert one_by_one > MOST_WAIT / 4
    assert told(256) == pytest.approx(one_by_one, rel=0.2)


def test_no_place_within_what_is_played_is_none_sooner() -> None:
    """Sixty-four users whose lists take turns: all of them begin their last prompt in an hour."""
    admission = Admission(QueueLimits(64, 262_144), max_num_seqs=32)
    for number in range(64):
        asks = [
            Ask(1000 * number + i, 4, 1, 16, ignore_eos=True, user=f"user {number}")
            for i in range(1000)
        ]
        admission.enter(ANYBODY, asks)
    started = perf_counter()
    assert wait_of(admission) >= HORIZON
    print(f"65,000 answers that wait: {(perf_counter() - started) * 1e3:.0f} ms")  # pytest -s


def wait_of(admission: Admission) -> float:
    """The seconds that the message of a refusal says."""
    with pytest.raises(RequestError) as caught:
        admission.enter(ANYBODY, [Ask(-1, 4, 1, 16)])
    return float(str(caught.value).split("again in ")[1].split()[0])
