"""What probes, collectors and the curious are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from farthing import LLM
from farthing.server.life_cycle import Phase
from farthing.version import installed_version
from support.served import CHAT, COMPLETIONS, Served, serve

PROBES = ("/health", "/v1/health", "/ping", "/readyz", "/livez")
USER = [{"role": "user", "content": "What?"}]


def test_a_server_that_answers_is_healthy(served: Served) -> None:
    for path in PROBES:
        response = served.client.get(path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_version_and_load(served: Served) -> None:
    assert served.client.get("/version").json() == {"version": installed_version() or "unknown"}
    assert served.client.get("/load").json() == {"server_load": 0}


def test_the_server_says_what_it_is(served: Served, llm: LLM) -> None:
    info = served.client.get("/server_info").json()
    assert info["numerics"]["fingerprint"] == llm.fingerprint
    assert info["numerics"]["kv_cache_dtype"] == "fp16"
    assert info["model"] == {"names": ["tiny", "small/model"], "max_model_len": 256}
    assert info["engine"]["num_threads"] == 1
    assert info["settings"]["model"] == llm.path.name
    assert info["settings"]["max_num_seqs"] == 8
    assert info["settings"]["shutdown_timeout"] == 60


def test_metrics_are_prometheus_text(served: Served) -> None:
    served.answer(COMPLETIONS, {"prompt": "a", "max_tokens": 3, "ignore_eos": True})
    response = served.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    assert "vllm:generation_tokens_total" in response.text


@pytest.fixture(scope="module")
def loading(served_model: Path) -> Iterator[Served]:
    with serve(served_model, load=False) as server:
        yield server


@pytest.mark.parametrize("phase", [Phase.LOADING, Phase.DRAINING, Phase.FAILED])
def test_nothing_is_taken_at_the_wrong_time(loading: Served, phase: Phase) -> None:
    loading.service.life.enter(phase)
    gets = ("/health", "/v1/health", "/ping", "/readyz", "/v1/models", "/v1/models/tiny")
    responses = [loading.client.get(path) for path in (*gets, "/tokenizer_info", "/server_info")]
    responses += [
        loading.post(path, body)
        for path, body in (
            (CHAT, {"messages": USER}),
            (CHAT, {"messages": USER, "stream": True}),
            (COMPLETIONS, {"prompt": "a"}),
            ("/tokenize", {"prompt": "a"}),
            ("/detokenize", {"tokens": [5]}),
        )
    ]
    for response in responses:
        assert response.status_code == 503, response.url
        assert int(response.headers["retry-after"]) >= 1
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("service_unavailable", phase.value)
    for path in ("/livez", "/version", "/load", "/metrics", "/openapi.json"):
        assert loading.client.get(path).status_code == 200


def test_an_engine_that_does_not_turn_is_not_healthy(served: Served) -> None:
    service = served.service
    service.stall_seconds = -1.0  # so that any wait is too long
    try:
        for path in PROBES[:-1]:
            response = served.client.get(path)
            assert response.status_code == 503
            assert "does not answer" in response.json()["error"]["message"]
        assert served.client.get("/livez").status_code == 200
    finally:
        service.stall_seconds = 30.0
