"""Starting is quick: help loads nothing that it does not show."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from typer.main import get_command

from farthing.cli.main import app

VERBS = (
    "serve",
    *("run", "chat", "pull", "list", "show", "rm", "quantize", "batch", "evaluate", "inspect"),
    *("doctor", "bench"),
)
HEAVY = {
    "numpy",
    "rich",
    "tokenizers",
    "jinja2",
    "safetensors",
    "gguf",
    "huggingface_hub",
    "prompt_toolkit",
    "psutil",
    "fastapi",
    "pydantic",
    "torch",
    "transformers",
    "farthing._native",
    "farthing.llm",
    "farthing.catalog",
    "farthing.machine",
}
HELPS = [(), *((verb,) for verb in VERBS), ("bench", "decode"), ("bench", "serve")]


def test_every_verb_is_there() -> None:
    assert tuple(get_command(app).commands) == VERBS  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", HELPS, ids=lambda verb: " ".join(verb) or "farthing")
def test_help_imports_nothing_heavy(verb: tuple[str, ...]) -> None:
    program = (
        "import sys\n"
        "from farthing.cli.main import main\n"
        f"sys.argv = ['farthing', *{verb!r}, '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "print(*sys.modules, sep=chr(10), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "Usage: farthing" in result.stdout
    loaded = set(result.stderr.split())
    assert "farthing.cli.run" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.slow
@pytest.mark.parametrize("verb", HELPS, ids=lambda verb: " ".join(verb) or "farthing")
def test_help_takes_less_than_three_tenths_of_a_second(verb: tuple[str, ...]) -> None:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "farthing.cli", *verb, "--help"],
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=60,
        )
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.3  # the least: other work on the machine only adds


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_every_verb_is_explained(verb: str) -> None:
    command = get_command(app).commands[verb]  # type: ignore[attr-defined]
    assert command.help
    assert all(parameter.help for parameter in command.params)
