"""The questions that ship with the package: answerable, of different kinds, each asked once."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from farthing.evaluation.battery import (
    BUILT_IN,
    MAX_ANSWER_TOKENS,
    STOP,
    Battery,
    Item,
    is_right,
    load_battery,
    prompt,
)

DATA = files("farthing.evaluation.battery").joinpath("data")


@pytest.fixture(scope="module", params=sorted(BUILT_IN))
def battery(request: pytest.FixtureRequest) -> Battery:
    return load_battery(request.param)


def test_the_short_one_has_16_questions_and_the_long_one_several_hundred() -> None:
    assert len(load_battery("short").items) == 16
    assert 400 <= len(load_battery("long").items) <= 600


def test_every_accepted_answer_is_right_and_the_question_is_none(battery: Battery) -> None:
    for item in battery.items:
        for answer in item.answers:
            assert is_right(item, f" {answer}"), item
            assert is_right(item, f" {answer}.\n\nQuestion: and?"), item
        assert not is_right(item, ""), item
        assert not is_right(item, item.question), item
        assert not is_right(item, "not " + item.answers[0]), item


def test_a_fixed_answer_gets_few_of_them_right(battery: Battery) -> None:
    commonest = Counter(item.answers[0] for item in battery.items).most_common(1)[0][0]
    share = sum(is_right(item, commonest) for item in battery.items) / len(battery.items)
    assert share <= 1 / 16


def test_the_examples_of_the_prompt_give_nothing_away(battery: Battery) -> None:
    examples = prompt(Item("X?", ("x",))).removesuffix("Question: X?\nAnswer:")
    assert examples.count("Question:") == 4
    for item in battery.items:
        assert item.question not in examples
        assert prompt(item) == f"{examples}Question: {item.question}\nAnswer:"
    given = [line.removeprefix("Answer: ") for line in examples.splitlines() if "Answer" in line]
    answers = {answer for item in battery.items for answer in item.answers}
    assert not answers & set(given)


def test_sources_and_licences_lie_beside_the_questions() -> None:
    sources = Counter(item.source.split()[0] for item in load_battery("long").items)
    readme = DATA.joinpath("README.md").read_text()
    assert set(sources) == {"bsdgames", "chatterbot-corpus"}
    for name, count in sources.items():
        row = next(line for line in readme.splitlines() if f"`{name} " in line)
        assert f"| {count} |" in row
        assert "Redistribution" in DATA.joinpath(f"LICENSE-{name}").read_text()
    assert all(load_battery(name).licence in readme for name in BUILT_IN)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least", "most"), [("short", 8, 15), ("long", 174, 465)])
def test_a_small_model_knows_some_and_not_all(
    qwen_gguf: Path, name: str, least: int, most: int
) -> None:
    """Of the long one 30 to 80 %: a battery where nothing or all is right shows no difference."""
    from farthing import LLM, SamplingParams

    items = load_battery(name).items
    asked = SamplingParams(temperature=0, max_tokens=MAX_ANSWER_TOKENS, stop=[STOP])
    llm = LLM(model=str(qwen_gguf))
    answers = llm.generate([prompt(item) for item in items], asked)
    texts = [answer.outputs[0].text for answer in answers]
    right = sum(is_right(item, text) for item, text in zip(items, texts, strict=True))
    assert least <= right <= most
