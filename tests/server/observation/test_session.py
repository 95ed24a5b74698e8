"""All that a server says of a session: every request, and no prompt, answer or key."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from farthing.server.access.keys import ApiKeys
from farthing.server.access.rules import AccessRules
from farthing.server.observation.logs import LogSettings
from farthing.server.observation.tracing import Tracing
from support.log_files import log_file
from support.served import CHAT, COMPLETIONS, Served, serve

SECRET = "xyzzy-my-diary"
KEY, OTHER_KEY = "sk-plugh-alices-key", "sk-plugh-not-a-key"
KEYS = ApiKeys.from_sources(file=None, values=[KEY])


@dataclass
class Session:
    """What was said, by the time the server had ended."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""  # all of it: logs, spans, the metrics page
    answers: str = ""  # what clients got, and what they sent in headers
    statuses: list[int] = field(default_factory=list)


def requests(served: Served, session: Session) -> None:
    """A session of every kind of request that has a secret somewhere."""
    client = served.client
    messages = [{"role": "user", "content": SECRET}]
    chat = {"messages": messages, "max_tokens": 5, "temperature": 0}
    key = {"authorization": f"Bearer {KEY}"}
    for path, body, headers in (
        (CHAT, chat, key),
        (CHAT, {**chat, "stream": True}, key),
        (COMPLETIONS, {"prompt": [SECRET] * 2, "max_tokens": 3, "echo": True}, key),
        (CHAT, chat, {"authorization": f"Bearer {OTHER_KEY}"}),
        (CHAT, {**chat, "temperature": SECRET}, key),
        (CHAT, {**chat, "stop": [SECRET * 100]}, key),
        (CHAT, {**chat, "model": SECRET}, key),
        (CHAT, {**chat, "user": SECRET}, {**key, "cookie": SECRET, "x-other": SECRET}),
        (COMPLETIONS, {"prompt": SECRET * 1000}, key),  # too long
        ("/tokenize", {"prompt": SECRET}, key),
        (f"/v1/{SECRET}", {}, key),
        (f"{CHAT}?api_key={KEY}&q={SECRET}", chat, key),
    ):
        response = client.post(path, json=body, headers=headers)
        session.statuses.append(response.status_code)
        session.answers += response.text
    broken = json.dumps(chat)[:-9].encode()
    as_json = {**key, "content-type": "application/json"}
    session.statuses.append(client.post(CHAT, content=broken, headers=as_json).status_code)
    client.get("/v1/models", headers=key)
    endless = {**chat, "stream": True, "max_tokens": 200, "ignore_eos": True}
    with client.stream("POST", CHAT, json=endless, headers=key):
        pass  # left before its end
    served.wait_idle()
    served.wait(lambda: served.service.observation.load == 0)
    session.text += client.get("/metrics").text


@contextmanager
def session_of(model: Path, folder: Path, *, prompts: bool) -> Iterator[Session]:
    """A whole session, its log at the level that says most."""
    monkeypatch = pytest.MonkeyPatch()
    session = Session()
    spans = InMemorySpanExporter()
    tracing = Tracing(SimpleSpanProcessor(spans), "1")
    logs = LogSettings(format="json", level="debug", requests=True, prompts=prompts)
    for of_the_client in ("httpx2", "httpcore2"):  # which is in this process, too
        monkeypatch.setattr(logging.getLogger(of_the_client), "propagate", False)
    with log_file(folder / "log", **asdict(logs)) as file:
        rules = AccessRules(keys=KEYS)
        with serve(model, rules=rules, logs=logs, listeners=[tracing]) as served:
            requests(served, session)
        session.lines = file.entries()
        session.text += file.text()
    monkeypatch.undo()
    tracing.close()
    session.text += "".join(span.to_json() for span in spans.get_finished_spans())
    yield session


@pytest.fixture(scope="module")
def session(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with session_of(tiny_model, tmp_path_factory.mktemp("session"), prompts=False) as made:
        yield made


def test_the_session_had_every_kind_of_end(session: Session) -> None:
    assert set(session.statuses) >= {200, 400, 401, 404}
    assert session.statuses.count(200) >= 4
    assert SECRET in session.answers, "an echo: what clients get is theirs"


def test_no_prompt_and_no_key_is_anywhere(session: Session) -> None:
    assert len(session.text) > 10_000
    for secret in (SECRET, KEY, OTHER_KEY, "xyzzy", "plugh"):
        assert secret not in session.text, session.text.partition(secret)[0][-300:]


def test_every_request_has_a_line_of_each_log(session: Session) -> None:
    access = [line for line in session.lines if line["logger"] == "farthing.access"]
    assert [line["status"] for line in access][: len(session.statuses)] == session.statuses
    assert all(line["request_id"] for line in access)
    ends = [line for line in session.lines if line["message"] == "request"]
    outcomes = {line["outcome"] for line in ends}
    assert outcomes == {"ok", "refused", "left"}
    by_id = {line["request_id"]: line for line in ends}
    assert len(by_id) == len(ends)
    for line in access:
        if line["request_id"] in by_id:
            assert by_id[line["request_id"]]["status"] == line["status"]
            assert by_id[line["request_id"]]["key_name"] == line["key_name"]
    assert session.text.count('"name": "llm_request"') == len(ends)
    assert SECRET not in {line["path"] for line in access}


def test_prompts_are_there_when_asked_for_and_keys_are_not(
    tiny_model: Path, tmp_path: Path
) -> None:
    with session_of(tiny_model, tmp_path, prompts=True) as session:
        pass
    prompts = [line["prompt"] for line in session.lines if line["message"] == "prompt"]
    assert [{"role": "user", "content": SECRET}] in prompts
    assert [SECRET, SECRET] in prompts
    for key in (KEY, OTHER_KEY):
        assert key not in session.text
