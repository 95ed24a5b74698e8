"""Schemathesis: requests made up from the description of the API, and answers held against it."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from clients.environments import SECONDS, client_variables, environment

pytestmark = pytest.mark.clients

# That a body has the right types does not make it one that can be answered: a prompt may be too
# long, two limits may contradict one another.
LEFT_OUT = "positive_data_acceptance"


def test_no_request_is_too_much(url: str, tmp_path: Path) -> None:
    command = [environment("schemathesis") / "bin" / "schemathesis", "run", f"{url}/openapi.json"]
    command += ["--max-examples", "60", "--seed", "1", "--exclude-checks", LEFT_OUT]
    command += ["--request-timeout", "60", "--no-color"]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=client_variables(),
        cwd=tmp_path,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    (counts,) = re.findall(r"([0-9]+) generated, ([0-9]+) passed", result.stdout)
    assert counts[0] == counts[1]
    assert int(counts[0]) > 500
    with urllib.request.urlopen(f"{url}/health", timeout=10) as response:
        assert response.status == 200
