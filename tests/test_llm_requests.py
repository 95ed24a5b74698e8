"""Requests through ``LLM``: several choices, users, deadlines, and the memory they share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, SamplingParams
from farthing.engine.contiguous_kv import ContiguousKv
from farthing.engine.paged_kv import PagedKv
from farthing.errors import InsufficientMemoryError, InvalidParameterError
from support.tiny_models import make_tiny_model

PROMPT = "The quick brown fox jumps over the lazy dog, and over the next one too."


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def llm(directory: Path) -> LLM:
    return LLM(directory)


def params(**settings: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 10, "seed": 5, "ignore_eos": True, **settings})


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_choices_differ_and_are_each_as_if_alone(
    directory: Path, enable_prefix_caching: bool
) -> None:
    llm = LLM(directory, enable_prefix_caching=enable_prefix_caching)
    (four,) = llm.generate(PROMPT, params(n=4))
    assert [c.index for c in four.outputs] == [0, 1, 2, 3]
    texts = [c.token_ids for c in four.outputs]
    assert len({tuple(tokens) for tokens in texts}) == 4
    assert four.metrics.completion_tokens == 40
    assert four.metrics.prompt_tokens == len(four.prompt_token_ids)
    for n in (1, 2, 3):
        (fewer,) = LLM(directory).generate(PROMPT, params(n=n))
        assert [c.token_ids for c in fewer.outputs] == texts[:n]
    assert llm.engine.metrics.prompt_tokens >= four.metrics.prompt_tokens
    llm.engine.check_integrity()


def test_choices_have_stop_strings_log_probabilities_and_ends_of_their_own(llm: LLM) -> None:
    (plain,) = llm.generate(PROMPT, params(n=3, max_tokens=20))
    stop = plain.outputs[1].text[3:5]
    (output,) = llm.generate(
        PROMPT, params(n=3, max_tokens=20, stop=stop, logprobs=2, prompt_logprobs=1)
    )
    for choice, whole in zip(output.outputs, plain.outputs, strict=True):
        assert choice.text == whole.text.partition(stop)[0]
        assert (choice.stop_reason == stop) == (stop in whole.text)
        assert choice.logprobs is not None
        assert len(choice.logprobs) == len(choice.token_ids)
    assert output.outputs[1].stop_reason == stop
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == len(output.prompt_token_ids)


def test_a_stream_tells_its_choices_apart(llm: LLM) -> None:
    (whole,) = llm.generate(PROMPT, params(n=3))
    chunks = list(llm.stream(PROMPT, params(n=3)))
    for choice in whole.outputs:
        mine = [chunk for chunk in chunks if chunk.index == choice.index and chunk.token_ids]
        assert "".join(chunk.text for chunk in mine) == choice.text
        assert [chunk.finish_reason for chunk in mine] == [None] * 9 + ["length"]


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_a_stream_tells_the_end_of_each_choice_once(directory: Path, batching: Any) -> None:
    llm = LLM(directory, batching=batching, kv_cache_tokens=1024)
    (whole,) = llm.generate(PROMPT, params(n=4, max_tokens=30))
    stop = whole.outputs[2].text[4:6]  # so that they end at different times
    (expected,) = llm.generate(PROMPT, params(n=4, max_tokens=30, stop=stop))
    assert len({len(choice.token_ids) for choice in expected.outputs}) > 1
    chunks = list(llm.stream(PROMPT, params(n=4, max_tokens=30, stop=stop)))
    for choice in expected.outputs:
        ends = [c for c in chunks if c.index == choice.index and c.finish_reason is not None]
        assert [end.finish_reason for end in ends] == [choice.finish_reason]


def test_a_stream_of_choices_left_early_leaves_nothing(llm: LLM) -> None:
    stream = llm.stream(PROMPT, params(n=4, max_tokens=50))
    for _ in range(6):
        next(stream)
    stream.close()
    assert not llm.engine.has_work
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()


def test_a_second_request_reads_what_is_new_alone(llm: LLM) -> None:
    first, second = (llm.generate(PROMPT + tail, params())[0] for tail in (" One", " Two"))
    pairs = zip(first.prompt_token_ids, second.prompt_token_ids, strict=False)
    alike = next(i for i, (a, b) in enumerate(pairs) if a != b)
    assert alike > 48
    assert (first.metrics.cached_tokens, second.metrics.cached_tokens) == (0, alike)
    (again,) = llm.generate(PROMPT + " One", params())
    assert again.outputs == first.outputs
    assert again.metrics.cached_tokens == len(first.prompt_token_ids) - 1
    metrics = llm.engine.metrics
    assert metrics.cached_tokens == (second.metrics.cached_tokens + again.metrics.cached_tokens)


def test_tenants_share_no_prefix_and_their_answers_are_the_same(llm: LLM) -> None:
    (mine,) = llm.generate(PROMPT, params(), cache_salt="me")
    (yours,) = llm.generate(PROMPT, params(), cache_salt="you")
    (mine_again,) = llm.generate(PROMPT, params(), cache_salt="me")
    assert yours.metrics.cached_tokens == 0 < mine_again.metrics.cached_tokens
    assert mine.outputs == yours.outputs == mine_again.outputs


def test_a_prompts_own_arguments_go_before_those_of_the_call(llm: LLM) -> None:
    llm.generate(PROMPT, params(), cache_salt="me")
    own = [{"prompt": PROMPT, "cache_salt": "me"}, {"prompt": PROMPT, "cache_salt": "new"}, PROMPT]
    outputs = llm.generate(own, params(), cache_salt="you")
    assert [output.metrics.cached_tokens > 0 for output in outputs] == [True, False, False]
    for key, output in llm.run(enumerate_prompts(own)):
        assert not isinstance(output, Exception)
        assert output.outputs == outputs[key].outputs
    with pytest.raises(InvalidParameterError, match="the key 'cache_sallt' says nothing"):
        llm.generate({"prompt": PROMPT, "cache_sallt": "me"}, params())
    with pytest.raises(InvalidParameterError, match="priority='1' must be a whole number"):
        llm.generate({"prompt": PROMPT, "priority": "1"}, params())


def enumerate_prompts(prompts: Any) -> Any:
    return ((key, prompt, params()) for key, prompt in enumerate(prompts))


def test_the_switch_turns_prefix_caching_off(directory: Path) -> None:
    llm = LLM(directory, enable_prefix_caching=False)
    outputs = [llm.generate(PROMPT, params())[0] for _ in range(2)]
    assert [output.metrics.cached_tokens for output in outputs] == [0, 0]
    assert outputs[0].outputs == outputs[1].outputs


def test_a_request_out_of_time_ends_with_what_it_has(llm: LLM) -> None:
    generous, short = params(max_tokens=4), params(max_tokens=400)
    (whole,) = llm.generate(PROMPT, short)
    (late,) = llm.generate(PROMPT, short, timeout=whole.metrics.decode_seconds / 3)
    (choice,) = late.outputs
    assert (choice.finish_reason, late.error, late.finished) == ("timeout", None, True)
    assert choice.token_ids == whole.outputs[0].token_ids[: len(choice.token_ids)]
    assert len(choice.token_ids) < 400
    assert whole.outputs[0].text.startswith(choice.text)
    (done,) = llm.generate(PROMPT, generous, timeout=600)
    assert done.outputs[0].finish_reason == "length"
    assert not llm.engine.scheduler.holders()
    assert llm.engine.metrics.finished == {"length": 2, "timeout": 1}


def test_a_request_that_waits_runs_out_of_time_too(directory: Path) -> None:
    llm = LLM(directory, max_num_seqs=1)
    busy = llm.stream(PROMPT, params(max_tokens=300))
    next(busy)
    waiting = llm.stream(PROMPT, params(), timeout=1e-6)
    started = time.perf_counter()
    (end,) = [chunk for chunk in waiting if chunk.finish_reason]
    assert time.perf_counter() - started < 10
    assert (end.finish_reason, end.token_ids) == ("timeout", [])
    busy.close()


@pytest.mark.parametrize("batching", ["continuous", "static"])
@pytest.mark.parametrize("kv", ["paged", "contiguous"])
def test_every_way_of_serving_gives_the_same_answers(
    directory: Path, llm: LLM, batching: Any, kv: Any
) -> None:
    other = LLM(
        directory,
        batching=batching,
        kv=kv,
        max_model_len=128,
        kv_cache_tokens=512,
        max_num_seqs=3,
    )
    asked = [params(seed=i, max_tokens=2 + 5 * (i % 3)) for i in range(8)]
    prompts = [PROMPT[: 10 + 7 * i] for i in range(8)]
    expected = [output.outputs for output in llm.generate(prompts, asked)]
    assert [output.outputs for output in other.generate(prompts, asked)] == expected
    assert not other.engine.scheduler.holders()


def test_what_a_contiguous_cache_wastes_is_known(directory: Path) -> None:
    wastes = {}
    for kv in ("paged", "contiguous"):
        llm = LLM(directory, kv=kv, max_model_len=128, kv_cache_tokens=512)
        (output,) = llm.generate(PROMPT, params(max_tokens=9))
        length = len(output.prompt_token_ids)
        stored = [length + i for i in range(8)]  # after each step but the last, which frees all
        room = [128 if kv == "contiguous" else -(-n // 16) * 16 for n in stored]
        wastes[kv] = llm.engine.metrics.kv_waste
        assert wastes[kv] == pytest.approx(1 - sum(stored) / sum(room))
    assert 0 <= wastes["paged"] < wastes["contiguous"]


def test_what_a_request_took_is_known(llm: LLM) -> None:
    outputs = llm.generate([PROMPT, PROMPT * 3], params())
    for output in outputs:
        metrics = output.metrics
        assert metrics.prefill_seconds > 0 < metrics.decode_seconds
        assert metrics.time_to_first_token == metrics.queue_seconds + metrics.prefill_seconds
        assert metrics.preemptions == 0
    engine = llm.engine.metrics
    assert engine.generation_tokens == 20
    assert engine.time_to_first_token.count == engine.latency.count == engine.decode.count == 2
    assert engine.inter_token.count == 18
    assert engine.queue.total + engine.prefill.total == pytest.approx(
        engine.time_to_first_token.total
    )
    assert engine.step_seconds > 0
    load = llm.engine.load()
    assert (load.num_running, load.num_waiting, load.kv.held_blocks) == (0, 0, 0)
    stream = llm.stream(PROMPT, params())
    next(stream)
    load = llm.engine.load()
    assert (load.num_running, load.num_waiting) == (1, 0)
    assert load.kv.held_blocks == -(-len(outputs[0].prompt_token_ids) // 16)
    stream.close()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"user": 3}, "user=3 must be text"),
        ({"cache_salt": ""}, "cache_salt='' must be text, or None"),
        ({"priority": True}, "priority=True must be a whole number"),
        ({"priority": 2**31}, "priority=2147483648 must be a whole number"),
        ({"timeout": 0}, "timeout=0 must be a number of seconds above 0"),
        ({"timeout": float("nan")}, "timeout=nan must be"),
        ({"timeout": "5"}, "timeout='5' must be"),
        ({"timeout": float("inf")}, "timeout=inf must be"),
        ({"timeout": 10**400}, "timeout=1000.*000 must be"),
    ],
)
def test_bad_arguments_of_a_request_are_named(
    llm: LLM, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        llm.generate(PROMPT, params(), **arguments)
    with pytest.raises(InvalidParameterError, match=problem):
        list(llm.chat_stream([{"role": "user", "content": "Hi"}], params(), **arguments))
    assert not llm.engine.has_work


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"batching": "orca"}, "batching='orca' must be one of continuous, static"),
        ({"kv": "flat"}, "kv='flat' must be one of paged, contiguous"),
        ({"kv_cache_memory_bytes": 5}, "kv_cache_memory_bytes=5 must be at least 6144, a block"),
        ({"kv_cache_memory_bytes": 0}, "kv_cache_memory_bytes=0 must be a whole number"),
        (
            {"kv_cache_memory_bytes": 1 << 20, "kv_cache_tokens": 64},
            "kv_cache_tokens=64 and kv_cache_memory_bytes=1048576: one of them",
        ),
    ],
)
def test_bad_switches_are_named(directory: Path, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        LLM(directory, **arguments)


def test_the_cache_is_as_large_as_was_asked_in_bytes(directory: Path) -> None:
    llm = LLM(directory, kv_cache_memory_bytes=1 << 20)
    assert isinstance(llm.engine.kv, PagedKv)
    assert llm.runner.kv.nbytes <= 1 << 20
    assert llm.runner.kv.nbytes + llm.runner.kv.block_bytes > 1 << 20


def test_too_many_choices_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="n=17 must be a whole number from 1 to 16"):
        params(n=17)


def test_a_contiguous_cache_without_room_for_one_slot_is_refused(directory: Path) -> None:
    with pytest.raises(InsufficientMemoryError, match="a contiguous slot for 128 tokens takes 8"):
        ContiguousKv(num_blocks=7, max_model_len=128)
    llm = LLM(directory, kv="contiguous", max_model_len=128, kv_cache_tokens=300)
    assert llm.engine.kv.num_slots == 2


@pytest.mark.parametrize("fair_share", [True, False])
def test_fair_share_between_users_can_be_switched_off(directory: Path, fair_share: bool) -> None:
    llm = LLM(directory, max_num_seqs=1, fair_share=fair_share)
    flood = [llm.stream(PROMPT, params(), user="flood") for _ in range(3)]
    other = llm.stream(PROMPT, params(max_tokens=1), user="other")
    for stream in (*flood, other):
        next(stream)  # queued, in this order
    before = llm.engine.metrics.finished["length"]
    list(other)
    assert llm.engine.metrics.finished["length"] - before == (2 if fair_share else 4)


def test_an_argument_that_nobody_knows_is_refused(llm: LLM) -> None:
    expected = (
        "unexpected keyword argument 'cache_sallt'; a request may have user, priority, cache_salt"
    )
    misspelt: Any = {"cache_sallt": "tenant"}
    with pytest.raises(TypeError, match=expected):
        llm.generate(PROMPT, params(), **misspelt)
    with pytest.raises(TypeError, match=expected):
        llm.stream(PROMPT, params(), **misspelt)
    with pytest.raises(TypeError, match=expected):
        llm.run([(0, PROMPT, params())], **misspelt)
    assert not llm.engine.has_work
