"""Flags of ``farthing serve`` in several spellings, in one place or in several."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from farthing.cli.serve.flags import SPELLINGS
from support.command_line import CommandLine


def printed(farthing: CommandLine, *arguments: str, **environment: str) -> dict[str, Any]:
    result = farthing("serve", "--print-config", *arguments, **environment)
    assert result.returncode == 0, result.stderr
    return tomllib.loads(result.stdout)


def test_every_flag_of_the_help_is_in_the_table(farthing: CommandLine) -> None:
    """But for those that say where the others come from, and ``--no-``, which is ``= false``."""
    options = farthing("serve", "--help").stdout.split("Options:")[1]
    begins = "\n".join(line for line in options.splitlines() if line.startswith("  -"))
    told = {name.replace("-", "_") for name in re.findall(r"(?<![\w-])--?([a-z][a-z-]*)", begins)}
    negative = {f"no_{name}" for name in SPELLINGS.flags} & told
    assert negative == {"no_enable_prefix_caching", "no_fair_share"}
    others = {"model_option", "config", "print_config", "help", "h"}
    assert told - negative - others == set(SPELLINGS.flags) & told
    assert len(told) > 60


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-t", "2", "-tb", "3"], "-tb 3: -t 2"),
        (["-ctk", "f16", "-ctv", "q8_0"], "-ctv q8_0: -ctk f16"),
        (["-c", "5", "--ctx-size=6"], "--ctx-size 6: -c 5"),
        (["-c5", "--max-model-len", "6"], "--max-model-len 6: -c 5"),
        (["-m", "a", "-hf", "b"], "-hf b: -m a"),
    ],
)
def test_two_values_in_two_spellings_are_refused_on_the_line(
    arguments: list[str], problem: str, farthing: CommandLine
) -> None:
    result = farthing("serve", *arguments, "--print-config")
    assert result.returncode == 2
    assert result.stderr == (
        f"farthing: error: {problem} is the same flag here, with another value; give one of them\n"
    )


def test_one_value_in_two_spellings_is_one(farthing: CommandLine) -> None:
    line = ("-t", "2", "-tb", "2", "-ctk", "f16", "-ctv", "fp16", "-a", "x", "--alias", "y")
    values = printed(farthing, *line, "--port", "1", "--port", "2", "--", "m")
    assert (values["threads"], values["kv-cache-dtype"], values["port"]) == (2, "fp16", 2)
    assert (values["served-model-name"], values["model"]) == (["x", "y"], "m")
    values = printed(farthing, FARTHING_CTX_SIZE="7", FARTHING_C="7", FARTHING_MAX_MODEL_LEN="")
    assert values["max-model-len"] == 7


def test_two_values_in_two_variables_are_refused(farthing: CommandLine) -> None:
    given = {"FARTHING_CTX_SIZE": "7", "FARTHING_MAX_MODEL_LEN": "8"}
    result = farthing("serve", "--print-config", **given)
    assert result.returncode == 2
    assert result.stderr == (
        "farthing: error: FARTHING_CTX_SIZE='7': FARTHING_MAX_MODEL_LEN='8' is the same flag here, "
        "with another value; give one of them\n"
    )


def test_places_go_before_each_other_whatever_the_spelling(
    farthing: CommandLine, tmp_path: Path
) -> None:
    config = tmp_path / "farthing.toml"
    config.write_text('parallel = 1\nctx-size = 1\nthreads = 1\nmodel = "c"')
    values = printed(
        farthing,
        *("--config", str(config), "-np", "3", "--model", "a"),
        FARTHING_MAX_NUM_SEQS="2",
        FARTHING_C="2",
        FARTHING_MODEL="b",
    )
    assert (values["max-num-seqs"], values["max-model-len"], values["threads"]) == (3, 2, 1)
    assert values["model"] == "a"
    assert printed(farthing, "a", FARTHING_HF="b")["model"] == "a"


@pytest.mark.parametrize(
    ("arguments", "environment", "problem"),
    [
        (["--api-key", "--print-config"], {}, "--api-key: its value is missing before --print-con"),
        (["--host", "-np", "3"], {}, "--host: its value is missing before -np"),
        (["--api-key=--x", "--print-config"], {}, "--api-key: a key cannot begin with --"),
        (["--api-key", "a, --x", "--print-config"], {}, "--api-key: a key cannot begin with --"),
        (
            ["--print-config"],
            {"FARTHING_API_KEY": "--host"},
            "FARTHING_API_KEY: a key cannot begin with --",
        ),
    ],
)
def test_a_flag_is_no_value(
    arguments: list[str], environment: dict[str, str], problem: str, farthing: CommandLine
) -> None:
    result = farthing("serve", *arguments, **environment)
    assert result.returncode == 2
    assert result.stderr.startswith(f"farthing: error: {problem}")
    assert len(result.stderr.splitlines()) == 1


def test_a_line_that_is_not_whole_is_completed(farthing: CommandLine) -> None:
    for line in ("serve -t 2 -tb 3 --po", "serve --host --po"):
        words = line.split()
        result = farthing.process(
            _FARTHING_COMPLETE="complete_bash",
            COMP_WORDS=f"farthing {line}",
            COMP_CWORD=str(len(words)),
        )
        assert (result.returncode, result.stderr) == (0, "")
    assert "--port" in result.stdout


def test_keys_in_a_variable_may_have_spaces_between_them(farthing: CommandLine) -> None:
    assert "# api-key is set" in farthing("serve", "--print-config", FARTHING_API_KEY="a b").stdout
    result = farthing("serve", "no-such-model", FARTHING_API_KEY="a b,c a")
    assert "FARTHING_API_KEY: this key was given before" in result.stderr


def test_a_type_of_the_cache_that_is_not_served_is_refused_with_the_flags(
    farthing: CommandLine,
) -> None:
    result = farthing("serve", "--print-config", "--kv-cache-dtype", "q5_0")
    assert result.returncode == 2
    assert "'q5_0' is not one of 'fp32', 'fp16', 'int8', 'int4', 'k16v8', 'k16v4', 'k8v4'" in (
        result.stderr
    )
