"""Conversations of ``farthing chat`` on a terminal, as the tests hold them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from support.pty_process import PtyProcess

QUESTION = "What does a farthing buy?"
PROMPT = ">>>"
NUMBERS = r"\d+ prompt tokens( \([\d,]+ cached\))? · prefill [\d,]+ ms · \d+ tokens"
UP, CTRL_C, CTRL_D, ENTER, ALT_ENTER = "\x1b[A", "\x03", "\x04", "\r", "\x1b\r"

Talk = Callable[..., AbstractContextManager[PtyProcess]]


def messages(path: Path) -> list[tuple[str, str]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return [(message["role"], message["content"]) for message in content["messages"]]


def save(terminal: PtyProcess, path: Path) -> None:
    terminal.type(f"/save {path}{ENTER}")
    terminal.expect(r"messages are in")
    terminal.expect(PROMPT)
