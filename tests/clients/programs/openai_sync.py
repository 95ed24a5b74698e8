"""The OpenAI client: models, conversations, streams, completions, parsing, errors."""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

import openai
from pydantic import BaseModel

given: dict[str, Any] = json.loads(sys.argv[1])
client = openai.OpenAI(base_url=f"{given['url']}/v1", api_key="EMPTY", max_retries=0)
model, messages = given["model"], given["messages"]


class Coin(BaseModel):
    """What a structured answer is parsed as; every field ends, whatever the model says."""

    name: Literal["farthing", "groat", "Heller 🌾"]
    quarters: Literal[1, 4, 16]
    old: bool


def chat(**options: Any) -> dict[str, Any]:
    answer = client.chat.completions.create(model=model, messages=messages, **options)
    choices = [[c.message.role, c.message.content, c.finish_reason] for c in answer.choices]
    usage = answer.usage.model_dump(exclude_none=True) if answer.usage else None
    return {"choices": choices, "usage": usage, "model": answer.model, "object": answer.object}


def chat_stream(**options: Any) -> dict[str, Any]:
    stream = client.chat.completions.create(
        model=model,
        messages=messages,
        stream=True,
        stream_options={"include_usage": True},
        **options,
    )
    texts: list[str] = []
    roles, reasons, usages, ids = [], [], [], set()
    for chunk in stream:
        ids.add(chunk.id)
        if chunk.usage is not None:
            usages.append([len(chunk.choices), chunk.usage.model_dump(exclude_none=True)])
        for choice in chunk.choices:
            if choice.delta.role:
                roles.append(choice.delta.role)
            if choice.delta.content:
                texts.append(choice.delta.content)
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
    return {"texts": texts, "roles": roles, "reasons": reasons, "usages": usages, "ids": len(ids)}


def completion(**options: Any) -> dict[str, Any]:
    answer = client.completions.create(model=model, prompt=given["prompt"], **options)
    (choice,) = answer.choices
    logprobs = choice.logprobs.model_dump() if choice.logprobs else None
    return {"text": choice.text, "reason": choice.finish_reason, "logprobs": logprobs}


def parsed() -> dict[str, Any]:
    answer = client.chat.completions.parse(
        model=model, messages=messages, response_format=Coin, max_tokens=400, temperature=0
    )
    message = answer.choices[0].message
    return {
        "reason": answer.choices[0].finish_reason,
        "content": message.content,
        "coin": message.parsed.model_dump() if message.parsed else None,
    }


def error(**options: Any) -> dict[str, Any]:
    asked = {"model": model, "messages": messages, "max_tokens": 1, **options}
    try:
        client.chat.completions.create(**asked)
    except openai.APIStatusError as problem:
        return {
            "class": type(problem).__name__,
            "status": problem.status_code,
            "code": problem.code,
            "param": problem.param,
            "type": problem.type,
        }
    raise AssertionError(f"no error for {options}")


LONG = [{"role": "user", "content": "flour " * 20_000}]
greedy = {"temperature": 0, "max_tokens": 24}
print(
    json.dumps(
        {
            "models": [each.id for each in client.models.list()],
            "retrieved": client.models.retrieve(model).id,
            "chat": chat(**greedy),
            "stream": chat_stream(**greedy),
            "stopped": chat(**greedy, stop=given["stop"]),
            "stopped_stream": chat_stream(**greedy, stop=given["stop"]),
            "seeded": [chat(seed=seed, max_tokens=24) for seed in (7, 7, 8)],
            "several": chat(seed=7, max_tokens=8, n=3),
            "completion": completion(**greedy),
            "echo": completion(temperature=0, max_tokens=4, echo=True, logprobs=2),
            "parsed": parsed(),
            "errors": {
                "model": error(model="no-such-model"),
                "value": error(temperature=9.0),
                "long": error(messages=LONG),
            },
        }
    )
)
