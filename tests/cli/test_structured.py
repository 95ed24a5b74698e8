"""``farthing run`` with a form for the answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.command_line import CommandLine

QUESTION = "What does a farthing buy?"
SCHEMA = {
    "type": "object",
    "properties": {"thing": {"type": "string", "maxLength": 9}, "pence": {"enum": [0.25, 1, 12]}},
    "required": ["thing", "pence"],
    "additionalProperties": False,
}


@pytest.fixture
def run(farthing: CommandLine, tiny_model: str):  # type: ignore[no-untyped-def]
    def answer(*options: str) -> str:
        result = farthing("run", tiny_model, QUESTION, "-t", "1", "--seed", "3", *options)
        assert result.returncode == 0, result.stderr
        return result.stdout.removesuffix("\n")

    return answer


def test_a_schema_may_be_text_or_a_file(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA, indent=4))
    said = run("--json-schema", json.dumps(SCHEMA))
    answer = json.loads(said)
    assert set(answer) == {"thing", "pence"}
    assert answer["pence"] in (0.25, 1, 12)
    assert run("--json-schema", str(file)) == said


def test_the_other_forms(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert re.fullmatch("[a-c]{3}-[0-9]", run("--regex", "[a-c]{3}-[0-9]"))
    assert run("--choice", "bread", "--choice", "a fourth of a penny") in (
        "bread",
        "a fourth of a penny",
    )
    file = tmp_path / "sum.lark"
    file.write_text('start: N "+" N\nN: /[0-9]{1,2}/\n')
    assert re.fullmatch(r"\d\d?\+\d\d?", run("--grammar", str(file)))
    file = tmp_path / "sum.gbnf"
    file.write_text('# a sum\nroot ::= number "+" number\nnumber ::= [0-9]{1,2}\n')
    assert re.fullmatch(r"\d\d?\+\d\d?", run("--grammar", str(file)))
    assert run("--json-object").startswith("{")


def test_the_form_stands_beside_the_json_of_the_command(run) -> None:  # type: ignore[no-untyped-def]
    answer = json.loads(run("--choice", "yes", "--json"))
    assert (answer["text"], answer["finish_reason"]) == ("yes", "stop")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--json-schema", '{"type": "strng"}'), "strng"),
        (("--json-schema", "{"), "not JSON"),
        (("--json-schema", '{"frobnicate": 1}'), '"frobnicate" is unknown'),
        (("--json-schema", "no/such/file.json"), "no/such/file.json"),
        (("--regex", "a(b"), "--regex: regular expression /a(b/ has an unclosed group"),
        (("--choice", ""), "none of them empty"),
        (("--grammar", "no/such/file.lark"), "no/such/file.lark"),
        (("--grammar", "."), "cannot be read"),
        (("--regex", "a", "--choice", "b"), "--regex and --choice"),
        (("--json-object", "--json-schema", "{}"), "--json-schema and --json-object"),
    ],
)
def test_a_bad_form_is_told_before_anything_is_loaded(
    farthing: CommandLine, options: tuple[str, ...], problem: str
) -> None:
    result = farthing("run", "no-such-model", QUESTION, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert problem in result.stderr
    assert "no-such-model" not in result.stderr
