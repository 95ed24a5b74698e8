"""``farthing chat`` with models whose template has a switch for thinking."""

from __future__ import annotations

from farthing import LLM
from support.chat_terminal import (
    ENTER,
    PROMPT,
    QUESTION,
    Talk,
)
from support.command_line import CommandLine


def test_thinking_is_turned_on_and_off(talk: Talk, thinking_model: str) -> None:
    llm = LLM(thinking_model, num_threads=1)
    question = [{"role": "user", "content": "penny"}]
    lengths = {
        state: llm.count_chat_tokens(question, chat_template_kwargs=variables)
        for state, variables in (
            ("on", {"enable_thinking": True}),
            ("off", {"enable_thinking": False}),
            ("auto", {}),
        )
    }
    assert len(set(lengths.values())) > 1
    with talk("--no-think", model=thinking_model) as terminal:
        for state in ("off", "on", "auto"):
            if state != "off":  # as the option has it
                terminal.type(f"/think {state}{ENTER}")
            else:
                terminal.type("/think" + ENTER)
            terminal.expect(f"think {state}")
            terminal.expect(PROMPT)
            terminal.type("/clear" + ENTER)
            terminal.expect(PROMPT)
            terminal.type("penny" + ENTER)
            terminal.expect(f"{lengths[state]} prompt tokens")
            terminal.expect(PROMPT)
        terminal.type("/think maybe" + ENTER)
        terminal.expect("farthing: error: thinking is on, off or auto, not 'maybe'")
        terminal.expect(PROMPT)


def test_a_model_without_a_switch_cannot_be_told_to_think(
    farthing: CommandLine, talk: Talk, tiny_model: str
) -> None:
    result = farthing("chat", QUESTION, "-m", tiny_model, "--think")
    assert (result.returncode, result.stdout) == (2, "")
    assert "has no switch for thinking" in result.stderr
    with talk() as terminal:
        terminal.type("/think on" + ENTER)
        terminal.expect("farthing: error: .*has no switch for thinking")
        terminal.expect(PROMPT)
        terminal.type("/think auto" + ENTER)
        terminal.expect(r"\nthink auto")
        terminal.expect(PROMPT)


def test_thinking_is_forgotten_with_the_model_that_had_a_switch_for_it(
    talk: Talk, thinking_model: str, tiny_model: str
) -> None:
    with talk("--no-think", model=thinking_model) as terminal:
        terminal.type(f"/model {tiny_model}" + ENTER)
        terminal.expect("context of 256 tokens")
        terminal.expect(PROMPT)
        terminal.type("/think" + ENTER)
        terminal.expect("think auto")
