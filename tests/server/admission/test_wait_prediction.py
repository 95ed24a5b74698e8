"""The steps played ahead, by hand."""

from __future__ import annotations

from time import perf_counter

import pytest

from farthing.openai_protocol.errors import RequestError
from farthing.server.admission import forecasting
from farthing.server.admission.admission import Admission, Ask
from farthing.server.admission.answer_lengths import AnswerLengths
from farthing.server.admission.forecasting import SLACK
from farthing.server.admission.limits import QueueLimits
from farthing.server.admission.promises import MOST_WAIT
from farthing.server.admission.prompts import Entered, Prompt
from farthing.server.admission.step_times import LinearStepTimes
from farthing.server.admission.wait_prediction import Forecast, Machine, play
from farthing.server.principal import ANYBODY
from farthing.server.seam.messages import EngineInfo
from server.admission.steps import stepped


def prompts(*asks: Ask, at: float = 0.0, name: str = "") -> list[Prompt]:
    """One request with those prompts."""
    request = Entered(name, at)
    request.prompts = [Prompt(ask, request, unfinished=ask.sequences) for ask in asks]
    request.waiting = len(asks)
    return request.prompts


def ask(prompt_tokens: int, max_tokens: int, sequences: int = 1) -> Ask:
    return Ask(0, prompt_tokens, sequences, max_tokens, ignore_eos=True)


def decoding(limit: int, sampled: int, name: str = "") -> Prompt:
    [prompt] = prompts(ask(10, limit), name=name)
    prompt.read, prompt.sampled = 10, sampled
    return prompt


def seconds(decode: int, prefill: int) -> float:
    return 1.0 + prefill / 100


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
    machine = Machine(slots, rows, seconds, AnswerLengths())
    usual = ask(10, 4)
    return play(
        running,
        waiting,
        machine,
        began=began,
        usual=usual,
        further=further,
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
    # Then both places are the other choices': three more tokens each, the first in this step.
    assert places(3)[:2] == places(1)[:2]
    assert places(3)[2] > places(1)[2] + 2


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
        prompt.read, prompt.sampled = 10, 1
        running.append(prompt)
    waiting = [prompt for _ in range(16) for prompt in prompts(Ask(0, 1, 1, 10_000))]
    machine = Machine(16, 512, lambda d, p: 1.0, lengths)
    found = play(running, waiting, machine, began=0.0, usual=ask(1, 100), further=0, horizon=1e9)
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
                begun=begun or [],
                progress=[(key, 100, self.sampled, 1) for key in self.begun],
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
                begun=steady.begun,
                progress=[(key, 100, 512, 0) for key in ended],
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


def test_the_beginning_of_a_long_queue_tells_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four lists of a thousand prompts: a 64th is played, and says the same of the first."""

    def told() -> float:
        admission = Admission(QueueLimits(64, 262_144), max_num_seqs=32)
        for number in range(64):
            asks = [Ask(1000 * number + i, 4, 1, 16, ignore_eos=True) for i in range(1000)]
            admission.enter(ANYBODY, asks)
        with pytest.raises(RequestError) as caught:
            admission.enter(ANYBODY, [Ask(-1, 4, 1, 16)])
        return caught.value.retry_after or 0.0

    beginning = told()
    monkeypatch.setattr(forecasting, "MOST_PLAYED", 64_000)
    assert 5 < beginning < MOST_WAIT
    assert beginning == pytest.approx(told(), rel=0.01)
