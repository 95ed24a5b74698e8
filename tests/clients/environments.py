"""A virtual environment for each set of clients, made once from its pinned requirements."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECONDS = 600


def environment(name: str) -> Path:
    """The folder of the environment for ``requirements/NAME.txt``; made if it is not there.

    They lie in ``FARTHING_CLIENT_ENVIRONMENTS``, by default in the user's cache.
    """
    requirements = HERE / "requirements" / f"{name}.txt"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    key = hashlib.sha256(f"{version}\n{requirements.read_text()}".encode()).hexdigest()[:12]
    home = os.environ.get("FARTHING_CLIENT_ENVIRONMENTS", "~/.cache/farthing-client-environments")
    folder = Path(home).expanduser() / f"{name}-{key}"
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=SECONDS)
        install = [folder / "bin" / "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*install, "-r", requirements], check=True, timeout=3 * SECONDS)
        complete.touch()
    return folder


def run_client(name: str, program: str, url: str, model: str, **arguments: Any) -> Any:
    """What ``programs/PROGRAM.py`` of the environment ``name`` prints: one JSON value.

    It is given the server's ``url`` (without ``/v1``), the model's name and ``arguments``.
    """
    given = json.dumps({"url": url, "model": model, **arguments})
    result = subprocess.run(
        [environment(name) / "bin" / "python", HERE / "programs" / f"{program}.py", given],
        capture_output=True,
        text=True,
        env=client_variables(),
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout.splitlines()[-1])


def client_variables() -> dict[str, str]:
    """The environment variables of a client: no proxy, no key, nothing of ours, no way out."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    offline = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HF_DATASETS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
    }
    return {**kept, **offline, "NO_PROXY": "*", "OPENAI_API_KEY": "EMPTY"}
