"""Fields that other servers answer differently to, and that are refused by name here.

Names are those of the OpenAI API, vLLM, SGLang, TGI, Ollama, llama-server and KoboldCpp, and of the
libraries that sampling settings come from. One that means exactly what a field of ours does is a
field of ours too and not in this table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from farthing.openai_protocol.errors import RequestError


class Unserved(NamedTuple):
    """Values that ask for nothing, and what to ask for in its place."""

    neutral: tuple[Any, ...] = ()
    instead: str = ""


def _off(*neutral: Any, instead: str = "") -> Unserved:
    return Unserved(neutral, instead)


_TEMPLATE = "chat_template_kwargs has what a template is to know, such as enable_thinking"
_REPETITION = "repetition_penalty is, over all of the prompt and the answer"
_GUIDED = "structured_outputs has json, regex, choice and grammar"

UNSERVED: Mapping[str, Unserved] = {
    # What is generated.
    "adapter": _off(),
    "audio": _off(),
    "context": _off([]),
    "documents": _off([], instead="they are for conversations"),
    "function_call": _off("none", "auto"),
    "functions": _off([]),
    "image_data": _off([]),
    "images": _off([]),
    "inputs": _off(instead="give a prompt, or messages"),
    "lora": _off([]),
    "lora_path": _off(),
    "lora_request": _off(),
    "messages": _off(instead="they are for /v1/chat/completions"),
    "modalities": _off(["text"]),
    "negative_prompt": _off(""),
    "options": _off({}, instead="give what it has as fields of the request"),
    "parameters": _off({}, instead="give what it has as fields of the request"),
    "prompt": _off(instead="it is for /v1/completions"),
    "prompt_embeds": _off(),
    "raw": _off(False, instead="/v1/completions takes a prompt as it is"),
    "reasoning": _off({}, instead="it is for conversations"),
    "reasoning_effort": _off(instead="it is for conversations"),
    "safe_prompt": _off(False),
    "sampling_params": _off({}, instead="give what it has as fields of the request"),
    "suffix": _off(""),
    "system": _off("", instead="give a message with the role system"),
    "template": _off(""),
    "tool_choice": _off("none", "auto"),
    "tools": _off([]),
    "truncate": _off(),
    "truncate_prompt_tokens": _off(),
    "web_search_options": _off(),
    # Templates and thinking.
    "chat_template": _off(),
    "chat_template_kwargs": _off({}, instead="they are for conversations"),
    "enable_thinking": _off(instead=_TEMPLATE),
    "reasoning_budget": _off(-1),
    "think": _off(instead=_TEMPLATE),
    "thinking": _off(instead=_TEMPLATE),
    "thinking_budget": _off(-1),
    "thinking_budget_tokens": _off(-1),
    "thinking_token_budget": _off(),
    # How long an answer is, how many there are, and where they end.
    "ban_eos_token": _off(False, instead="ignore_eos is"),
    "max_completion_tokens": _off(instead="max_tokens is, for completions"),
    "max_length": _off(instead="max_tokens is, without the prompt"),
    "max_output_tokens": _off(instead="max_tokens is"),
    "min_length": _off(0, instead="min_tokens is, without the prompt"),
    "min_new_tokens": _off(0, instead="min_tokens is"),
    "n_indent": _off(0),
    "no_stop_trim": _off(False, instead="include_stop_str_in_output is"),
    "num_return_sequences": _off(1, instead="n is"),
    "repetition_detection": _off(),
    "stop_regex": _off([], ""),
    "stop_sequence": _off([], instead="stop is"),
    "stop_sequences": _off([], instead="stop is"),
    "stopping_strings": _off([], instead="stop is"),
    "t_max_predict_ms": _off(0, -1),
    "t_max_prompt_ms": _off(0, -1),
    # Penalties.
    "encoder_repetition_penalty": _off(1),
    "no_repeat_ngram_size": _off(0, instead="the dry_ fields are"),
    "rep_pen": _off(1, instead=_REPETITION),
    "rep_pen_range": _off(0, -1, instead=_REPETITION),
    "rep_pen_slope": _off(0, 1),
    "repeat_penalty": _off(1, instead=_REPETITION),
    "repetition_decay": _off(0),
    "repetition_penalty_range": _off(0, -1, instead=_REPETITION),
    # Which token comes next.
    "adaptive_target": _off(-1),
    "banned_strings": _off([], instead="bad_words are"),
    "banned_tokens": _off([], "", instead="logit_bias and bad_words are"),
    "cfg_scale": _off(1),
    "custom_logit_processor": _off(),
    "custom_token_bans": _off("", instead="logit_bias and bad_words are"),
    "do_sample": _off(True, instead="temperature 0 is, for the likeliest token"),
    "dynamic_temperature": _off(False),
    "dynatemp_range": _off(0),
    "early_stopping": _off(False),
    "epsilon_cutoff": _off(0),
    "eta_cutoff": _off(0),
    "guidance_scale": _off(1),
    "length_penalty": _off(1),
    "logits_processors": _off([]),
    "min_keep": _off(0, 1),
    "mirostat": _off(0),
    "mirostat_mode": _off(0),
    "nsigma": _off(0),
    "num_beams": _off(1),
    "penalty_alpha": _off(0),
    "random_seed": _off(instead="seed is"),
    "sampler_order": _off([]),
    "sampler_priority": _off([]),
    "samplers": _off(),
    "skew": _off(0),
    "smoothing_factor": _off(0),
    "tfs": _off(1),
    "tfs_z": _off(1),
    "top_a": _off(0),
    "top_n_sigma": _off(-1, 0),
    "typ_p": _off(1, instead="typical_p is"),
    "typical": _off(1, instead="typical_p is"),
    "use_beam_search": _off(False),
    "vllm_xargs": _off({}),
    "watermark": _off(False),
    "xtc_probability": _off(0),
    # The form of an answer.
    "ebnf": _off("", instead="structured_outputs.grammar is"),
    "format": _off("", instead="response_format is"),
    "json_schema": _off(instead="response_format and structured_outputs.json are"),
    "regex": _off("", instead="structured_outputs.regex is"),
    "structural_tag": _off("", instead=_GUIDED),
    # What is told beside it.
    "decoder_input_details": _off(False, instead="prompt_logprobs is"),
    "kv_transfer_params": _off(),
    "logprob_token_ids": _off(),
    "n_probs": _off(0, instead="logprobs is"),
    "post_sampling_probs": _off(False),
    "return_full_text": _off(False, instead="echo is, for completions"),
    "return_hidden_states": _off(False),
    "top_logprobs": _off(instead="logprobs is, a number, for completions"),
    "top_n_tokens": _off(0, instead="logprobs is"),
}

WITHOUT_EFFECT = frozenset(
    {
        *("cache_prompt", "include_reasoning", "keep_alive", "metadata", "parallel_tool_calls"),
        *("prediction", "prompt_cache_key", "prompt_cache_retention", "request_id"),
        *("safety_identifier", "service_tier", "spaces_between_special_tokens", "store"),
        *("stream_interval", "verbosity"),
        # How something is done that is refused where it is asked for.
        *("adaptive_decay", "dynatemp_exponent", "dynatemp_high", "dynatemp_low", "mirostat_eta"),
        *("mirostat_tau", "smoothing_curve", "xtc_threshold"),
        *("best_of", "n_cmpl", "penalize_nl", "repeat_last_n"),  # else refused, below
        *UNSERVED,
    }
)
"""Fields that change nothing about an answer when they are not refused."""

_PENALTIES = (("repetition_penalty", 1), ("presence_penalty", 0), ("frequency_penalty", 0))


def refuse_unserved(extra: Mapping[str, Any], request: object) -> None:
    """Raises :class:`RequestError` for a field in ``extra`` that asks for what is not served.

    ``extra``: the fields of a request that are none of ours. ``request``: ours, on which some
    others depend.
    """
    for name, value in extra.items():
        if value is None:
            continue
        if name in UNSERVED:
            neutral, instead = UNSERVED[name]
            if value not in neutral:
                raise _unserved(name, instead or _leave_out(neutral))
        elif name in ("best_of", "n_cmpl"):
            if value != (getattr(request, "n", None) or 1):
                raise _unserved(name, "leave it out, or give as many as n")
        elif name == "repeat_last_n":
            if value != -1 and _penalizes(request):
                raise _unserved(name, "penalties are for all tokens; leave it out, or give -1")
        elif name == "penalize_nl":
            if value is not True and _penalizes(request):
                raise _unserved(name, "penalties are for all tokens; leave it out, or give true")
        elif name.startswith("guided_"):
            raise RequestError(
                "guided_*: json, regex, choice and grammar are served, or structured_outputs",
                param=name[:40],
            )


def _unserved(name: str, right: str) -> RequestError:
    return RequestError(f"{name}: this is not served here; {right}", param=name)


def _leave_out(neutral: tuple[Any, ...]) -> str:
    if not neutral:
        return "leave it out"
    return f"leave it out, or give {json.dumps(neutral[0])}"


def _penalizes(request: object) -> bool:
    return any(getattr(request, name, None) not in (None, off) for name, off in _PENALTIES)
