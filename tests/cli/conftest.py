"""A cache folder of its own for every test of the command line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from farthing import LLM, catalog
from support.chat_terminal import PROMPT, Talk
from support.command_line import COMMAND, CommandLine
from support.pty_process import PtyProcess
from support.tiny_models import make_tiny_model


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The cache folder of the test's commands; not there before something is written."""
    return tmp_path / "home"


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """Environment of the test's commands: nothing may be fetched."""
    return {
        **os.environ,
        "FARTHING_HOME": str(home),
        "FARTHING_MODEL_PATH": "",
        "HF_HUB_OFFLINE": "1",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm",
    }


@pytest.fixture
def farthing(environment: dict[str, str]) -> CommandLine:
    """The command, with this test's cache folder."""
    return CommandLine(environment)


@pytest.fixture
def foreign_model(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name of the catalog whose architecture has no program here, in this process."""
    name = "gemma-3-270m"
    entries = [
        replace(entry, architecture="mamba") if entry.name == name else entry
        for entry in catalog.CATALOG
    ]
    monkeypatch.setattr(catalog, "CATALOG", tuple(entries))
    return name


@pytest.fixture(scope="session")
def thinking_model(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model with a switch for thinking and a word in its template."""
    path = tmp_path_factory.mktemp("tiny") / "thinking"
    shutil.copytree(tiny_model, path)
    (path / "chat_template.jinja").write_text(
        "{{ word }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% if enable_thinking is defined %}think={{ enable_thinking }}{% endif %}{% endif %}"
    )
    return str(path)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a random model with a chat template and a context of 256 tokens."""
    return str(make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture(scope="session")
def llm(tiny_model: str) -> LLM:
    return LLM(tiny_model, num_threads=1)


@pytest.fixture
def base_model(tiny_model: str, tmp_path: Path) -> str:
    """The tiny model without a chat template."""
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    for name in ("chat_template.jinja", "chat_template.json"):
        (base / name).unlink(missing_ok=True)
    for path in base.glob("*.json"):  # nor may its tokens suggest a template
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("<|im_start|>", "<|other|>"), encoding="utf-8")
    config = base / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    settings.pop("chat_template", None)
    config.write_text(json.dumps(settings))
    return str(base)


@pytest.fixture
def talk(environment: dict[str, str], tiny_model: str) -> Talk:
    """A conversation with the tiny model; answers of at most 8 tokens if not said otherwise."""

    @contextmanager
    def open_chat(*options: str, model: str = tiny_model) -> Iterator[PtyProcess]:
        command = [*COMMAND, "chat", "-m", model, "-n", "8", *options]
        with PtyProcess(command, environment) as terminal:
            terminal.expect("Ctrl-D leaves.")
            terminal.expect(PROMPT)
            yield terminal

    return open_chat
