"""langchain-openai against a served tiny model."""

from __future__ import annotations

import pytest

from clients.environments import run_client
from clients.server import NAME
from clients.test_openai import GREEDY, PROMPT
from farthing import LLM

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]  # an environment may be made first

CONTENTS = ["Who weighs the flour?", "Who bakes?", "What is a farthing?"]


def test_what_it_gets_is_what_the_model_says(url: str, llm: LLM) -> None:
    got = run_client("common", "langchain_client", url, NAME, contents=CONTENTS, prompt=PROMPT)
    outputs = [llm.chat([{"role": "user", "content": each}], GREEDY)[0] for each in CONTENTS]
    texts = [output.outputs[0].text for output in outputs]
    assert got["text"] == "".join(got["pieces"]) == texts[0]
    assert got["batch"] == texts
    assert got["reason"] == outputs[0].outputs[0].finish_reason
    assert got["usage"]["input_tokens"] == len(outputs[0].prompt_token_ids)
    assert got["usage"]["output_tokens"] == len(outputs[0].outputs[0].token_ids)
    assert got["completion"] == llm.generate(PROMPT, GREEDY)[0].outputs[0].text
    assert {*got["coin"]} == {"name", "old"}
