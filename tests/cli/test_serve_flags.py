"""Flags of ``farthing serve``: command line, environment, config file, in this order."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest

from farthing.cli.serve.config_file import kinds_of
from farthing.cli.serve.flags import FLAGS, SECRET, SPELLINGS
from support.command_line import CommandLine


def another_value(name: str, flag: inspect.Parameter) -> tuple[str, Any]:
    """A value that is not the default, as text and as it is printed."""
    kinds = kinds_of(flag)
    if bool in kinds:
        return str(not flag.default).lower(), not flag.default
    if int in kinds:
        return (
            "4097" if name == "max_body_bytes" else "77",
            4097 if name == "max_body_bytes" else 77,
        )
    if float in kinds:
        return "7.5", 7.5
    if list[str] in kinds:
        return "text", ["text"]
    choice = next((kind for kind in kinds if isinstance(kind, str) and kind != flag.default), None)
    return (choice, choice) if choice is not None else ("text", "text")


def printed(farthing: CommandLine, *arguments: str, **environment: str) -> dict[str, Any]:
    result = farthing("serve", "--print-config", *arguments, **environment)
    assert result.returncode == 0, result.stderr
    return tomllib.loads(result.stdout)


@pytest.mark.parametrize("spelling", sorted(set(SPELLINGS.flags) - SECRET))
def test_every_spelling_of_a_flag_is_an_environment_variable_and_a_key_of_the_file(
    spelling: str, farthing: CommandLine, tmp_path: Path
) -> None:
    name = SPELLINGS.flags[spelling]
    text, value = another_value(name, FLAGS[name])
    key = name.replace("_", "-")
    assert FLAGS[name].default != value
    assert printed(farthing, **{f"FARTHING_{spelling.upper()}": text})[key] == value
    config = tmp_path / "farthing.toml"
    written = str(value).lower() if isinstance(value, bool | int | float) else f'"{text}"'
    config.write_text(f"{spelling.replace('_', '-')} = {written}\n")
    assert printed(farthing, "--config", str(config))[key] == value


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(
    farthing: CommandLine, tmp_path: Path
) -> None:
    config = tmp_path / "farthing.toml"
    config.write_text('port = 8001\nhost = "::1"\nlog_level = "debug"\n')
    values = printed(
        farthing,
        *("--config", str(config), "--port", "8003"),
        FARTHING_PORT="8002",
        FARTHING_HOST="0.0.0.0",
    )
    assert (values["port"], values["host"], values["log-level"]) == (8003, "0.0.0.0", "debug")


def test_what_is_printed_is_a_config_file_with_the_same_meaning(
    farthing: CommandLine, tmp_path: Path
) -> None:
    result = farthing(
        *("serve", "m", "--print-config", "-np", "4", "--allowed-origins", 'http://a"b'),
        *("--allowed-origins", "http://ü", "--no-fair-share", "--request-timeout", "inf"),
        *("--uds", "a\x7f\t\\\U0001f600", "--header-timeout", "1e22"),
    )
    assert "request-timeout = inf\n" in result.stdout
    config = tmp_path / "farthing.toml"
    config.write_text(result.stdout, encoding="utf-8")
    assert printed(farthing, "--config", str(config)) == tomllib.loads(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (["-c", "2048"], "max-model-len", 2048),
        (["--ctx-size", "2048"], "max-model-len", 2048),
        (["-np", "3"], "max-num-seqs", 3),
        (["--parallel", "3"], "max-num-seqs", 3),
        (["-t", "1"], "threads", 1),
        (["-tb", "1"], "threads", 1),
        (["-ctk", "q8_0"], "kv-cache-dtype", "q8_0"),
        (["-ctv", "f16"], "kv-cache-dtype", "f16"),
        (["-ctk", "q4_0"], "kv-cache-dtype", "q4_0"),
        (["-a", "name"], "served-model-name", ["name"]),
        (["-b", "256"], "max-num-batched-tokens", 256),
        (["-m", "model"], "model", "model"),
        (["-hf", "owner/repo"], "model", "owner/repo"),
        (["--sse-ping-interval", "3"], "sse-keep-alive-interval", 3.0),
        (["--cors-origins", "http://a"], "allowed-origins", ["http://a"]),
    ],
)
def test_other_servers_spellings(
    arguments: list[str], key: str, value: Any, farthing: CommandLine
) -> None:
    assert printed(farthing, *arguments)[key] == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prot = 1", "there is no flag 'prot'; did you mean port?"),
        ("port = 'x'", 'farthing.toml: port = "x": should be a valid integer'),
        ("port = 1.5", "farthing.toml: port = 1.5: should be a valid integer"),
        ("port = 70000", "farthing.toml: port = 70000: should be less than or equal to 65535"),
        ("port = true", "farthing.toml: port = true: should be a valid integer"),
        ("port = 8000.0", "farthing.toml: port = 8000.0: should be a valid integer"),
        ("model = 5", "farthing.toml: model = 5: should be a valid string"),
        ("host = 2026-01-01", "farthing.toml: host = 2026-01-01: should be a valid string"),
        ("fair-share = 1", "farthing.toml: fair-share = 1: should be true or false"),
        ("fair-share = 'no'", 'farthing.toml: fair-share = "no": should be true or false'),
        ("request-timeout = true", "farthing.toml: request-timeout = true: should be a valid num"),
        ("alias = ['a', 1]", "farthing.toml: alias = 1: should be a valid string"),
        ("api-key = 12345", "farthing.toml: api-key: should be a valid string"),
        ("ctx_sise = 1", "there is no flag 'ctx_sise'; did you mean ctx-size?"),
        ("ctx-size = 1\nmax-model-len = 1", "'max-model-len' is there twice, as 'ctx-size'"),
        ("no-fair-share = true", "there is no flag 'no-fair-share'; did you mean fair-share?"),
        ("c = 0", "farthing.toml: max-model-len = 0: should be greater than or equal to 1"),
        ("log_level = 'x'", "farthing.toml: log-level = 'x': 'x' is not one of 'debug', 'info'"),
        ("port = [1]", "'port' must be one value, not a list"),
        ("[port]\nx = 1", "'port' must be a value, not a table"),
        ("port =", "not TOML"),
        ("max-num-seqs = 1\nmax_num_seqs = 2", "'max_num_seqs' is there twice"),
        ("config = 'x'", "there is no flag 'config'"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(
    text: str, expected: str, farthing: CommandLine, tmp_path: Path
) -> None:
    config = tmp_path / "farthing.toml"
    config.write_text(text)
    result = farthing("serve", "--print-config", "--config", str(config))
    assert result.returncode == 2
    assert expected in result.stderr
    assert result.stderr.startswith("farthing: error: --config ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("PORT", "x", "FARTHING_PORT='x': should be a valid integer"),
        ("PORT", "70000", "FARTHING_PORT='70000': should be less than or equal to 65535"),
        ("FAIR_SHARE", "perhaps", "FARTHING_FAIR_SHARE='perhaps': should be a valid boolean"),
        ("LOG_LEVEL", "loud", "FARTHING_LOG_LEVEL='loud': 'loud' is not one of 'debug'"),
        ("KV_CACHE_DTYPE", "fp8", "FARTHING_KV_CACHE_DTYPE='fp8': 'fp8' is not one of 'fp32'"),
        ("CTX_SIZE", "x", "FARTHING_CTX_SIZE='x': should be a valid integer"),
        ("CORS_ORIGINS", "a.b", "FARTHING_CORS_ORIGINS: allowed_origins='a.b': write it"),
        ("PREFIX_CACHE", "/proc/kept", "FARTHING_PREFIX_CACHE: prefix_cache='/proc/kept' cannot"),
        ("ALLOWED_ORIGINS", "a.b", "FARTHING_ALLOWED_ORIGINS: allowed_origins='a.b': write it"),
        ("MAX_NUM_QUEUED_REQS", "0", "FARTHING_MAX_NUM_QUEUED_REQS: max_num_queued_reqs must"),
        ("MAX_NUM_QUEUED_TOKENS", "-1", "FARTHING_MAX_NUM_QUEUED_TOKENS: max_num_queued_tok"),
        ("API_KEY", "schlüssel", "FARTHING_API_KEY: a key is 1 to 1024 printable ASCII"),
    ],
)
def test_a_wrong_variable_is_named(
    variable: str, value: str, problem: str, farthing: CommandLine
) -> None:
    result = farthing("serve", "no-such-model", **{f"FARTHING_{variable}": value})
    assert result.returncode == 2
    assert result.stderr.startswith(f"farthing: error: {problem}")
    assert len(result.stderr.splitlines()) == 1
    assert ("schlüssel" in result.stderr) is False


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_variable_does_not_open_the_server(key: str, farthing: CommandLine) -> None:
    result = farthing("serve", "no-such-model", FARTHING_API_KEY=key)
    assert result.returncode == 2
    assert result.stderr == (
        "farthing: error: FARTHING_API_KEY: the key is empty; unset it to ask for none\n"
    )


def test_unknown_variables_are_told_of_in_a_line(farthing: CommandLine) -> None:
    assert farthing("serve", "--print-config", FARTHING_ISA="avx2", FARTHING_PORT="1").stderr == ""
    given = {"FARTHING_PROT": "1", "FARTHING_XYZZY": "2", "FARTHINGS": "3"}
    given["FARTHING_CTX_SIZ"] = "4"
    result = farthing("serve", "--print-config", **given)
    assert result.returncode == 0
    assert result.stderr == (
        "farthing: warning: no flag and nothing else here reads FARTHING_CTX_SIZ (did you mean "
        "FARTHING_CTX_SIZE?), FARTHING_PROT (did you mean FARTHING_PORT?), FARTHING_XYZZY\n"
    )


def test_computed_defaults_are_explained(farthing: CommandLine) -> None:
    told = " ".join(farthing("serve", "--help").stdout.split()).replace("- ", "-")
    assert "By default twice --max-num-seqs, 64 at least." in told
    assert "By default 4,096 for each request that may wait" in told


def test_a_file_that_is_not_there(farthing: CommandLine, tmp_path: Path) -> None:
    result = farthing("serve", "--config", str(tmp_path / "none.toml"))
    assert result.returncode == 2
    assert "none.toml: No such file or directory" in result.stderr


def test_two_models_are_one_too_many(farthing: CommandLine) -> None:
    result = farthing("serve", "a", "--model", "b", "--print-config")
    assert result.returncode == 2
    assert "--model b: MODEL is a already; give one of them" in result.stderr


def test_a_key_is_never_printed(farthing: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "farthing.toml"
    config.write_text('api-key = "from-the-file"\n')
    for arguments, environment in (
        (("--api-key", "from-the-line"), {}),
        ((), {"FARTHING_API_KEY": "from-outside"}),
        (("--config", str(config)), {}),
    ):
        result = farthing("serve", "--print-config", *arguments, **environment)
        assert result.returncode == 0
        assert "# api-key is set" in result.stdout
        assert "from-" not in result.stdout
