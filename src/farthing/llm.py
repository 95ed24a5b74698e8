"""``LLM``: a model in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack, get_args

from farthing.catalog import DEFAULT_MODEL, resolve
from farthing.config import ModelConfig
from farthing.engine.batching import BATCHING, BatchingName
from farthing.engine.build import EngineOptions, build_engine
from farthing.engine.engine import KvName, caches_prefixes
from farthing.engine.in_flight import run_in_flight
from farthing.engine.loop import EngineLoop
from farthing.engine.model_loader import LoadOptions, load_model
from farthing.engine.output_processor import OutputProcessor, request_output
from farthing.engine.outputs import RequestOutput, StreamChunk
from farthing.engine.prefix_store import check_prefix_folder, open_prefix_store
from farthing.errors import InvalidParameterError
from farthing.llm_arguments import (
    ChatArguments,
    Message,
    Prompt,
    RequestArguments,
    check_counts,
    check_names,
    check_request,
    divide,
    is_message,
    own_arguments,
    params_list,
    prompt_list,
    token_ids,
)
from farthing.models.adapter import open_adapter
from farthing.program.kv_types import KvDtype
from farthing.program.native import FloatMode
from farthing.program.weights import WeightPlacement
from farthing.sampling.params import SamplingParams
from farthing.tokenization.chat_template import ChatTemplate
from farthing.tokenization.prompt_encoder import PromptEncoder
from farthing.tokenization.tokenizer import Tokenizer

K = TypeVar("K")


class LLM:
    """Loads a model and generates with it.

    ``model`` is a catalog name, a hub id, a GGUF file, a Hugging Face directory or a packed one
    (``farthing quantize``), whose weights are used where they lie (``weights="mmap"``) or copied
    into memory of this process (``"copy"``).
    ``use_cache=False`` recomputes every sequence from its first token at each step: the same
    tokens, slowly. ``max_model_len`` (tokens of one sequence) defaults to the model's context, or
    to what memory allows where that is less. The KV cache has room for ``kv_cache_tokens`` of all
    sequences together or takes ``kv_cache_memory_bytes``; by default one sequence of the longest
    fits. ``adapter`` is the directory of a LoRA adapter made
    for the model, as the ``peft`` library saves it.

    What prompts have in common is computed once and kept while there is room
    (``enable_prefix_caching``). ``batching="static"`` and ``kv="contiguous"`` serve as was done
    before continuous batching and paging, for comparison: batches that end together, and a cache
    in which each sequence reserves the longest context. So many of those as ``kv_cache_tokens``
    has room for run at a time: by default one. ``fair_share=False`` serves requests of one priority
    in order of arrival, whoever their users are.

    Calls from several threads are safe; their requests share the passes.

    ``prefix_cache`` is a folder from which cached prompts are restored, and to which :meth:`close`,
    or the end of a ``with`` block, saves them: up to ``prefix_cache_bytes``, by default as many as
    the KV cache holds. Nothing is saved without either. What is wrong with it is logged as a
    warning and costs time only. It holds what was said: it is made for its owner alone.

    Raises subclasses of :class:`FarthingError` when the model cannot be had or does not fit.
    """

    def __init__(
        self,
        model: str | PathLike[str] = DEFAULT_MODEL,
        *,
        adapter: str | PathLike[str] | None = None,
        weights: WeightPlacement = "mmap",
        use_cache: bool = True,
        enable_prefix_caching: bool = True,
        prefix_cache: str | PathLike[str] | None = None,
        prefix_cache_bytes: int | None = None,
        batching: BatchingName = "continuous",
        kv: KvName = "paged",
        fair_share: bool = True,
        kv_cache_dtype: KvDtype = "fp16",
        max_model_len: int | None = None,
        num_threads: int | None = None,
        max_num_seqs: int = 32,
        max_num_batched_tokens: int = 512,
        kv_cache_tokens: int | None = None,
        kv_cache_memory_bytes: int | None = None,
        load_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        check_counts(
            max_model_len=max_model_len,
            num_threads=num_threads,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            kv_cache_tokens=kv_cache_tokens,
            kv_cache_memory_bytes=kv_cache_memory_bytes,
            prefix_cache_bytes=prefix_cache_bytes,
        )
        check_names("batching", batching, BATCHING)
        check_names("kv", kv, get_args(KvName))
        check_prefix_folder(
            prefix_cache, caches=caches_prefixes(kv, enable_prefix_caching, use_cache)
        )
        with FloatMode():
            opened = None if adapter is None else open_adapter(Path(adapter))
        options = LoadOptions(
            kv_cache_dtype=kv_cache_dtype,
            max_model_len=max_model_len,
            num_threads=num_threads,
            max_num_batched_tokens=max_num_batched_tokens,
            kv_cache_tokens=kv_cache_tokens,
            kv_cache_memory_bytes=kv_cache_memory_bytes,
            adapter=opened,
            weights=weights,
        )
        self.path = resolve(Path(model) if isinstance(model, PathLike) else model)
        loaded = load_model(self.path, options, load_progress)
        self.config: ModelConfig = loaded.config
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.context_length = loaded.max_model_len
        self.fingerprint = loaded.fingerprint
        self.runner = loaded.runner
        self.engine = build_engine(
            loaded,
            EngineOptions(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                enable_prefix_caching=enable_prefix_caching,
                batching=batching,
                kv=kv,
                fair_share=fair_share,
                use_cache=use_cache,
            ),
        )
        self._loop = EngineLoop(self.engine)
        self._store = open_prefix_store(
            prefix_cache, loaded, self.engine.prefix_cache, prefix_cache_bytes
        )
        self.encoder = PromptEncoder(
            loaded.tokenizer, loaded.checkpoint.chat_template, loaded.config.vocab_size
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all requests, saves the prefix cache if it has a folder, and frees the memory.

        Calls that are still waiting in other threads get what there is, with an ``error``; streams
        raise it. After it nothing can be generated. Twice is once.
        """
        if not self._loop.close():
            return
        try:
            if self._store is not None:
                self._store.save()
        finally:
            self._store = None
            self.runner.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **request: Unpack[RequestArguments],
    ) -> list[RequestOutput]:
        """Completes every prompt, batched; results in the order of the prompts.

        A sequence of token ids is one prompt. One ``SamplingParams`` serves all prompts, or one for
        each. ``request``: see :class:`RequestArguments`; the same for all. A request that fails
        ends with ``finish_reason`` ``error`` and says why in ``error``; the others are as if it had
        not been there.
        """
        items = prompt_list(prompts)
        params = params_list(sampling_params, len(items))
        encoded = [self._encode(prompt, request) for prompt in items]
        return self._run([(*e, p) for e, p in zip(encoded, params, strict=True)])

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **arguments: Unpack[ChatArguments],
    ) -> list[RequestOutput]:
        """Answers one conversation, or each of several, through the model's chat template.

        ``arguments``: see :class:`ChatArguments`; the same for all conversations.
        """
        request, template = divide(arguments)
        conversations = [messages] if not messages or is_message(messages[0]) else messages
        params = params_list(sampling_params, len(conversations))
        encoded = [self.encode_chat(c, **template) for c in conversations]  # type: ignore[arg-type]
        return self._run([(None, ids, request, p) for ids, p in zip(encoded, params, strict=True)])

    def run(
        self,
        requests: Iterable[tuple[K, Prompt, SamplingParams]],
        *,
        max_in_flight: int | None = None,
        on_pass: Callable[[int], None] | None = None,
        **arguments: Unpack[RequestArguments],
    ) -> Iterator[tuple[K, RequestOutput | Exception]]:
        """Completes prompts that are taken from ``requests`` as places come free.

        Yields each one's key and result in order of completion; the result of a prompt that is
        refused is the exception. Prompts are taken while fewer than ``max_in_flight`` sequences
        (``max_num_seqs`` by default) are unfinished. ``on_pass`` is told after every pass how many
        tokens the unfinished ones have. What it or ``requests`` raises ends the run, as closing the
        iterator does; the unfinished are aborted. ``arguments``: see :class:`RequestArguments`; the
        same for all.
        """
        check_counts(max_in_flight=max_in_flight)
        check_request(arguments)
        return run_in_flight(
            self._loop,
            requests,
            max_in_flight or self.engine.config.scheduler.max_num_seqs,
            prepare=lambda prompt, params: self._prepare(*self._encode(prompt, arguments), params),
            on_pass=on_pass,
        )

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        **request: Unpack[RequestArguments],
    ) -> Iterator[StreamChunk]:
        """Completes one prompt chunk by chunk. Closing the iterator aborts the request."""
        return self._stream(*self._encode(prompt, request), sampling_params)

    def chat_stream(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        **arguments: Unpack[ChatArguments],
    ) -> Iterator[StreamChunk]:
        """As :meth:`chat`, chunk by chunk. Closing the iterator aborts the request."""
        request, template = divide(arguments)
        ids = self.encode_chat(messages, **template)
        return self._stream(None, ids, request, sampling_params)

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
    ) -> list[int]:
        """Token ids of a conversation, up to where the answer begins; see :class:`ChatArguments`.

        Text of a message never becomes a control token. Raises :class:`ChatTemplateError`.
        """
        return self.encoder.encode_chat(
            messages,
            tools=tools,
            chat_template=chat_template,
            chat_template_kwargs=chat_template_kwargs,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )

    def count_chat_tokens(
        self, messages: Sequence[Message], **template: Unpack[ChatArguments]
    ) -> int:
        """Length of a conversation in tokens, the opening of the answer included."""
        return len(self.encode_chat(messages, **divide(template)[1]))

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template. Raises :class:`ChatTemplateError` if it has none."""
        return self.encoder.chat_template

    @property
    def has_chat_template(self) -> bool:
        """True when conversations can be encoded."""
        return self.encoder.has_chat_template

    def _encode(
        self, prompt: Prompt, arguments: RequestArguments
    ) -> tuple[str | None, Sequence[int], RequestArguments]:
        given: Any = prompt
        if isinstance(prompt, Mapping):
            given = prompt.get("prompt_token_ids")
            given = prompt.get("prompt") if given is None else given
            arguments = {**arguments, **own_arguments(prompt)}
        if isinstance(given, str):
            return given, self.encoder.encode(given), arguments
        return None, self.encoder.checked(token_ids(given)), arguments

    def _prepare(
        self,
        prompt: str | None,
        ids: Sequence[int],
        arguments: RequestArguments,
        params: SamplingParams,
    ) -> list[OutputProcessor]:
        self._loop.require_open()
        check_request(arguments)
        timeout = arguments.get("timeout")
        requests = self.engine.make_request(
            ids,
            params,
            user=arguments.get("user", ""),
            priority=arguments.get("priority", 0),
            cache_salt=arguments.get("cache_salt"),
            deadline=None if timeout is None else self._loop.now() + timeout,
        )
        return [OutputProcessor(request, prompt, self.tokenizer) for request in requests]

    def _run(
        self,
        requests: Sequence[tuple[str | None, Sequence[int], RequestArguments, SamplingParams]],
    ) -> list[RequestOutput]:
        prepared = [self._prepare(*request) for request in requests]
        everything = [processor for choices in prepared for processor in choices]
        try:
            for choices in prepared:
                self._loop.submit(choices)
            for choices in prepared:
                while not all(processor.request.finished for processor in choices):
                    self._loop.step()
            return [request_output(choices) for choices in prepared]
        finally:
            self._loop.forget(everything)

    def _stream(
        self,
        prompt: str | None,
        ids: Sequence[int],
        arguments: RequestArguments,
        params: SamplingParams | None,
    ) -> Iterator[StreamChunk]:
        if params is not None and params.prompt_logprobs is not None:
            raise InvalidParameterError(
                f"prompt_logprobs={params.prompt_logprobs}: a stream has no place for them; "
                "generate and chat do"
            )
        return self._chunks(self._prepare(prompt, ids, arguments, params or SamplingParams()))

    def _chunks(self, choices: Sequence[OutputProcessor]) -> Iterator[StreamChunk]:
        self._loop.submit(choices)
        try:
            finished = False
            while not finished:
                chunks, finished = self._loop.advance(choices)
                yield from chunks or [StreamChunk("", [])]  # a pass that read part of the prompt
        finally:
            self._loop.forget(choices)
