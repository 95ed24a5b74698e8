"""The OpenAI client at a full server: it is refused, waits as told and gets its answer."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import httpx2
import openai

given: dict[str, Any] = json.loads(sys.argv[1])
refused: list[float] = []


async def look(response: httpx2.Response) -> None:
    if response.status_code == 429:
        assert float(response.headers["retry-after"]) > 0  # what other clients read
        exact = response.headers.get("retry-after-ms")
        refused.append(float(exact) / 1000 if exact else float(response.headers["retry-after"]))


async def main() -> None:
    http = httpx2.AsyncClient(event_hooks={"response": [look]})
    client = openai.AsyncOpenAI(
        base_url=f"{given['url']}/v1", api_key="EMPTY", max_retries=100, http_client=http
    )

    async def one(content: str) -> str:
        answer = await client.chat.completions.create(
            model=given["model"],
            messages=[{"role": "user", "content": content}],
            temperature=0,
            max_tokens=48,
        )
        return answer.choices[0].message.content or ""

    began = time.monotonic()
    texts = await asyncio.gather(*[one(content) for content in given["contents"]])
    seconds = time.monotonic() - began

    impatient = client.with_options(max_retries=0)
    asked = [
        impatient.chat.completions.create(
            model=given["model"], messages=[{"role": "user", "content": content}], max_tokens=48
        )
        for content in given["contents"]
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    kinds = [type(answer).__name__ for answer in answers]
    print(json.dumps({"texts": texts, "refused": refused, "seconds": seconds, "kinds": kinds}))


asyncio.run(main())
