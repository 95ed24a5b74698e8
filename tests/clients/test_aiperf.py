"""aiperf: a short load of streamed conversations, counted by it and by the server alike."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from clients.environments import SECONDS, client_variables, environment
from clients.server import NAME

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]  # an environment may be made first

REQUESTS, TOKENS = 12, 16


def generated(url: str) -> float:
    """Tokens that the server has generated so far."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    values = [line for line in lines if line.startswith("vllm:generation_tokens_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in values)


def test_a_load(url: str, model: Path, tmp_path: Path) -> None:
    before = generated(url)
    command = [environment("aiperf") / "bin" / "aiperf", "profile", "--model", NAME, "--url", url]
    command += ["--endpoint-type", "chat", "--streaming", "--tokenizer", model, "--ui", "none"]
    command += ["--concurrency", "3", "--request-count", str(REQUESTS)]
    command += ["--synthetic-input-tokens-mean", "24", "--output-tokens-mean", str(TOKENS)]
    command += ["--extra-inputs", "ignore_eos:true", "--output-artifact-dir", tmp_path / "out"]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=client_variables() | {"HF_HOME": str(tmp_path / "cache")},
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    (file,) = (tmp_path / "out").rglob("profile_export_aiperf.json")
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["request_count"]["avg"] == REQUESTS
    assert not report.get("error_request_count") or report["error_request_count"]["avg"] == 0
    assert report["time_to_first_token"]["avg"] > 0
    assert report["inter_token_latency"]["avg"] > 0
    assert generated(url) - before == REQUESTS * TOKENS
