"""``farthing chat``: a conversation, or one question of it."""

from __future__ import annotations

from typing import Annotated

import typer

from farthing.cli.options import (
    Adapter,
    DryMultiplier,
    FrequencyPenalty,
    KvCacheDtype,
    MaxModelLen,
    MaxTokens,
    MinP,
    ModelOption,
    NoCache,
    PrefixCache,
    PresencePenalty,
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


def chat(
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT",
            help="Ask this and leave; - reads it from stdin. Without it, a conversation begins.",
            show_default=False,
        ),
    ] = None,
    model: ModelOption = None,
    system: Annotated[
        str | None,
        typer.Option("--system", "-s", metavar="TEXT", help="System message.", show_default=False),
    ] = None,
    max_tokens: MaxTokens = 2048,
    temperature: Temperature = 0.0,
    seed: Seed = None,
    stop: Stop = None,
    adapter: Adapter = None,
    think: Think = None,
    chat_template_arg: TemplateArguments = None,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    typical_p: TypicalP = 1.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    dry_multiplier: DryMultiplier = 0.0,
    threads: Threads = None,
    kv_cache_dtype: KvCacheDtype = "fp16",
    weights: Weights = "mmap",
    max_model_len: MaxModelLen = None,
    prefix_cache: PrefixCache = None,
    no_cache: NoCache = False,
) -> None:
    """Talk with a model, or ask it one question.

    Ctrl-C ends an answer, /help lists the commands, Ctrl-D leaves.
    """
    import sys
    from contextlib import closing

    from farthing.catalog import DEFAULT_MODEL
    from farthing.cli.conversation.loop import Conversation
    from farthing.cli.conversation.reader import open_reader
    from farthing.cli.conversation.session import Session
    from farthing.cli.generation import Sampling, read_prompt, require_utf8
    from farthing.cli.loading import LoadOptions, load
    from farthing.cli.template_arguments import TemplateVariables, parse_variables, require_switch

    if prompt is None and not sys.stdin.isatty():
        prompt = "-"
    text = None if prompt is None else read_prompt(prompt)
    require_utf8("the system message", system or "")
    sampling = Sampling(
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
    )
    sampling.params()  # refuses what cannot be before anything is loaded
    variables = TemplateVariables(parse_variables(chat_template_arg), think)
    session = Session(model or DEFAULT_MODEL, system, sampling, variables)
    options = LoadOptions(
        threads,
        kv_cache_dtype,
        max_model_len,
        not no_cache,
        adapter,
        weights,
        prefix_cache=prefix_cache,
    )
    llm = load(session.model, options)
    llm.chat_template  # noqa: B018 - says at once that the model cannot chat
    if think is not None:
        require_switch(llm)
    with closing(Conversation(llm, session, options)) as conversation:
        if text is not None:
            conversation.ask_once(text)
        else:
            conversation.talk(open_reader())
