"""``farthing run``: one prompt, one answer."""

from __future__ import annotations

from typing import Annotated

import typer

from farthing.cli.options import (
    Adapter,
    Choice,
    DryMultiplier,
    FrequencyPenalty,
    Grammar,
    Json,
    JsonObject,
    JsonSchema,
    KvCacheDtype,
    MaxModelLen,
    MaxTokens,
    MinP,
    ModelArgument,
    NoCache,
    PrefixCache,
    PresencePenalty,
    Regex,
    RepetitionPenalty,
    Seed,
    Stop,
    Temperature,
    TemplateArguments,
    Think,
    Threads,
    TopK,
    TopP,
    TypicalP,
    Weights,
)


def run(
    model: ModelArgument,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The prompt; - reads it from stdin.")
    ],
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    seed: Seed = None,
    stop: Stop = None,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    typical_p: TypicalP = 1.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    dry_multiplier: DryMultiplier = 0.0,
    json_schema: JsonSchema = None,
    json_object: JsonObject = False,
    regex: Regex = None,
    choice: Choice = None,
    grammar: Grammar = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Let the model continue the text as it is. Without it, the prompt is a user's "
            "message if the model has a chat template.",
        ),
    ] = False,
    adapter: Adapter = None,
    think: Think = None,
    chat_template_arg: TemplateArguments = None,
    threads: Threads = None,
    kv_cache_dtype: KvCacheDtype = "fp16",
    weights: Weights = "mmap",
    max_model_len: MaxModelLen = None,
    prefix_cache: PrefixCache = None,
    no_cache: NoCache = False,
    json: Json = False,
) -> None:
    """Answer one prompt.

    The answer goes to stdout as it is made, its numbers to stderr.
    """
    from farthing.cli.generation import (
        Sampling,
        describe_metrics,
        metrics_json,
        read_prompt,
        stream_answer,
    )
    from farthing.cli.loading import LoadOptions, load
    from farthing.cli.structured import AnswerForm
    from farthing.cli.template_arguments import (
        TemplateVariables,
        parse_variables,
        refuse_without_template,
        require_switch,
    )
    from farthing.cli.terminal import dim, write_json, write_text

    prompt = read_prompt(prompt)
    variables = TemplateVariables(parse_variables(chat_template_arg), think)
    if raw:
        refuse_without_template(variables)
    form = AnswerForm(json_schema, json_object, regex, tuple(choice or ()), grammar)
    params = Sampling(
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        stop=tuple(stop or ()),
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        dry_multiplier=dry_multiplier,
    ).params(form.params())
    options = LoadOptions(
        threads,
        kv_cache_dtype,
        max_model_len,
        not no_cache,
        adapter,
        weights,
        prefix_cache=prefix_cache,
    )
    with load(model, options) as llm:
        templated = not raw and llm.has_chat_template
        if templated:
            if think is not None:
                require_switch(llm)
            question = [{"role": "user", "content": prompt}]
            chunks = llm.chat_stream(
                question, params, chat_template_kwargs=variables.of(llm.chat_template)
            )
        else:
            refuse_without_template(variables)
            chunks = llm.stream(prompt, params)
        answer = stream_answer(chunks, write=(lambda _: None) if json else write_text)
    metrics = answer.metrics
    assert metrics is not None  # the last chunk has them
    if json:
        write_json(
            {
                "model": model,
                "adapter": adapter,
                "prompt": prompt,
                "chat_template": templated,
                "text": answer.text,
                "finish_reason": answer.finish_reason,
                **metrics_json(metrics),
            }
        )
        return
    write_text("\n")
    note = ""
    if answer.finish_reason == "length":
        whose = "--max-tokens" if metrics.completion_tokens >= max_tokens else "full context"
        note = f" · stopped by {whose}"
    dim(describe_metrics(metrics) + note)
