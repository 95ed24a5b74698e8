"""``LLM.run``: prompts taken as places come free, results as they finish."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farthing import LLM, RequestOutput, SamplingParams
from farthing.engine import in_flight
from farthing.engine.output_processor import OutputProcessor
from farthing.errors import ContextLengthError, InvalidParameterError
from support.tiny_models import make_tiny_model

Item = tuple[int, str, SamplingParams]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny")), num_threads=1)


def items(count: int) -> list[Item]:
    """Prompts of their own length, seed and temperature."""
    return [
        (
            i,
            "bread " * (1 + i % 5) + str(i),
            SamplingParams(
                temperature=(i % 3) / 2, seed=i, max_tokens=1 + 7 * i % 11, logprobs=2 * (i % 2)
            ),
        )
        for i in range(count)
    ]


def at_rest(llm: LLM) -> bool:
    """Whether nothing is left of any request, in the loop, the scheduler or the memory."""
    llm.engine.check_integrity()
    held = llm.engine.kv.usage([]).held_blocks
    return not llm.engine.has_work and held == 0 and not llm._loop._processors


@pytest.mark.parametrize("most", [1, 3, 40, None])
def test_results_are_those_of_generate(llm: LLM, most: int | None) -> None:
    asked = items(40)
    alone = [llm.generate(prompt, params)[0].outputs for _, prompt, params in asked]
    found = dict(llm.run(asked, max_in_flight=most))
    assert sorted(found) == list(range(40))
    for index, expected in enumerate(alone):
        output = found[index]
        assert isinstance(output, RequestOutput)
        assert output.outputs == expected
    assert at_rest(llm)


def test_results_come_in_order_of_completion(llm: LLM) -> None:
    long, short = (SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (30, 2))
    order = [key for key, _ in llm.run([("long", "a", long), ("short", "b", short)])]
    assert order == ["short", "long"]


def test_several_choices_of_a_prompt_are_one_result(llm: LLM) -> None:
    params = [SamplingParams(n=1 + i % 4, seed=i, max_tokens=3 + i, logprobs=1) for i in range(8)]
    alone = [llm.generate(f"line {i}", each)[0].outputs for i, each in enumerate(params)]
    for most in (1, 5):
        requests = [(i, f"line {i}", each) for i, each in enumerate(params)]
        found = dict(llm.run(requests, max_in_flight=most))
        for index, expected in enumerate(alone):
            output = found[index]
            assert isinstance(output, RequestOutput)
            assert len(output.outputs) == 1 + index % 4
            assert output.outputs == expected
    assert at_rest(llm)


def test_no_more_are_taken_than_there_are_places(llm: LLM) -> None:
    taken = 0
    given_back = 0

    def source() -> Iterator[Item]:
        nonlocal taken
        for item in items(30):
            taken += 1
            assert taken - given_back <= 4
            yield item

    for _ in llm.run(source(), max_in_flight=4):
        given_back += 1
    assert (taken, given_back) == (30, 30)


def test_what_is_refused_is_a_result_and_its_neighbours_go_on(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=4)
    bad = SamplingParams(stop_token_ids=[10_000])
    prompts = {
        "empty": ([], params),
        "first": ("one", params),
        "long": ([5] * 300, params),
        "id": ("one", bad),
        "last": ("two", params),
    }
    found = dict(llm.run((key, *value) for key, value in prompts.items()))
    assert isinstance(found["empty"], InvalidParameterError)
    assert isinstance(found["long"], ContextLengthError)
    assert isinstance(found["id"], InvalidParameterError)
    for key in ("first", "last"):
        output = found[key]
        assert isinstance(output, RequestOutput)
        assert output.outputs == llm.generate(prompts[key][0], params)[0].outputs


def test_every_pass_is_told_with_the_tokens_of_the_unfinished(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    told: list[int] = []
    assert len(list(llm.run([(0, "a", params), (1, "b", params)], on_pass=told.append))) == 2
    assert told == [2, 4, 6, 8, 0]


def test_what_the_watcher_raises_ends_the_run_after_what_is_finished(llm: LLM) -> None:
    class LeaveError(Exception):
        pass

    def leave(_tokens: int) -> None:
        if finished:
            raise LeaveError

    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (3, 50)]
    finished: list[int] = []
    running = llm.run([(0, "a", params[0]), (1, "b", params[1])], on_pass=leave)
    finished.append(next(running)[0])
    with pytest.raises(LeaveError):
        next(running)
    assert finished == [0]
    assert at_rest(llm)


def test_closing_it_and_a_failing_source_leave_nothing_behind(llm: LLM) -> None:
    running = llm.run(items(9), max_in_flight=3)
    next(running)
    running.close()  # type: ignore[attr-defined]
    assert at_rest(llm)

    def broken() -> Iterator[Item]:
        yield from items(2)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(llm.run(broken()))
    assert at_rest(llm)


@pytest.mark.parametrize("most", [0, -1, True, 2.5])
def test_a_run_of_no_request_at_a_time_is_refused(llm: LLM, most: int) -> None:
    with pytest.raises(InvalidParameterError, match=f"max_in_flight={most}"):
        llm.run(items(1), max_in_flight=most)


def test_no_result_is_lost_when_another_thread_makes_a_pass(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = in_flight._finished

    def asked_and_passed(choices: list[OutputProcessor]) -> bool:
        answer = asked(choices)
        llm._loop.step()  # as another thread may, right after the question
        return answer

    monkeypatch.setattr(in_flight, "_finished", asked_and_passed)
    assert sorted(key for key, _ in llm.run(items(9), max_in_flight=3)) == list(range(9))
    assert at_rest(llm)
