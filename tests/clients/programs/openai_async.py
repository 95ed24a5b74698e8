"""The asynchronous OpenAI client: many streams at a time, one of them left early."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import openai

given: dict[str, Any] = json.loads(sys.argv[1])


async def main() -> None:
    async with openai.AsyncOpenAI(base_url=f"{given['url']}/v1", api_key="EMPTY") as client:

        async def one(content: str, most: int | None) -> str:
            stream = await client.chat.completions.create(
                model=given["model"],
                messages=[{"role": "user", "content": content}],
                temperature=0,
                max_tokens=24,
                stream=True,
            )
            text, chunks = "", 0
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                chunks += bool(chunk.choices[0].delta.content)
                if most is not None and chunks >= most:
                    await stream.close()
                    break
            return text

        contents = given["contents"]
        whole = [one(content, None) for content in contents]
        texts = await asyncio.gather(*whole, one(contents[0], 2))
    print(json.dumps({"texts": texts[:-1], "left": texts[-1]}))


asyncio.run(main())
