"""``farthing chat``: one question, a pipe, and a conversation on a terminal."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from farthing import LLM, SamplingParams
from support.chat_terminal import (
    ALT_ENTER,
    CTRL_C,
    CTRL_D,
    ENTER,
    NUMBERS,
    PROMPT,
    QUESTION,
    UP,
    Talk,
    messages,
    save,
)
from support.command_line import COMMAND, CommandLine
from support.pty_process import PtyProcess


def test_one_question_is_answered(farthing: CommandLine, tiny_model: str, llm: LLM) -> None:
    result = farthing("chat", QUESTION, "-m", tiny_model, "-n", "12", "--system", "Be brief.")
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    params = SamplingParams(temperature=0, max_tokens=12)
    assert result.returncode == 0
    assert result.stdout.rstrip("\n") == llm.chat(asked, params)[0].outputs[0].text.rstrip("\n")
    assert re.search(NUMBERS, result.stderr)
    assert result.stderr.strip().endswith("stopped at 12 tokens (max_tokens)")


def test_a_pipe_is_one_question(farthing: CommandLine, tiny_model: str) -> None:
    said = farthing("chat", "one\ntwo", "-m", tiny_model, "-n", "12").stdout
    piped = farthing("chat", "-m", tiny_model, "-n", "12", stdin="one\ntwo\n")
    assert (piped.returncode, piped.stdout) == (0, said)


def test_a_question_never_waits_for_stdin(environment: dict[str, str], tiny_model: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "chat", QUESTION, "-m", tiny_model, "-n", "2"],
        stdin=subprocess.PIPE,  # and it stays open
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.wait(timeout=60) == 0
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_questions_are_answered_with_what_was_said_before(
    talk: Talk, tmp_path: Path, llm: LLM
) -> None:
    with talk() as terminal:
        for word in ("penny", "bread"):
            terminal.type(word + ENTER)
            terminal.expect(NUMBERS)
            terminal.expect(PROMPT)
        save(terminal, tmp_path / "talk.json")
        terminal.type(CTRL_D)
        assert terminal.wait() == 0
    said = messages(tmp_path / "talk.json")
    assert [role for role, _ in said] == ["user", "assistant", "user", "assistant"]
    asked = [{"role": role, "content": text} for role, text in said]
    params = SamplingParams(temperature=0, max_tokens=8)
    for turn in (1, 3):
        assert llm.chat(asked[:turn], params)[0].outputs[0].text == said[turn][1]


def test_leaving(talk: Talk) -> None:
    for keys in ("/bye" + ENTER, CTRL_D):
        with talk() as terminal:
            terminal.type(keys)
            assert terminal.wait() == 0


def test_messages_of_several_lines(talk: Talk, tmp_path: Path) -> None:
    with talk() as terminal:
        terminal.type('"""def f(x):' + ENTER)
        terminal.expect(r"\.\.\.")
        terminal.type("    return x" + ENTER)
        terminal.expect(r"\.\.\.")
        terminal.type('"""' + ENTER)
        terminal.expect(NUMBERS)
        terminal.expect(PROMPT)
        terminal.type("one" + ALT_ENTER + "two" + ENTER)
        terminal.expect(NUMBERS)
        terminal.expect(PROMPT)
        save(terminal, tmp_path / "talk.json")
    said = messages(tmp_path / "talk.json")
    assert said[0] == ("user", "def f(x):\n    return x")
    assert said[2] == ("user", "one\ntwo")


def long_answer(model: str, question: str) -> tuple[int, str]:
    """A seed whose answer at temperature 1 does not end soon, and a character of its beginning.

    The character is none of those that the prompt shows, which is drawn again and again.
    """
    params = [SamplingParams(temperature=1, seed=seed, max_tokens=1000) for seed in range(24)]
    asked = [[{"role": "user", "content": question}]] * len(params)
    answers = LLM(model, num_threads=1).chat(asked, params)
    lengths = [len(answer.outputs[0].token_ids) for answer in answers]
    assert max(lengths) > 500
    seed = lengths.index(max(lengths))
    text = answers[seed].outputs[0].text
    return seed, next(c for c in text if c.isprintable() and c not in f"> {question}")


def test_ctrl_c_ends_the_answer_and_keeps_the_chat(
    talk: Talk, tiny_model: str, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "long")  # nor may the context be full first
    config = json.loads((model / "config.json").read_text())
    config["max_position_embeddings"] = 8192
    (model / "config.json").write_text(json.dumps(config))
    number, begun = long_answer(str(model), "tell me everything")
    seed = str(number)
    options = ("-n", "100000", "--no-cache", "-t", "1", "--seed", seed, "--stop", "\n")
    with talk(*options, model=str(model)) as terminal:
        terminal.type("/set stop none" + ENTER)
        terminal.expect(rf"seed {seed}\s+stop none")
        terminal.expect(PROMPT)
        terminal.type("tell me everything" + ENTER)
        terminal.expect("everything")
        terminal.expect(re.escape(begun))
        terminal.type(CTRL_C)
        shown = terminal.expect(rf"(stopped|{NUMBERS}.*stopped)").group()
        terminal.expect(PROMPT)
        terminal.type("/stats" + ENTER)
        terminal.expect(
            r"answers: 1, [1-9]\d* prompt tokens \(0 cached\) in [\d.]+ s, [1-9][\d,]* tokens in"
        )
        terminal.expect(PROMPT)
        terminal.type("/set max_tokens 4" + ENTER)
        terminal.expect(r"max_tokens 4\s+seed")
        terminal.expect(PROMPT)
        terminal.type("and now?" + ENTER)
        terminal.expect(r"\d+ tokens")
        terminal.expect(PROMPT)
        save(terminal, tmp_path / "talk.json")
        terminal.type(CTRL_D)
        assert terminal.wait() == 0
    assert re.match(NUMBERS, shown)
    assert [role for role, _ in messages(tmp_path / "talk.json")][-4:-1] == [
        "user",
        "assistant",
        "user",
    ]


def test_ctrl_c_at_the_prompt_forgets_the_line(talk: Talk) -> None:
    with talk() as terminal:
        terminal.type("half a li" + CTRL_C)
        terminal.expect("Ctrl-D or /bye leaves")
        terminal.expect(PROMPT)
        terminal.type("/stats" + ENTER)
        terminal.expect("0 messages")


def test_every_command_is_in_the_help(talk: Talk) -> None:
    with talk() as terminal:
        terminal.type("/?" + ENTER)
        for name in ("/help", "/clear", "/system", "/save", "/load", "/set", "/stats", "/bye"):
            terminal.expect(name)
        terminal.expect(PROMPT)
        terminal.type("/st\t")
        terminal.expect("/stats")
        terminal.type(ENTER)
        terminal.expect("context: 0 of 256 tokens")


def test_commands_change_the_conversation(talk: Talk, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    with talk("--system", "Be brief.") as terminal:

        def command(text: str, shows: str) -> None:
            terminal.type(text + ENTER)
            terminal.expect(shows)
            terminal.expect(PROMPT)

        command("/system", "Be brief.")
        command("/system Be long.", "is set")
        command("penny", NUMBERS)
        command("/stats", r"3 messages\s+answers: 1")
        command(f"/save {path}", "2 messages are in")
        command("/clear", "is empty")
        command("/stats", r"1 messages\s+answers: 1")
        command(f"/load {path}", "2 messages are from")
        command("/system", "Be long.")
        command("/system none", "is removed")
        command("/system", "There is no system message")
        command("/set temperature 0.5", r"temperature 0\.5\s+max_tokens 8")
        command("/set temperature hot", "farthing: error: temperature is a number, not 'hot'")
        command("/fly", "farthing: error: no command /fly")
        command("/load /no/such/file", "farthing: error: /no/such/file: No such file")
        command("/model", "qwen2 · 3 layers · context of 256 tokens")
        terminal.type(f"/save {path}{ENTER}")
        terminal.expect(r"Replace it\? \[Y/n\]")
        terminal.type("n" + ENTER)
        terminal.expect("Nothing is saved")
    assert len(messages(path)) == 2


def test_no_error_ends_the_conversation(talk: Talk, tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    with talk() as terminal:
        for text, shows in (
            ("/load ~nouser/x", "no home folder for '~nouser/x'"),
            ("/save " + "n" * 300, "File name too long"),
            (f"/load {deep}", "not JSON"),
            ("/model ~nouser/x", "no file or folder"),
        ):
            terminal.type(text + ENTER)
            terminal.expect(f"farthing: error: .*{shows}")
            terminal.expect(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.wait() == 0


def test_another_model_takes_over_and_a_wrong_one_does_not(talk: Talk, tiny_model: str) -> None:
    with talk("--max-model-len", "128") as terminal:
        terminal.type("/model /no/such/model" + ENTER)
        terminal.expect("farthing: error: ")
        terminal.expect(PROMPT)
        terminal.type("penny" + ENTER)
        terminal.expect(NUMBERS)
        terminal.expect(PROMPT)
        terminal.type(f"/model {tiny_model}/" + ENTER)
        terminal.expect("context of 128 tokens")
        terminal.expect(PROMPT)
        terminal.type("/stats" + ENTER)
        terminal.expect("2 messages")


def test_the_history_is_kept_for_the_next_chat(talk: Talk, home: Path) -> None:
    with talk() as terminal:
        terminal.type("/system Remember me." + ENTER)
        terminal.expect("is set")
        terminal.expect(PROMPT)
    assert (home / "chat_history").read_text().count("Remember me.") == 1
    with talk() as terminal:
        terminal.type(UP)
        terminal.expect("/system Remember me")
        terminal.type(ENTER)
        terminal.expect("is set")


def test_no_color_means_none(environment: dict[str, str], tiny_model: str) -> None:
    with PtyProcess(
        [*COMMAND, "chat", "hi", "-m", tiny_model, "-n", "2"], {**environment, "NO_COLOR": "1"}
    ) as terminal:
        terminal.expect(NUMBERS)
        assert terminal.wait() == 0
    assert not re.search(r"\x1b\[[\d;]*3\dm", terminal.raw)


def test_a_plain_terminal_will_do(environment: dict[str, str], tiny_model: str) -> None:
    with PtyProcess(
        [*COMMAND, "chat", "-m", tiny_model, "-n", "2"], {**environment, "TERM": "dumb"}
    ) as terminal:
        terminal.expect(PROMPT)
        terminal.type("hi\n")
        terminal.expect(NUMBERS)
        terminal.expect(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.wait() == 0


@pytest.mark.slow
def test_the_default_model_answers_the_first_question_of_the_readme(
    farthing: CommandLine, qwen_gguf: Path
) -> None:
    result = farthing(
        "chat",
        "Write a Python function that reverses a linked list.",
        FARTHING_MODEL_PATH=str(qwen_gguf.parent),
    )
    assert result.returncode == 0
    assert "def " in result.stdout
    assert "```" in result.stdout
    assert re.search(NUMBERS, result.stderr)


def test_a_model_without_a_template_says_that_it_cannot_chat(
    farthing: CommandLine, base_model: str
) -> None:
    result = farthing("chat", "hi", "-m", base_model)
    assert (result.returncode, result.stdout) == (2, "")
    assert "chat template" in result.stderr
    answered = farthing("run", base_model, "hi", "-n", "2", "--json")
    assert answered.returncode == 0
    assert json.loads(answered.stdout)["chat_template"] is False


def test_a_chat_does_not_go_on_with_a_model_that_cannot_chat(talk: Talk, base_model: str) -> None:
    with talk() as terminal:
        terminal.type(f"/model {base_model}" + ENTER)
        terminal.expect("farthing: error: the model has no chat template")
        terminal.expect(PROMPT)
        terminal.type("penny" + ENTER)
        terminal.expect(NUMBERS)
