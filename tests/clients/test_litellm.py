"""litellm against a served tiny model."""

from __future__ import annotations

import pytest

from clients.environments import run_client
from clients.server import NAME
from clients.test_openai import GREEDY, MESSAGES, PROMPT
from farthing import LLM

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]  # an environment may be made first


def test_what_it_gets_is_what_the_model_says(url: str, llm: LLM) -> None:
    got = run_client("litellm", "litellm_client", url, NAME, messages=MESSAGES, prompt=PROMPT)
    (output,) = llm.chat(MESSAGES, GREEDY)
    (answer,) = output.outputs
    assert got["text"] == got["later"] == "".join(got["pieces"]) == answer.text
    assert len(got["pieces"]) > 2
    assert got["reason"] == answer.finish_reason
    assert got["usage"] == [len(output.prompt_token_ids), len(answer.token_ids)]
    assert got["completion"] == llm.generate(PROMPT, GREEDY)[0].outputs[0].text
    # Its users catch this one to cut their conversation; it reads it out of the message.
    assert got["errors"] == {"long": "ContextWindowExceededError", "model": "NotFoundError"}
