"""Sampling parameters as users of ``LLM`` meet them: what they do, and what they are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, SamplingParams
from farthing.errors import InvalidParameterError
from support.native_runs import make_embedding_infinite
from support.tiny_models import make_tiny_model

PROMPT = "The quick brown fox"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(directory: Path) -> LLM:
    return LLM(directory)


def greedy(**settings: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": 12, "ignore_eos": True, **settings})


def tokens(llm: LLM, params: SamplingParams) -> list[int]:
    (output,) = llm.generate(PROMPT, params)
    assert output.error is None
    return output.outputs[0].token_ids


def test_a_vanishing_temperature_is_greedy(llm: LLM) -> None:
    assert tokens(llm, greedy(temperature=1e-9, seed=4)) == tokens(llm, greedy())


def test_filters_of_one_token_are_greedy(llm: LLM) -> None:
    best = tokens(llm, greedy())
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert tokens(llm, greedy(temperature=1.0, **narrow)) == best


def test_bias_and_allowed_tokens_decide(llm: LLM) -> None:
    assert set(tokens(llm, greedy(logit_bias={77: 100.0}))) == {77}
    allowed = [5, 50, 300]
    drawn = tokens(llm, greedy(temperature=9.0, seed=1, allowed_token_ids=allowed, max_tokens=60))
    assert set(drawn) == set(allowed)


def test_a_bad_word_never_comes(llm: LLM) -> None:
    free = llm.generate(PROMPT, greedy())[0].outputs[0]
    words = [llm.tokenizer.decode([token]) for token in free.token_ids]
    bad = next(word for word in words if "\ufffd" not in word and word.strip())
    kept = llm.generate(PROMPT, greedy(bad_words=[bad]))[0].outputs[0]
    assert kept.token_ids != free.token_ids
    spelled = llm.tokenizer.encode(bad.lstrip(" "), add_special_tokens=False)
    size = len(spelled)
    runs = [kept.token_ids[i : i + size] for i in range(len(kept.token_ids) - size + 1)]
    assert spelled not in runs


def test_penalties_keep_a_text_from_repeating(llm: LLM) -> None:
    repeating = {"logit_bias": {60: 12.0, 61: 12.0, 62: 12.0}, "max_tokens": 30}
    assert set(tokens(llm, greedy(**repeating))) <= {60, 61, 62}
    for penalty in (
        {"repetition_penalty": 3.0},
        {"presence_penalty": 2.0, "frequency_penalty": 2.0},
        {"dry_multiplier": 5.0, "dry_allowed_length": 1},
    ):
        assert len(set(tokens(llm, greedy(**repeating, **penalty)))) > 3, penalty


def test_end_tokens_wait_for_min_tokens(llm: LLM) -> None:
    eos = llm.tokenizer.eos_token_ids[0]
    pushed = {"logit_bias": {eos: 100.0}, "ignore_eos": False}
    assert tokens(llm, greedy(**pushed)) == [eos]
    found = tokens(llm, greedy(**pushed, min_tokens=5))
    assert (len(found), found[-1]) == (6, eos)
    assert eos not in found[:-1]
    whole = tokens(llm, greedy())
    stopped = tokens(llm, greedy(stop_token_ids=[whole[2]], min_tokens=4))
    assert len(stopped) >= 5
    assert whole[2] not in stopped[:4]


def test_stop_strings_wait_for_min_tokens(llm: LLM) -> None:
    whole = llm.generate(PROMPT, greedy())[0].outputs[0]
    texts = [llm.tokenizer.decode([token]) for token in whole.token_ids]
    at = next(i for i, text in enumerate(texts) if text.isprintable() and "\ufffd" not in text)
    early = llm.generate(PROMPT, greedy(stop=[texts[at]]))[0].outputs[0]
    assert (len(early.token_ids), early.finish_reason) == (at + 1, "stop")
    late = llm.generate(PROMPT, greedy(stop=[texts[at]], min_tokens=at + 1))[0].outputs[0]
    assert len(late.token_ids) > at + 1
    assert texts[at] in late.text


def test_a_request_whose_parameters_leave_nothing_fails_alone(llm: LLM) -> None:
    eos = llm.tokenizer.eos_token_ids[0]
    impossible = greedy(allowed_token_ids=[eos], min_tokens=1, ignore_eos=False)
    good, bad, other = llm.generate([PROMPT] * 3, [greedy(), impossible, greedy(seed=1)])
    assert bad.outputs[0].finish_reason == "error"
    assert bad.error is not None
    assert "allowed_token_ids, min_tokens: no token is allowed as token 1" in bad.error
    assert bad.invalid_request
    assert good.outputs[0].token_ids == other.outputs[0].token_ids == tokens(llm, greedy())
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()


@pytest.mark.parametrize(
    "parameter",
    [{"stop_token_ids": [10**6]}, {"allowed_token_ids": [10**6]}, {"logit_bias": {10**6: 1.0}}],
    ids=str,
)
def test_ids_beyond_the_vocabulary_are_refused_before_anything_runs(
    llm: LLM, parameter: dict[str, Any]
) -> None:
    (name,) = parameter
    with pytest.raises(InvalidParameterError, match=f"{name}: token id 1000000"):
        llm.generate([PROMPT, PROMPT], [greedy(), greedy(**parameter)])
    assert not llm.engine.has_work


def test_a_stream_carries_log_probabilities_of_its_tokens(llm: LLM) -> None:
    whole = llm.generate(PROMPT, greedy(logprobs=3))[0].outputs[0]
    chunks = list(llm.stream(PROMPT, greedy(logprobs=3)))
    assert [entry for chunk in chunks for entry in chunk.logprobs or []] == whole.logprobs
    assert all(chunk.logprobs is None for chunk in llm.stream(PROMPT, greedy()))
    with pytest.raises(InvalidParameterError, match="prompt_logprobs=2: a stream has no place"):
        llm.stream(PROMPT, greedy(prompt_logprobs=2))


def test_log_probabilities_are_the_models_own(llm: LLM) -> None:
    """Whatever penalties and filters do, the first position reports the same numbers."""
    plain = llm.generate(PROMPT, greedy(logprobs=5, max_tokens=1))[0].outputs[0].logprobs
    changed = greedy(logprobs=5, max_tokens=1, logit_bias={3: 50.0}, temperature=0.7, top_k=3)
    other = llm.generate(PROMPT, changed)[0].outputs[0].logprobs
    assert plain is not None
    assert other is not None
    assert next(iter(other[0])) == 3, "the bias chose it"
    assert other[0][3].rank > 5
    assert plain[0].items() <= other[0].items()


def test_a_prompt_of_one_token_has_one_log_probability_which_is_none(llm: LLM) -> None:
    (output,) = llm.generate([[5]], greedy(prompt_logprobs=1))
    assert output.prompt_logprobs == [None]


def test_a_prompt_with_logits_that_are_not_finite_fails_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    llm = LLM(make_tiny_model("qwen2", tmp_path_factory.mktemp("broken")))
    make_embedding_infinite(llm, 77)
    asking = greedy(prompt_logprobs=1)
    good, bad = llm.generate(["fine", [5, 77, 6, 7]], [asking, asking])
    assert good.error is None
    assert good.prompt_logprobs is not None
    assert bad.error is not None
    assert "not finite" in bad.error
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()
