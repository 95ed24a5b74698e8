"""langchain-openai: conversations, streams, batches, structured answers."""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

given: dict[str, Any] = json.loads(sys.argv[1])
common: dict[str, Any] = {
    "model": given["model"],
    "base_url": f"{given['url']}/v1",
    "api_key": "EMPTY",
    "temperature": 0,
    "max_retries": 0,
}


class Coin(BaseModel):
    """What a structured answer is parsed as; every field ends, whatever the model says."""

    name: Literal["farthing", "groat"]
    old: bool


chat = ChatOpenAI(**common, max_tokens=24)
content = given["contents"][0]
answer = chat.invoke(content)
patient = ChatOpenAI(**common, max_tokens=400)
coin = patient.with_structured_output(Coin, method="json_schema").invoke(content)
print(
    json.dumps(
        {
            "text": answer.content,
            "reason": answer.response_metadata["finish_reason"],
            "usage": answer.usage_metadata,
            "pieces": [chunk.content for chunk in chat.stream(content)],
            "batch": [each.content for each in chat.batch(given["contents"])],
            "completion": OpenAI(**common, max_tokens=24).invoke(given["prompt"]),
            "coin": coin.model_dump(),
        }
    )
)
