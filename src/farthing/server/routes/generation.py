"""A request that generates, from its headers to the last byte of its answer."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from farthing.errors import FarthingError
from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.endpoints import Job, job_of, parse_request
from farthing.openai_protocol.errors import RequestError, request_error
from farthing.openai_protocol.json_body import read_object
from farthing.openai_protocol.served_model import ServedModel
from farthing.server.admission.retries import RETRY_COUNT, retries_of
from farthing.server.client_watch import ClientWatch
from farthing.server.engine_client import EngineEndedError
from farthing.server.http.body import read_body
from farthing.server.http.errors import error_response
from farthing.server.http.held_body import held_body
from farthing.server.observation.record import RequestRecord
from farthing.server.principal import ANYBODY, Principal
from farthing.server.routes.json_response import json_bytes, json_response
from farthing.server.routes.submitting import asks_of, messages_of, submit_all
from farthing.server.service import Service
from farthing.server.streaming.answer_stream import AnswerStream
from farthing.server.streaming.arrivals import arrivals
from farthing.server.streaming.events import error_event
from farthing.server.streaming.sender import EventSender
from farthing.server.submission import Submission

logger = logging.getLogger(__name__)

MOST_QUICK_BYTES = 2048

# Grammars and variables of the template; an escape could be in the name of a field.
_SLOW_FIELDS = re.compile(
    rb"guided_|structured_outputs|response_format|grammar|chat_template|documents|\\u"
)


class Generation(Response):
    """Reads the body of the request, has it generated, and answers, whole or as a stream.

    Until the engine has taken all its prompts nothing is sent, so that every refusal is a plain
    HTTP error. When the client leaves, at whatever moment, its prompts are aborted.
    """

    def __init__(self, service: Service, url: str) -> None:
        super().__init__()
        self._service = service
        self._url = url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; raises nothing but what ends the task itself."""
        request = Request(scope, receive)
        state = scope.get("state", {})
        principal: Principal = state.get("principal", ANYBODY)
        record = RequestRecord.of(
            request_id=state.get("request_id", ""),
            endpoint=self._url,
            principal=principal.name,
            headers=request.headers,
        )
        observation = self._service.observation
        observation.started(record)
        try:
            await self._answer(request, send, principal, record)
        except ClientDisconnect:
            record.left()
        except Exception as error:  # before the first byte: a stream tells of its own
            refusal = told_error(error)
            record.failed(refusal)
            await error_response(refusal)(scope, receive, send)
        except BaseException:
            record.left()
            raise
        finally:
            observation.finished(record)

    async def _answer(
        self, request: Request, send: Send, principal: Principal, record: RequestRecord
    ) -> None:
        service = self._service
        model = service.model()
        raw = await read_body(request, service.limits)
        held = held_body(request.scope)
        retries = retries_of(request.headers.get(RETRY_COUNT))
        refuse_if_full = partial(model.admission.refuse_if_full, principal, retries=retries)
        refuse_if_full()
        async with ClientWatch(request.receive) as client:
            if takes_long(raw):
                job = await service.body_work.done(
                    held,
                    lambda raw: ready(self._url, raw, model.served),
                    raw,
                    check=refuse_if_full,
                )
            else:
                job = ready(self._url, raw, model.served)
            del raw
            self._note(job, record)
            messages = messages_of(job, principal, service.engine, service.request_timeout)
            with model.admission.enter(principal, asks_of(job, messages), retries=retries):
                if held is not None:  # what was made of it counts in the queue from here on
                    held.let_go()
                try:
                    submissions = await submit_all(service.engine, messages)
                except EngineEndedError:  # nothing of it has begun
                    raise service.life.without_engine() from None
                try:
                    if job.request.stream:
                        await self._stream(job, submissions, client, send, record)
                    else:
                        await self._whole(job, submissions, client, request, send, record)
                finally:
                    for submission in submissions:
                        submission.abort()

    def _note(self, job: Job, record: RequestRecord) -> None:
        service, request = self._service, job.request
        stream = bool(request.stream)
        record.asks(job.params, model=job.model, stream=stream, num_prompts=len(job.prompts))
        service.unknown_fields.note(request.unknown_fields)
        if service.observation.wants_prompts:
            asked: object = job.texts
            if isinstance(request, ChatRequest):
                asked = [message.for_template() for message in request.messages]
            service.observation.prompt(record, asked)

    async def _whole(
        self,
        job: Job,
        submissions: Sequence[Submission],
        client: ClientWatch,
        request: Request,
        send: Send,
        record: RequestRecord,
    ) -> None:
        outputs = await asyncio.gather(*(submission.output() for submission in submissions))
        for output in outputs:
            record.output_ended(output)
        if job.params.logprobs is None and job.params.prompt_logprobs is None:
            body = json_bytes(job.response(outputs))
        else:  # many times as large, and as long in the making
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(
                self._service.threads, lambda: json_bytes(job.response(outputs))
            )
        client.release()
        record.answered(200)
        await json_response(body)(request.scope, request.receive, send)

    async def _stream(
        self,
        job: Job,
        submissions: Sequence[Submission],
        client: ClientWatch,
        send: Send,
        record: RequestRecord,
    ) -> None:
        answers = AnswerStream(job, lambda number: submissions[number].prompt_logprobs)
        sender = EventSender(send, self._service.ping_seconds)
        record.answered(200)
        await sender.start()
        try:
            try:
                last = await self._events(answers, submissions, sender, record)
            except Exception as error:
                failure = told_error(error)
                record.failed(failure)
                last = error_event(failure)
            client.release()
            await sender.finish(last)
        finally:
            sender.close()

    async def _events(
        self,
        answers: AnswerStream,
        submissions: Sequence[Submission],
        sender: EventSender,
        record: RequestRecord,
    ) -> bytes:
        """Sends what comes, all of a step at once; returns the last of it, not sent yet."""
        async with arrivals(submissions) as source, aclosing(source):
            async for news in source:
                parts = []
                for number, chunks in news:
                    if answers.opens(number):
                        loop = asyncio.get_running_loop()
                        threads = self._service.threads
                        take = loop.run_in_executor(threads, answers.take, number, chunks)
                        parts.append(await take)
                    else:
                        parts.append(answers.take(number, chunks))
                    for chunk in chunks:
                        if chunk.token_ids:
                            record.first_token()
                        record.chunk_ended(chunk)
                    if answers.failure is not None:
                        record.failed(answers.failure)
                        return b"".join((*parts, error_event(answers.failure)))
                events = b"".join(parts)
                if answers.complete:
                    return events + answers.end()
                if events:
                    await sender.write(events)
        raise AssertionError("the engine ended an answer without its last chunk")


def takes_long(raw: bytes) -> bool:
    """Whether a body may take more than about a millisecond to be read, checked and encoded.

    A thread of its own costs others as much as that, by taking turns with them.
    """
    return len(raw) > MOST_QUICK_BYTES or _SLOW_FIELDS.search(raw) is not None


def ready(url: str, raw: bytes, served: ServedModel) -> Job:
    """The request of a body, checked and encoded. Raises as :func:`job_of`."""
    return job_of(parse_request(url, read_object(raw)), served)


def told_error(error: Exception) -> RequestError:
    """What is told of an exception; if it is a bug of ours, the log has all of it.

    The frames that it came through are let go: they have the body and all that was made of it, and
    whoever keeps a refusal would keep those.
    """
    if not isinstance(error, FarthingError):
        logger.error("a request failed", exc_info=error)
    told = request_error(error)
    told.__cause__ = told.__context__ = told.__traceback__ = None
    return told
