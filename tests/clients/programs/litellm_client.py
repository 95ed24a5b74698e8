"""litellm with its provider for vLLM's API: conversations, streams, completions, errors."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import litellm

given: dict[str, Any] = json.loads(sys.argv[1])
litellm.telemetry = False
common: dict[str, Any] = {
    "model": f"hosted_vllm/{given['model']}",
    "api_base": f"{given['url']}/v1",
    "api_key": "EMPTY",
    "temperature": 0,
    "num_retries": 0,
}
messages = given["messages"]

answer = litellm.completion(messages=messages, max_tokens=24, **common)
pieces = [
    chunk.choices[0].delta.content or ""
    for chunk in litellm.completion(messages=messages, max_tokens=24, stream=True, **common)
]
later = asyncio.run(litellm.acompletion(messages=messages, max_tokens=24, **common))
text = litellm.text_completion(prompt=given["prompt"], max_tokens=24, **common)
errors = {}
for name, asked in {
    "long": {"messages": [{"role": "user", "content": "flour " * 20_000}]},
    "model": {"messages": messages, "model": "hosted_vllm/no-such-model"},
}.items():
    try:
        litellm.completion(**{**common, **asked})
    except Exception as problem:
        errors[name] = type(problem).__name__
print(
    json.dumps(
        {
            "text": answer.choices[0].message.content,
            "reason": answer.choices[0].finish_reason,
            "usage": [answer.usage.prompt_tokens, answer.usage.completion_tokens],
            "pieces": pieces,
            "later": later.choices[0].message.content,
            "completion": text.choices[0].text,
            "errors": errors,
        }
    )
)
