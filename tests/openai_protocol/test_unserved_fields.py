"""Fields of other servers: refused by name where they ask for something, taken where they do not.

Each row is written from the other server's reference, not from the table under test.
"""

from __future__ import annotations

from typing import Any

import pytest

from farthing import SamplingParams
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.unserved_fields import UNSERVED, WITHOUT_EFFECT
from support.openai_requests import chat, completion, parsed

# Of either endpoint: field, a value that asks for something, one that does not (None: there is
# none), and what the refusal tells beside the name.
BOTH: list[tuple[str, Any, Any, str]] = [
    # the OpenAI API; of adapters, some servers
    ("audio", {"voice": "alloy"}, None, "leave it out"),
    ("adapter", "x", None, "leave it out"),
    ("best_of", 3, 1, "leave it out, or give as many as n"),
    ("function_call", {"name": "f"}, "auto", 'leave it out, or give "none"'),
    ("functions", [{}], [], "give []"),
    ("modalities", ["text", "audio"], ["text"], 'give ["text"]'),
    ("suffix", "end", "", 'give ""'),
    ("web_search_options", {}, None, "leave it out"),
    # llama-server
    ("adaptive_target", 0.5, -1.0, "give -1"),
    ("dynatemp_range", 0.5, 0.0, "give 0"),
    ("image_data", [{"id": 1}], [], "give []"),
    ("json_schema", {}, None, "response_format"),
    ("lora", [{"id": 0, "scale": 1}], [], "give []"),
    ("min_keep", 5, 0, "give 0"),
    ("mirostat", 2, 0, "give 0"),
    ("n_cmpl", 2, 1, "as many as n"),
    ("n_indent", 2, 0, "give 0"),
    ("n_probs", 5, 0, "logprobs is"),
    ("post_sampling_probs", True, False, "give false"),
    ("repeat_penalty", 1.1, 1.0, "repetition_penalty is, over all of the prompt"),
    ("samplers", ["top_k"], None, "leave it out"),
    ("t_max_predict_ms", 100, 0, "give 0"),
    ("tfs_z", 0.9, 1.0, "give 1"),
    ("thinking_budget_tokens", 100, -1, "give -1"),
    ("top_n_sigma", 1.5, -1.0, "give -1"),
    ("xtc_probability", 0.5, 0, "give 0"),
    ("reasoning_budget", 100, -1, "give -1"),
    ("t_max_prompt_ms", 100, 0, "give 0"),
    # vLLM
    ("chat_template", "{{ 1 }}", None, "leave it out"),
    ("early_stopping", True, False, "give false"),
    ("kv_transfer_params", {}, None, "leave it out"),
    ("logprob_token_ids", [1], None, "leave it out"),
    ("lora_request", {}, None, "leave it out"),
    ("repetition_detection", {}, None, "leave it out"),
    ("length_penalty", 2.0, 1.0, "give 1"),
    ("logits_processors", ["f"], [], "give []"),
    ("prompt_embeds", "AAAA", None, "leave it out"),
    ("thinking_token_budget", 100, None, "leave it out"),
    ("truncate_prompt_tokens", 5, None, "leave it out"),
    ("use_beam_search", True, False, "give false"),
    ("vllm_xargs", {"a": 1}, {}, "give {}"),
    # SGLang
    ("custom_logit_processor", "x", None, "leave it out"),
    ("ebnf", 'root ::= "a"', "", "structured_outputs.grammar is"),
    ("lora_path", "x", None, "leave it out"),
    ("min_new_tokens", 4, 0, "min_tokens is"),
    ("no_stop_trim", True, False, "include_stop_str_in_output is"),
    ("regex", "a+", "", "structured_outputs.regex is"),
    ("return_hidden_states", True, False, "give false"),
    ("sampling_params", {"n": 2}, {}, "as fields of the request"),
    ("stop_regex", "a+", [], "give []"),
    ("structural_tag", {"type": "x"}, "", "structured_outputs has json"),
    # TGI, and the library it is named as
    ("decoder_input_details", True, False, "prompt_logprobs is"),
    ("do_sample", False, True, "temperature 0 is"),
    ("inputs", "One", None, "give a prompt, or messages"),
    ("max_length", 20, None, "max_tokens is, without the prompt"),
    ("min_length", 20, 0, "min_tokens is, without the prompt"),
    ("no_repeat_ngram_size", 3, 0, "the dry_ fields are"),
    ("num_beams", 4, 1, "give 1"),
    ("num_return_sequences", 2, 1, "n is"),
    ("parameters", {"n": 2}, {}, "as fields of the request"),
    ("penalty_alpha", 0.6, 0, "give 0"),
    ("return_full_text", True, False, "echo is, for completions"),
    ("top_n_tokens", 2, 0, "logprobs is"),
    ("truncate", 10, None, "leave it out"),
    ("typ_p", 0.9, 1.0, "typical_p is"),
    ("watermark", True, False, "give false"),
    # Ollama
    ("context", [1, 2], [], "give []"),
    ("format", "json", "", "response_format is"),
    ("images", ["AAAA"], [], "give []"),
    ("options", {"num_predict": 1}, {}, "as fields of the request"),
    ("raw", True, False, "/v1/completions takes a prompt as it is"),
    ("system", "Be brief.", "", "a message with the role system"),
    ("template", "{{ .Prompt }}", "", 'give ""'),
    ("think", True, None, "chat_template_kwargs has"),
    # KoboldCpp and others
    ("ban_eos_token", True, False, "ignore_eos is"),
    ("banned_strings", ["a"], [], "bad_words are"),
    ("banned_tokens", ["a"], [], "logit_bias and bad_words are"),
    ("cfg_scale", 1.5, 1, "give 1"),
    ("custom_token_bans", "1,2", "", "logit_bias and bad_words are"),
    ("dynamic_temperature", True, False, "give false"),
    ("encoder_repetition_penalty", 1.2, 1.0, "give 1"),
    ("epsilon_cutoff", 3, 0, "give 0"),
    ("eta_cutoff", 3, 0, "give 0"),
    ("guidance_scale", 1.5, 1.0, "give 1"),
    ("mirostat_mode", 2, 0, "give 0"),
    ("negative_prompt", "a", "", 'give ""'),
    ("nsigma", 1, 0, "give 0"),
    ("rep_pen", 1.1, 1.0, "repetition_penalty is"),
    ("rep_pen_range", 320, 0, "repetition_penalty is"),
    ("repetition_penalty_range", 320, 0, "repetition_penalty is"),
    ("rep_pen_slope", 0.7, 0, "give 0"),
    ("repetition_decay", 2, 0, "give 0"),
    ("sampler_priority", ["top_k"], [], "give []"),
    ("skew", 1, 0, "give 0"),
    ("sampler_order", [6, 0, 1], [], "give []"),
    ("smoothing_factor", 0.2, 0.0, "give 0"),
    ("stop_sequence", ["a"], [], "stop is"),
    ("stopping_strings", ["a"], [], "stop is"),
    ("tfs", 0.9, 1, "give 1"),
    ("top_a", 0.2, 0.0, "give 0"),
    ("typical", 0.9, 1, "typical_p is"),
    # Anthropic, Mistral, DeepSeek, Qwen
    ("enable_thinking", False, None, "chat_template_kwargs has"),
    ("thinking_budget", 100, -1, "give -1"),
    ("max_output_tokens", 5, None, "max_tokens is"),
    ("random_seed", 5, None, "seed is"),
    ("safe_prompt", True, False, "give false"),
    ("stop_sequences", ["a"], [], "stop is"),
    ("thinking", {"type": "enabled"}, None, "chat_template_kwargs has"),
]
COMPLETION: list[tuple[str, Any, Any, str]] = [
    ("chat_template_kwargs", {"a": 1}, {}, "they are for conversations"),
    ("documents", [{"text": "a"}], [], "they are for conversations"),
    ("max_completion_tokens", 5, None, "max_tokens is, for completions"),
    ("messages", [], None, "/v1/chat/completions"),
    ("reasoning", {"effort": "low"}, {}, "it is for conversations"),
    ("reasoning_effort", "low", None, "it is for conversations"),
    ("tool_choice", "required", "auto", 'give "none"'),
    ("tools", [{}], [], "give []"),
    ("top_logprobs", 5, None, "logprobs is, a number"),
]
CHAT: list[tuple[str, Any, Any, str]] = [("prompt", "One", None, "it is for /v1/completions")]
ROWS = [
    *((completion, *row) for row in (*BOTH, *COMPLETION)),
    *((chat, *row) for row in (*BOTH, *CHAT)),
]


@pytest.mark.parametrize(("make", "field", "value", "neutral", "right"), ROWS)
def test_what_asks_for_something_is_refused_by_name(
    make: Any, field: str, value: Any, neutral: Any, right: str
) -> None:
    with pytest.raises(RequestError) as caught:
        parsed(*make(**{field: value}))
    assert str(caught.value).startswith(f"{field}: this is not served here; ")
    assert right in str(caught.value)
    assert (caught.value.status, caught.value.param) == (400, field)
    for nothing in (neutral, None):
        request = parsed(*make(**{field: nothing}))
        assert request.params() == parsed(*make()).params()
        assert request.unknown_fields == ()


def test_a_field_beside_another_counts_only_with_it() -> None:
    assert parsed(*completion(best_of=3, n=3)).params().n == 3
    assert parsed(*chat(n_cmpl=3, n=3)).params().n == 3
    assert parsed(*chat(repeat_last_n=64, penalize_nl=False)).params() == parsed(*chat()).params()
    for penalty in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        taken = parsed(*chat(**{penalty: 1.5}, repeat_last_n=-1, penalize_nl=True)).params()
        assert taken == SamplingParams(max_tokens=None, **{penalty: 1.5})  # type: ignore[arg-type]
    for fields, param in (
        ({"best_of": 1, "n": 3}, "best_of"),
        ({"best_of": 5, "n": 3}, "best_of"),
        ({"n_cmpl": 1, "n": 3}, "n_cmpl"),
        ({"repeat_last_n": 64, "repetition_penalty": 1.1}, "repeat_last_n"),
        ({"repeat_last_n": 0, "presence_penalty": 1}, "repeat_last_n"),
        ({"penalize_nl": False, "frequency_penalty": 1}, "penalize_nl"),
    ):
        with pytest.raises(RequestError) as caught:
            parsed(*chat(**fields))
        assert caught.value.param == param


def test_no_tools_are_no_tools() -> None:
    alone = parsed(*chat()).params()
    for fields in ({"tools": []}, {"tool_choice": "auto"}, {"tools": [], "tool_choice": "auto"}):
        assert parsed(*chat(**fields)).params() == alone
    with pytest.raises(RequestError, match="tools: calls of functions are not served yet"):
        parsed(*chat(tools=[{"type": "function"}], tool_choice="auto"))


def test_what_only_says_how_changes_nothing() -> None:
    how = {
        "xtc_threshold": 0.1,
        "dynatemp_exponent": 1.5,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "smoothing_curve": 1.0,
    }
    request = parsed(*completion(**how))
    assert (request.params(), request.unknown_fields) == (parsed(*completion()).params(), ())


def test_every_refused_field_has_a_row_and_none_is_served() -> None:
    rows = {row[0] for row in (*BOTH, *COMPLETION, *CHAT)}
    assert set(UNSERVED) - rows == set()
    assert rows - set(WITHOUT_EFFECT) == set()
    assert set(CompletionRequest.model_fields) & set(UNSERVED) == {"prompt"}
