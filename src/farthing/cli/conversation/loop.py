"""The conversation itself: read, answer, offer to trim, until the user leaves."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from farthing.cli.conversation.commands import find_command, split_command
from farthing.cli.download import fetch
from farthing.cli.errors import describe_error, report
from farthing.cli.generation import Answer, InterruptOnce, describe_metrics, stream_answer
from farthing.cli.loading import LoadOptions, load
from farthing.cli.terminal import dim, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from farthing.cli.conversation.reader import Reader
    from farthing.cli.conversation.session import Message, Session
    from farthing.engine.outputs import StreamChunk
    from farthing.llm import LLM


class Conversation:
    """One model, one session and, while talking, one reader."""

    def __init__(self, llm: LLM, session: Session, options: LoadOptions) -> None:
        self.llm = llm
        self.session = session
        self._options = options
        self._reader: Reader | None = None

    def close(self) -> None:
        """Ends the conversation: its model is closed."""
        self.llm.close()

    def ask_once(self, text: str) -> None:
        """Answers one question; Ctrl-C raises KeyboardInterrupt."""
        self.session.ask(text)
        self._finish(stream_answer(self._chunks()))

    def talk(self, reader: Reader) -> None:
        """Answers until the user leaves. Errors are told and survived."""
        self._reader = reader
        dim(self.describe_model())
        dim("/help lists the commands, Ctrl-D leaves.")
        while True:
            try:
                text = reader.read()
            except KeyboardInterrupt:
                dim("Ctrl-D or /bye leaves.")
                continue
            if text is None:
                return
            if not text:
                continue
            try:
                if not self._take(text):
                    return
            except BrokenPipeError:
                raise  # nobody is there to talk with
            except Exception as error:  # whatever it is, what was said so far must not be lost
                _, kind, message = describe_error(error)
                report(message, kind=kind)

    def confirm(self, question: str) -> bool:
        """Whether the user agrees; without a reader nobody can."""
        return self._reader is not None and self._reader.confirm(question)

    def describe_model(self) -> str:
        """``"qwen2.5-coder-0.5b · qwen2 · 24 layers · context of 32,768 tokens"``."""
        config = self.llm.config
        adapter = f" with {self._options.adapter}" if self._options.adapter else ""
        return (
            f"{self.session.model}{adapter} · {config.architecture} · {config.num_layers} layers · "
            f"context of {self.llm.context_length:,} tokens"
        )

    def describe_totals(self) -> str:
        """Tokens of context used, and sums over all answers."""
        totals = self.session.totals
        messages = self.session.for_model()
        used = self._count_tokens(messages) if messages else 0
        lines = [
            f"context: {used:,} of {self.llm.context_length:,} tokens, {len(messages)} messages",
            f"answers: {totals.answers}, {totals.prompt_tokens:,} prompt tokens "
            f"({totals.cached_tokens:,} cached) in "
            f"{totals.prefill_seconds:.2f} s, {totals.completion_tokens:,} tokens in "
            f"{totals.decode_seconds:.2f} s",
        ]
        if totals.decode_seconds > 0:
            # The first token of an answer comes from its prefill.
            rate = (totals.completion_tokens - totals.answers) / totals.decode_seconds
            lines.append(f"decode: {rate:.1f} tokens/s")
        return "\n".join(lines)

    def change_model(self, name: str) -> None:
        """Goes on with another model, or with the old one if the other cannot be loaded or chat.

        An adapter stays behind with the model that it was made for, and so does what was said of
        thinking where the other has no switch for it.
        """
        before = self.session.model
        plain = replace(self._options, adapter=None)
        path = str(fetch(name))
        self.llm.close()
        gc.collect()  # two models may not fit
        try:
            self.llm = load(path, plain)
            template = self.llm.chat_template
        except BaseException:
            self.llm = load(before, self._options)
            raise
        if not template.thinking_switches:
            self.session.variables.think = None
        self.session.model = name
        self._options = plain

    def _chunks(self) -> Iterator[StreamChunk]:
        return self.llm.chat_stream(
            self.session.for_model(),
            self.session.sampling.params(),
            chat_template_kwargs=self.session.variables.of(self.llm.chat_template),
        )

    def _count_tokens(self, messages: list[Message]) -> int:
        variables = self.session.variables.of(self.llm.chat_template)
        return self.llm.count_chat_tokens(messages, chat_template_kwargs=variables)

    def _take(self, text: str) -> bool:
        """Does what was typed; False if it was the wish to leave."""
        command = split_command(text)
        if command is None:
            self._answer(text)
            return True
        name, rest = command
        found = find_command(name)
        said = found.run(self, rest)
        if said:
            dim(said)
        return not found.leaves

    def _answer(self, text: str) -> None:
        self.session.ask(text)
        try:
            self._make_room()
            answer = self._stream()
            while self._context_full(answer) and self._trim("and answer again"):
                answer = self._stream()
        except BaseException:
            self.session.withdraw()
            raise
        self.session.record(answer)

    def _make_room(self) -> None:
        """Offers to trim a conversation that leaves no token to answer with.

        If the user declines, the model will say how long the prompt is.
        """
        used = self._count_tokens(self.session.for_model())
        if used >= self.llm.context_length:
            self._trim("and go on")

    def _stream(self) -> Answer:
        with InterruptOnce() as interrupt:
            answer = stream_answer(self._chunks(), interrupt=interrupt)
        if answer.interrupted and answer.metrics is not None:
            answer.metrics.prompt_tokens = self._count_tokens(self.session.for_model())
        self._finish(answer)
        return answer

    def _trim(self, purpose: str) -> bool:
        """Drops the oldest turns if the user agrees, until a quarter of the context is free.

        If the last question alone is longer than that, until it fits.
        """
        context = self.llm.context_length
        count_tokens = self._count_tokens
        count = self.session.droppable(count_tokens, context * 3 // 4)
        if count == 0:  # a long question: one token to answer with is better than none
            count = self.session.droppable(count_tokens, context - 1)
        if count == 0:
            return False
        question = (
            f"The context of {context:,} tokens is full. "
            f"Drop the oldest {count} messages {purpose}?"
        )
        if not self.confirm(question):
            return False
        del self.session.messages[:count]
        return True

    def _context_full(self, answer: Answer) -> bool:
        return (
            answer.finish_reason == "length"
            and answer.metrics is not None
            and answer.metrics.completion_tokens < self.session.sampling.max_tokens
        )

    def _finish(self, answer: Answer) -> None:
        """Ends the line of the answer and writes its numbers."""
        if not answer.text.endswith("\n"):
            write_text("\n")
        sys.stdout.flush()
        note = ""
        if answer.interrupted:
            note = "stopped"
        elif self._context_full(answer):
            note = "the context is full"
        elif answer.finish_reason == "length":
            note = f"stopped at {self.session.sampling.max_tokens:,} tokens (max_tokens)"
        numbers = describe_metrics(answer.metrics) if answer.metrics is not None else ""
        dim(" · ".join(part for part in (numbers, note) if part))
