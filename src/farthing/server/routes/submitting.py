"""From a request that is ready to prompts in the engine."""

from __future__ import annotations

import asyncio
import hashlib
import json
from array import array
from collections.abc import Sequence

from farthing.llm_arguments import RequestArguments, check_request
from farthing.openai_protocol.endpoints import Job
from farthing.server.admission.admission import Ask
from farthing.server.engine_client import EngineClient
from farthing.server.principal import Principal
from farthing.server.seam.messages import Submit
from farthing.server.submission import Submission

MAX_USER = 64
"""Characters of a user's name that are kept; who was served how much is remembered of thousands."""


def messages_of(
    job: Job, principal: Principal, engine: EngineClient, timeout: float | None
) -> list[Submit]:
    """A message for each prompt of ``job``, on behalf of ``principal``.

    Who has a key is told apart by it, and shares cached prompts with nobody else; without keys a
    request is believed what user it comes from. One that names none is a user of its own, so that
    many prompts together are no more than one to those beside them. Raises
    :class:`InvalidParameterError`.
    """
    request = job.request
    arguments: RequestArguments = {
        "user": principal.name or short_user(request.user) or f"request {engine.next_key()}",
        "priority": max(principal.priority, request.priority or 0),
        "cache_salt": request.cache_salt,
    }
    check_request(arguments)
    salt = request.cache_salt
    if principal.name:
        salt = json.dumps([principal.name, salt])
    return [
        Submit(
            key=engine.next_key(),
            prompt_token_ids=array("i", ids),
            params=job.params,
            stream=bool(request.stream),
            user=arguments["user"],
            priority=arguments["priority"],
            cache_salt=salt,
            timeout=timeout,
        )
        for ids in job.prompts
    ]


def short_user(user: str | None) -> str | None:
    """``user``, or a digest in the place of a long one."""
    if user is None or len(user) <= MAX_USER:
        return user
    return hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()


def asks_of(job: Job, messages: Sequence[Submit]) -> list[Ask]:
    """What admission is told of the prompts."""
    params = job.params
    asks = []
    for message in messages:
        length = len(message.prompt_token_ids)
        room = job.served.context_length - length
        limit = room if params.max_tokens is None else min(params.max_tokens, room)
        asks.append(
            Ask(
                message.key,
                length,
                params.n,
                limit,
                params.ignore_eos,
                message.user,
                message.priority,
            )
        )
    return asks


async def submit_all(engine: EngineClient, messages: Sequence[Submit]) -> list[Submission]:
    """Submits prompts together; returns when the engine has queued all of them.

    Raises what the first to be refused raises; the others are aborted.
    """
    if len(messages) == 1:
        return [await engine.submit(messages[0])]
    tasks = [asyncio.create_task(engine.submit(message)) for message in messages]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Submission):
                result.abort()
        raise
