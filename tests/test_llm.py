"""``LLM`` as its users call it, on a tiny model with a tokenizer of its own."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from farthing import LLM, SamplingParams
from farthing.engine.engine import TokenEvent
from farthing.engine.output_processor import OutputProcessor
from farthing.errors import (
    ContextLengthError,
    FarthingError,
    InsufficientMemoryError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
)
from support.native_runs import make_embedding_infinite
from support.tiny_adapters import make_tiny_adapter
from support.tiny_models import make_tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPT = "The quick brown fox"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(directory: Path) -> LLM:
    return LLM(directory)


def test_generate_returns_what_vllm_users_expect(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=5, logprobs=3, ignore_eos=True)
    outputs = llm.generate(["One", "Two three"], params)
    assert [o.prompt for o in outputs] == ["One", "Two three"]
    for output in outputs:
        (completion,) = output.outputs
        assert output.finished
        assert output.prompt_token_ids == llm.tokenizer.encode(output.prompt or "")
        assert len(completion.token_ids) == 5
        assert completion.finish_reason == "length"
        assert completion.text == llm.tokenizer.decode(completion.token_ids)
        assert completion.logprobs is not None
        for token, entry in zip(completion.token_ids, completion.logprobs, strict=True):
            assert next(iter(entry)) == token
            assert entry[token].rank == 1, "greedy takes the likeliest"
            assert len(entry) == 3
            values = [e.logprob for e in entry.values()]
            assert values == sorted(values, reverse=True)
            assert sum(np.exp(values)) <= 1
        assert completion.cumulative_logprob == pytest.approx(
            sum(
                e[t].logprob for t, e in zip(completion.token_ids, completion.logprobs, strict=True)
            )
        )


def test_without_the_cache_the_tokens_are_the_same(llm: LLM, directory: Path) -> None:
    slow = LLM(directory, use_cache=False)
    fast_output, slow_output = (m.generate(PROMPT, GREEDY)[0].outputs[0] for m in (llm, slow))
    assert fast_output.token_ids == slow_output.token_ids


def test_many_requests_at_once_get_what_each_gets_alone(llm: LLM) -> None:
    prompts = [PROMPT[: 3 + i] * (1 + i % 5) for i in range(40)]  # more than run at once
    together = llm.generate(prompts, GREEDY)
    for prompt, output in zip(prompts, together, strict=True):
        assert output.outputs[0].token_ids == llm.generate(prompt, GREEDY)[0].outputs[0].token_ids
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()


def test_streamed_text_is_the_text_of_the_whole(llm: LLM) -> None:
    whole = llm.generate(PROMPT, GREEDY)[0].outputs[0]
    chunks = list(llm.stream(PROMPT, GREEDY))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [t for chunk in chunks for t in chunk.token_ids] == whole.token_ids
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == "length"
    metrics = chunks[-1].metrics
    assert metrics is not None
    assert metrics.completion_tokens == 12
    assert metrics.prefill_seconds > 0
    assert metrics.decode_seconds > 0


def test_streams_can_be_read_in_turns_and_left_early(llm: LLM) -> None:
    whole = llm.generate(PROMPT, GREEDY)[0].outputs[0].text
    first, second, never = (llm.stream(PROMPT, GREEDY) for _ in range(3))
    text = ["", ""]
    for a, b in zip(first, second, strict=False):
        text[0] += a.text
        text[1] += b.text
    assert text[0] == whole
    left = llm.stream(PROMPT, GREEDY)
    next(left)
    left.close()
    del never, second
    assert not llm.engine.has_work
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()


def test_a_stream_collected_in_the_middle_of_a_step_disturbs_nobody(llm: LLM) -> None:
    class Holder:
        """In a cycle with itself, so that only the garbage collector drops its stream."""

        def __init__(self) -> None:
            self.me = self
            self.stream = llm.stream(PROMPT, GREEDY)
            next(self.stream)

    expected = llm.generate(PROMPT, GREEDY)[0].outputs[0].token_ids
    before = gc.get_threshold()
    gc.set_threshold(20, 2, 2)
    try:
        for _ in range(25):
            Holder()
            assert llm.generate(PROMPT, GREEDY)[0].outputs[0].token_ids == expected
    finally:
        gc.set_threshold(*before)
    gc.collect()
    llm.generate(PROMPT, GREEDY)
    assert not llm.engine.has_work
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()


def test_threads_share_the_engine_and_each_gets_its_own_answer(llm: LLM) -> None:
    prompts = [PROMPT[: 4 + i] for i in range(8)]
    expected = [llm.generate(p, GREEDY)[0].outputs[0].text for p in prompts]
    got: dict[int, str] = {}

    def work(i: int) -> None:
        got[i] = "".join(chunk.text for chunk in llm.stream(prompts[i], GREEDY))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(len(prompts))] == expected


def test_a_stop_string_ends_the_text_before_it(llm: LLM) -> None:
    whole = llm.generate(PROMPT, GREEDY)[0].outputs[0].text
    stop = whole[len(whole) // 2 :][:3]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop=[stop])
    completion = llm.generate(PROMPT, params)[0].outputs[0]
    assert completion.text == whole[: whole.index(stop)]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop)
    assert "".join(c.text for c in llm.stream(PROMPT, params)) == completion.text


def test_a_stop_token_ends_the_text_before_it(llm: LLM) -> None:
    tokens = llm.generate(PROMPT, GREEDY)[0].outputs[0].token_ids
    stop = next(t for t in tokens if t != tokens[0])
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=[stop])
    completion = llm.generate(PROMPT, params)[0].outputs[0]
    end = tokens.index(stop)
    assert completion.token_ids == tokens[: end + 1]
    assert completion.text == llm.tokenizer.decode(tokens[:end])
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop)


def test_a_full_context_stops_with_length(directory: Path) -> None:
    small = LLM(directory, max_model_len=32)
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
    output = small.generate(PROMPT, params)[0]
    assert output.outputs[0].finish_reason == "length"
    assert len(output.prompt_token_ids) + len(output.outputs[0].token_ids) == 32


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(directory: Path) -> None:
    small = LLM(directory, max_model_len=32)
    with pytest.raises(ContextLengthError, match=r"prompt of 32 tokens .* context of 32 tokens"):
        small.generate([[1] * 32], GREEDY)
    with pytest.raises(ContextLengthError, match="33 tokens"):
        small.stream([1] * 33, GREEDY)
    assert not small.engine.has_work


@pytest.mark.parametrize(
    "prompts", [[None], [1.5], [["a"]], {"text": "a"}, 5, [{"prompt": 3}]], ids=repr
)
def test_prompts_of_another_kind_are_refused_by_name(llm: LLM, prompts: Any) -> None:
    with pytest.raises(InvalidParameterError, match="prompt"):
        llm.generate(prompts, GREEDY)


def test_token_ids_may_come_from_numpy(llm: LLM) -> None:
    ids = llm.tokenizer.encode(PROMPT)
    expected = llm.generate(PROMPT, GREEDY)[0].outputs[0].token_ids
    for prompts in (np.array(ids), [np.array(ids)], [{"prompt_token_ids": ids}], ids):
        assert llm.generate(prompts, GREEDY)[0].outputs[0].token_ids == expected


def test_parameters_of_another_kind_are_refused_by_name(llm: LLM) -> None:
    with pytest.raises(InvalidParameterError, match="sampling_params"):
        llm.generate(PROMPT, {"temperature": 0})  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="2 given for 1 prompts"):
        llm.generate(PROMPT, [GREEDY, GREEDY])


def test_one_bad_prompt_in_a_batch_leaves_nothing_behind(llm: LLM) -> None:
    with pytest.raises(InvalidParameterError, match=r"token id -1"):
        llm.generate(["fine", [3, -1]], GREEDY)
    with pytest.raises(InvalidParameterError, match="no tokens"):
        llm.generate(["fine", []], GREEDY)
    assert not llm.engine.has_work


def test_a_seed_draws_the_same_tokens_alone_and_in_company(llm: LLM) -> None:
    params = [
        SamplingParams(temperature=1.0, max_tokens=10, seed=seed, ignore_eos=True)
        for seed in (1, 2, 1, 3)
    ]
    together = [o.outputs[0].token_ids for o in llm.generate([PROMPT] * 4, params)]
    assert together[0] == together[2]
    assert together[0] != together[1]
    alone = [llm.generate(PROMPT, p)[0].outputs[0].token_ids for p in params]
    assert alone == together


def test_unseeded_requests_differ(llm: LLM) -> None:
    params = SamplingParams(temperature=1.5, max_tokens=10, ignore_eos=True)
    draws = {tuple(o.outputs[0].token_ids) for o in llm.generate([PROMPT] * 6, params)}
    assert len(draws) > 1


def test_a_request_with_logits_that_are_not_finite_fails_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A model whose embedding of one token is infinite: the other prompts never notice."""
    llm = LLM(make_tiny_model("qwen2", tmp_path_factory.mktemp("broken")))
    whole = llm.generate(["fine", "also"], GREEDY)
    make_embedding_infinite(llm, 77)
    first, bad, second = llm.generate(["fine", [5, 77, 6], "also"], GREEDY)
    assert bad.outputs[0].finish_reason == "error"
    assert bad.error is not None
    assert "not finite" in bad.error
    for output, alone in ((first, whole[0]), (second, whole[1])):
        assert output.error is None
        assert output.outputs[0].token_ids == alone.outputs[0].token_ids
    with pytest.raises(FarthingError, match="not finite"):
        list(llm.stream([5, 77, 6], GREEDY))
    assert not llm.engine.has_work
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()


def test_a_failure_to_process_one_token_stays_with_its_request(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = llm.generate(PROMPT, GREEDY)[0].outputs[0].token_ids
    process = OutputProcessor.process

    def failing(self: OutputProcessor, event: TokenEvent) -> str | None:
        if self.prompt == "broken" and len(event.request.output_token_ids) == 3:
            raise RuntimeError("a bug")
        return process(self, event)

    monkeypatch.setattr(OutputProcessor, "process", failing)
    good, bad = llm.generate([PROMPT, "broken"], GREEDY)
    assert good.outputs[0].token_ids == expected
    assert (bad.outputs[0].finish_reason, bad.error) == ("error", "a bug")
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()


def test_a_long_prompt_gives_a_chunk_for_each_pass(directory: Path) -> None:
    small = LLM(directory, max_num_batched_tokens=16)
    chunks = list(small.stream([3] * 50, GREEDY))
    assert [chunk.token_ids for chunk in chunks[:4]][:3] == [[], [], []]
    assert chunks[3].token_ids


def test_bad_arguments_are_named(directory: Path) -> None:
    for wrong in (0, True, "2"):
        with pytest.raises(InvalidParameterError, match=f"num_threads={wrong!r}"):
            LLM(directory, num_threads=wrong)  # type: ignore[arg-type]
    refused = "kv_cache_dtype='int3' must be one of fp32, fp16, int8, int4, k16v8, k16v4, k8v4"
    with pytest.raises(InvalidParameterError, match=f"^{refused}$"):
        LLM(directory, kv_cache_dtype="int3")  # type: ignore[arg-type]
    with pytest.raises(ContextLengthError, match=r"max_model_len=9999 .* 256 tokens"):
        LLM(directory, max_model_len=9999)
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        LLM("no-such-model")


def test_too_little_memory_is_refused_before_loading(directory: Path) -> None:
    with pytest.raises(InsufficientMemoryError, match=r"needs .* MiB .* are available"):
        LLM(directory, kv_cache_tokens=10**12)


def test_an_adapter_is_counted_in_memory_and_in_progress(directory: Path, tmp_path: Path) -> None:
    adapter = make_tiny_adapter(directory, tmp_path / "adapter", "every layer and the output")
    totals: dict[Path | None, int] = {}
    served: dict[Path | None, int] = {}
    for each in (None, adapter):

        def told(done: int, total: int, each: Path | None = each) -> None:
            assert done <= total
            totals[each] = total

        llm = LLM(directory, adapter=each, load_progress=told)
        weights = llm.runner.executor.weights
        served[each] = sum(weight.nbytes for weight in weights.values())
        with pytest.raises(InsufficientMemoryError) as caught:
            LLM(directory, adapter=each, kv_cache_tokens=10**12)
        assert f"({totals[each] / 2**20:,.0f} MiB of weights" in str(caught.value)
    assert totals == served
    assert totals[adapter] > totals[None]


def test_an_adapter_answers_alike_alone_in_a_batch_and_without_the_cache(
    directory: Path, tmp_path: Path, llm: LLM
) -> None:
    adapter = make_tiny_adapter(directory, tmp_path / "adapter")
    adapted = LLM(directory, adapter=str(adapter))
    prompts = [PROMPT, "One", "Two three"]
    alone = [adapted.generate(p, GREEDY)[0].outputs[0].token_ids for p in prompts]
    together = [o.outputs[0].token_ids for o in adapted.generate(prompts, GREEDY)]
    assert together == alone
    slow = LLM(directory, adapter=adapter, use_cache=False)
    assert slow.generate(PROMPT, GREEDY)[0].outputs[0].token_ids == alone[0]
    assert llm.generate(PROMPT, GREEDY)[0].outputs[0].token_ids != alone[0]


def test_an_adapter_that_is_not_there_or_not_finite_is_refused(
    directory: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelNotFoundError, match="no such adapter directory"):
        LLM("no-such-model-either", adapter=tmp_path / "nowhere")
    adapter = make_tiny_adapter(directory, tmp_path / "adapter")
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("up_proj.lora_B.weight"))
    tensors[name][7, 3] = np.nan
    save_file(tensors, file)
    with pytest.raises(ModelFormatError, match=r"row 7, column 3 is a NaN") as caught:
        LLM(directory, adapter=adapter)
    assert caught.value.field == f"tensor {name}"
