"""``farthing bench serve`` as a user runs it: the block, the JSON, files, exit statuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing.bench.serving.result import DETAILS
from support.command_line import CommandLine
from support.scripted_api import ScriptedApi, plain
from support.scripted_server import Received, Step, response

# The contract: what scripts over vLLM's tool read.
KEYS = {
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed"),
    *("total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput"),
    *("output_throughput", "total_token_throughput", "input_lens", "output_lens", "ttfts", "itls"),
    *("latencies", "start_times", "queue_times", "generated_texts", "errors"),
    *("max_output_tokens_per_s", "max_concurrent_requests"),
    *(f"{s}_{m}_ms" for s in ("mean", "median", "std", "p99") for m in ("ttft", "tpot", "itl")),
    *(f"{s}_e2el_ms" for s in ("mean", "median", "std", "p99")),
}
LINES = [
    "============ Serving Benchmark Result ============",
    *("Successful requests:", "Failed requests:", "Benchmark duration (s):", "Total input tokens:"),
    *("Total generated tokens:", "Request throughput (req/s):", "Output token throughput (tok/s):"),
    *("Peak output token throughput (tok/s):", "Peak concurrent requests:"),
    "Total token throughput (tok/s):",
    "---------------Time to First Token----------------",
    *("Mean TTFT (ms):", "Median TTFT (ms):", "P99 TTFT (ms):"),
    "-----Time per Output Token (excl. 1st token)------",
    *("Mean TPOT (ms):", "Median TPOT (ms):", "P99 TPOT (ms):"),
    "---------------Inter-token Latency----------------",
    *("Mean ITL (ms):", "Median ITL (ms):", "P99 ITL (ms):"),
    "----------------End-to-end Latency----------------",
    *("Mean E2EL (ms):", "Median E2EL (ms):", "P99 E2EL (ms):"),
]


@pytest.fixture
def server() -> Iterator[ScriptedApi]:
    with ScriptedApi() as made:
        yield made


@pytest.fixture
def load(tmp_path: Path) -> tuple[str, ...]:
    """Options of six requests."""
    path = tmp_path / "load.jsonl"
    path.write_text("".join([json.dumps({"prompt": f"Ask {n}"}) + "\n" for n in range(6)]))
    return ("--dataset-name", "custom", "--dataset-path", str(path), "--custom-output-len", "4")


def address(server: ScriptedApi) -> tuple[str, ...]:
    return ("bench", "serve", "--port", str(server.port))


def test_the_block_is_that_of_vllms_tool(
    farthing: CommandLine, server: ScriptedApi, load: tuple[str, ...]
) -> None:
    outcome = farthing(*address(server), *load)
    assert outcome.returncode == 0, outcome.stderr
    shown = [
        line if line[0] in "=-" else line[:41].rstrip() for line in outcome.stdout.splitlines()
    ]
    assert shown[: len(LINES)] == LINES
    assert shown[-1] == "=" * 50
    assert "Successful requests:                     6         \n" in outcome.stdout


def test_json_has_the_keys_of_the_contract(
    farthing: CommandLine, server: ScriptedApi, load: tuple[str, ...]
) -> None:
    outcome = farthing(*address(server), *load, "--json", "--save-detailed")
    body = json.loads(outcome.stdout)
    assert {*body} == KEYS | {"farthing"}
    assert (body["completed"], body["total_output_tokens"], body["num_prompts"]) == (6, 24, 6)
    assert (body["model_id"], body["backend"], body["request_rate"]) == ("tiny", "openai", "inf")
    assert body["output_lens"] == [4] * 6
    assert [len(each) for each in body["itls"]] == [3] * 6
    assert body["errors"] == [""] * 6
    assert body["request_goodput"] is None
    brief = json.loads(farthing(*address(server), *load, "--json").stdout)
    assert {*brief} == {*body} - {*DETAILS}


def test_options_reach_the_requests(
    farthing: CommandLine, server: ScriptedApi, load: tuple[str, ...]
) -> None:
    outcome = farthing(
        *(*address(server), *load, "--backend", "openai-chat", "--model", "other"),
        *("--temperature", "0", "--top-k", "5", "--extra-body", '{"priority": 2}', "--ignore-eos"),
        *("--header", "X-A=1", "X-B=2", "--request-id-prefix", "mine-", "--num-prompts", "2"),
        OPENAI_API_KEY="secret",
    )
    assert outcome.returncode == 0, outcome.stderr
    first, second = server.generating
    assert first.path == "/v1/chat/completions"
    assert {"temperature": 0, "top_k": 5, "priority": 2, "ignore_eos": True}.items() <= (
        first.json.items()
    )
    assert first.json["model"] == "other"
    assert (first.headers["x-a"], first.headers["x-b"]) == ("1", "2")
    assert first.headers["authorization"] == "Bearer secret"
    assert {first.headers["x-request-id"], second.headers["x-request-id"]} == {"mine-0", "mine-1"}
    assert "secret" not in outcome.stdout + outcome.stderr


def test_results_are_saved(
    farthing: CommandLine, server: ScriptedApi, load: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "results" / "new"
    options = (*address(server), *load, "--result-dir", str(folder), "--save-result")
    arrivals = ("--request-rate", "200", "--max-concurrency", "3", "--label", "try")
    metadata = ("--metadata", "cpu=epyc", "run=1", "--goodput", "ttft:60000", "e2el:60000")
    outcome = farthing(*options, *arrivals, *metadata, "--metric-percentiles", "50,99.9")
    assert outcome.returncode == 0, outcome.stderr
    (file,) = folder.iterdir()
    body = json.loads(file.read_text())
    assert file.name == f"try-200qps-concurrency3-tiny-{body['date']}.json"
    assert (body["cpu"], body["run"], body["label"]) == ("epyc", "1", "try")
    assert (body["request_rate"], body["max_concurrency"]) == (200.0, 3)
    assert body["request_goodput"] == pytest.approx(6 / body["duration"])
    assert {"p50_ttft_ms", "p99.9_itl_ms"} <= {*body}
    assert "p99_ttft_ms" not in body
    farthing(*options, "--result-filename", "a.json")
    farthing(*options, "--result-filename", "a.json", "--append-result")
    lines = (folder / "a.json").read_text().splitlines()
    assert [json.loads(line)["completed"] for line in lines] == [6, 6]


def test_a_timeline_is_drawn(
    farthing: CommandLine, server: ScriptedApi, load: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    outcome = farthing(
        *(*address(server), *load, "--plot-timeline", "--result-dir", str(folder)),
        *("--result-filename", "run.json"),
    )
    assert outcome.returncode == 0, outcome.stderr
    (file,) = folder.iterdir()  # the result itself was not asked for
    assert file.name == "run.timeline.png"
    assert file.read_bytes().startswith(b"\x89PNG")


def test_all_failed_is_a_failure(farthing: CommandLine, load: tuple[str, ...]) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        return [response({"error": {"message": "no such model"}}, "404 Not Found")]

    with ScriptedApi(script) as server:
        outcome = farthing(*address(server), *load)
        assert outcome.returncode == 1
        assert "farthing: warning: 6 failed: HTTP 404: no such model\n" in outcome.stderr
        assert "Failed requests:                         6" in outcome.stdout


def test_a_text_that_differs_is_a_failure(farthing: CommandLine, load: tuple[str, ...]) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        if asked:
            body = json.dumps(request.json | {"max_tokens": 3}).encode()
            return plain(Received("POST", request.path, {}, body, 0, 0), asked)
        return plain(request, asked)

    with ScriptedApi(script) as server:
        assert farthing(*address(server), *load, "--check-text").returncode == 1
    with ScriptedApi() as server:
        assert farthing(*address(server), *load, "--check-text").returncode == 0


def test_refusals_are_retried(farthing: CommandLine, load: tuple[str, ...]) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        if not asked:
            return [response({}, "429 Too Many Requests", Retry_After="0.1")]
        return plain(request, asked)

    with ScriptedApi(script) as server:
        outcome = farthing(*address(server), *load, "--retries", "1", "--json")
    body: dict[str, Any] = json.loads(outcome.stdout)
    assert outcome.returncode == 0
    assert body["completed"] == 6
    assert body["farthing"]["refusals"]["taken_at_first_retry"] == 6


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--base-url", "localhost"), "--base-url"),
        (("--dataset-name", "trace"), "--dataset-path"),
        (("--dataset-path", "x"), "random reads no file"),
        (("--endpoint", "/v1/embeddings"), "--endpoint /v1/embeddings"),
        (("--request-rate", "0"), "--request-rate"),
        (("--percentile-metrics", "ttft,tbt"), "--percentile-metrics 'tbt'"),
        (("--metric-percentiles", "101"), "--metric-percentiles 101"),
        (("--metric-percentiles", "x"), "--metric-percentiles 'x'"),
        (("--goodput", "itl:3"), "--goodput 'itl'"),
        (("--goodput", "ttft=3"), "--goodput 'ttft=3'"),
        (("--goodput", "ttft:soon"), "--goodput ttft:soon"),
        (("--metadata", "failed=1"), "--metadata failed"),
        (("--metadata", "p99_itl_ms=1"), "--metadata p99_itl_ms"),
        (("--extra-body", "[1]"), "--extra-body"),
        (("--extra-body", '{"stream": false}'), "--extra-body"),
        (("--header", "A"), "--header 'A'"),
        (("--timeline-itl-thresholds", "50,25"), "--timeline-itl-thresholds"),
        (("--self-timed",), "--self-timed"),
        (("--tokenizer", "/nowhere"), "/nowhere"),
        (("--burst-size", "2"), "--burst-interval"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    farthing: CommandLine, options: tuple[str, ...], problem: str
) -> None:
    outcome = farthing("bench", "serve", *options)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("farthing: error: ")
    assert problem in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_server_that_is_not_there_is_a_line(farthing: CommandLine, load: tuple[str, ...]) -> None:
    with ScriptedApi() as server:
        gone = address(server)
    outcome = farthing(*gone, *load)
    assert outcome.returncode == 2
    assert f"http://127.0.0.1:{gone[-1]}" in outcome.stderr
