"""Options of ``farthing bench serve``, in the spellings of vLLM's tool, and how they are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from farthing.errors import InvalidParameterError

SEVERAL = ("--goodput", "--metadata", "--header")
"""Options that vLLM's tool gives several values at once: ``--goodput ttft:200 tpot:50``."""


class SeveralValuesCommand(TyperCommand):
    """Reads ``--goodput a b`` as ``--goodput a --goodput b``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeats the option before each of its values."""
        spread: list[str] = []
        option = None
        for argument in args:
            if argument.startswith("-"):
                option = argument if argument in SEVERAL else None
            elif option is not None and spread[-1] != option:
                spread.append(option)
            spread.append(argument)
        return list(super().parse_args(ctx, spread))


Backend = Annotated[
    Literal["openai", "vllm", "openai-chat"],
    typer.Option("--backend", help="openai and vllm: completions; openai-chat: conversations."),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="The server, such as https://host/prefix; --host and --port if not given.",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option("--host", help="Host of the server.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the server.")]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="PATH",
        help="/v1/completions, or /v1/chat/completions with --backend openai-chat, if not given.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", help="Name in the API; the server's first if not given.", show_default=False
    ),
]
ServedModelName = Annotated[
    str | None,
    typer.Option("--served-model-name", help="Instead of --model, in requests.", hidden=True),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="MODEL",
        help="A model on this machine, whose tokens prompts are counted in; the server's own "
        "/tokenize and /detokenize if not given.",
        show_default=False,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key", envvar="OPENAI_API_KEY", help="Sent as a bearer token.", show_default=False
    ),
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="KEY=VALUE", help="Further headers.", show_default=False),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Take any certificate of an https server.")
]
DatasetNameOption = Annotated[
    Literal["random", "sharegpt", "custom", "prefix_repetition", "trace"],
    typer.Option("--dataset-name", help="What is asked."),
]
DatasetPath = Annotated[
    Path | None,
    typer.Option(
        "--dataset-path",
        metavar="FILE",
        help="sharegpt: its JSON. custom: JSON lines with prompt. trace: prompt, max_tokens and, "
        "for --self-timed, arrival.",
        show_default=False,
    ),
]
NumPrompts = Annotated[
    int | None,
    typer.Option(
        "--num-prompts",
        min=1,
        metavar="N",
        help="Requests; 1000, or all of a custom file or trace, if not given.",
        show_default=False,
    ),
]
NoOversample = Annotated[
    bool, typer.Option("--no-oversample", help="Do not ask twice what a file has once.")
]
InputLen = Annotated[
    int | None,
    typer.Option("--input-len", min=1, metavar="N", help="As --random-input-len.", hidden=True),
]
OutputLen = Annotated[
    int | None,
    typer.Option(
        "--output-len",
        min=1,
        metavar="N",
        help="Tokens of answers, whatever the dataset.",
        show_default=False,
    ),
]
RandomInputLen = Annotated[
    int, typer.Option("--random-input-len", min=1, metavar="N", help="Tokens of a prompt.")
]
RandomOutputLen = Annotated[
    int, typer.Option("--random-output-len", min=1, metavar="N", help="Tokens of an answer.")
]
RandomRangeRatio = Annotated[
    float,
    typer.Option(
        "--random-range-ratio",
        metavar="X",
        help="Lengths are drawn from 1 - X to 1 + X times those.",
    ),
]
RandomPrefixLen = Annotated[
    int,
    typer.Option(
        "--random-prefix-len", min=0, metavar="N", help="Further tokens that all begin with."
    ),
]
SharegptOutputLen = Annotated[
    int | None,
    typer.Option("--sharegpt-output-len", min=1, metavar="N", help="As --output-len.", hidden=True),
]
CustomOutputLen = Annotated[
    int | None,
    typer.Option("--custom-output-len", min=1, metavar="N", help="As --output-len.", hidden=True),
]
PrefixLen = Annotated[
    int, typer.Option("--prefix-repetition-prefix-len", min=1, metavar="N", help="Shared tokens.")
]
SuffixLen = Annotated[
    int, typer.Option("--prefix-repetition-suffix-len", min=1, metavar="N", help="Own tokens.")
]
NumPrefixes = Annotated[
    int,
    typer.Option(
        "--prefix-repetition-num-prefixes", min=1, metavar="N", help="How many there are."
    ),
]
PrefixOutputLen = Annotated[
    int,
    typer.Option("--prefix-repetition-output-len", min=1, metavar="N", help="Tokens of an answer."),
]
RequestRate = Annotated[
    float,
    typer.Option("--request-rate", metavar="X", help="Requests a second; inf: all at once."),
]
Burstiness = Annotated[
    float,
    typer.Option(
        "--burstiness",
        metavar="X",
        help="1: a Poisson process; less: burstier; more: more even; inf: equal gaps.",
    ),
]
BurstSize = Annotated[
    int | None,
    typer.Option(
        "--burst-size", min=1, metavar="N", help="Requests that come together.", show_default=False
    ),
]
BurstInterval = Annotated[
    float | None,
    typer.Option(
        "--burst-interval",
        min=0.0,
        metavar="SECONDS",
        help="From one burst to the next.",
        show_default=False,
    ),
]
RampUpStrategy = Annotated[
    Literal["linear", "exponential"] | None,
    typer.Option(
        "--ramp-up-strategy",
        help="The rate goes from --ramp-up-start-rps to --ramp-up-end-rps.",
        show_default=False,
    ),
]
RampUpStart = Annotated[
    float | None,
    typer.Option(
        "--ramp-up-start-rps",
        metavar="X",
        help="Requests a second at the beginning.",
        show_default=False,
    ),
]
RampUpEnd = Annotated[
    float | None,
    typer.Option(
        "--ramp-up-end-rps", metavar="X", help="Requests a second at the end.", show_default=False
    ),
]
SelfTimed = Annotated[bool, typer.Option("--self-timed", help="Requests come when the trace says.")]
MaxConcurrency = Annotated[
    int | None,
    typer.Option(
        "--max-concurrency",
        min=1,
        metavar="N",
        help="Requests that are out at a time; others wait here.",
        show_default=False,
    ),
]
NumWarmups = Annotated[
    int, typer.Option("--num-warmups", min=0, metavar="N", help="Requests before the run.")
]
IgnoreEos = Annotated[
    bool,
    typer.Option("--ignore-eos", help="Answers are as long as asked; always with random prompts."),
]
Logprobs = Annotated[
    int | None,
    typer.Option("--logprobs", min=0, metavar="N", help="Ask for them.", show_default=False),
]
ExtraBody = Annotated[
    str | None,
    typer.Option(
        "--extra-body",
        metavar="JSON",
        help="Further fields of every request, such as '{\"priority\": 1}'.",
        show_default=False,
    ),
]
RequestIdPrefix = Annotated[
    str, typer.Option("--request-id-prefix", help="X-Request-Id is this and a number.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of prompts and arrivals.")]
_ASKED = "Sent with each request, if given."
Sampling = Annotated[float | None, typer.Option(metavar="X", help=_ASKED, show_default=False)]
TopK = Annotated[int | None, typer.Option("--top-k", metavar="N", help=_ASKED, show_default=False)]
ReadyTimeout = Annotated[
    float,
    typer.Option(
        "--ready-check-timeout-sec",
        min=0.0,
        metavar="SECONDS",
        help="Wait so long for the server, and for its first answer; 0: do not.",
    ),
]
RequestTimeout = Annotated[
    float,
    typer.Option(
        "--request-timeout-sec", min=0.001, metavar="SECONDS", help="Most for one request."
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        "--retries",
        min=0,
        metavar="N",
        help="Times a refused request (429) is sent again, when Retry-After says.",
    ),
]
RetryPoll = Annotated[
    float | None,
    typer.Option(
        "--retry-poll",
        min=0.001,
        metavar="SECONDS",
        help="Send it again so often instead: finds out when there really was a place.",
        show_default=False,
    ),
]
CheckText = Annotated[
    bool,
    typer.Option("--check-text", help="Ask everything again alone; the texts must be the same."),
]
DisableTqdm = Annotated[bool, typer.Option("--disable-tqdm", "--no-progress", help="Show no bar.")]


def pairs(option: str, texts: Sequence[str] | None, separator: str) -> dict[str, str]:
    """``KEY=VALUE``, or with another separator. Raises :class:`InvalidParameterError`."""
    found = {}
    for text in texts or ():
        key, mark, value = text.partition(separator)
        if not mark or not key.strip():
            raise InvalidParameterError(f"{option} {text!r}: must be like KEY{separator}VALUE")
        found[key.strip()] = value.strip()
    return found


def objectives(texts: Sequence[str] | None) -> dict[str, float]:
    """Milliseconds by metric. Raises :class:`InvalidParameterError`."""
    found = {}
    for name, value in pairs("--goodput", texts, ":").items():
        try:
            found[name] = float(value)
        except ValueError:
            raise InvalidParameterError(
                f"--goodput {name}:{value}: must be milliseconds, such as {name}:200"
            ) from None
    return found


def percentiles(text: str) -> tuple[float, ...]:
    """Such as ``50,99``. Raises :class:`InvalidParameterError`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameterError(
            f"--metric-percentiles {text!r}: must be numbers from 0 to 100, separated by commas"
        ) from None


def extra_fields(text: str | None) -> dict[str, Any]:
    """A JSON object. Raises :class:`InvalidParameterError`."""
    try:
        fields = {} if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameterError(f"--extra-body: is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidParameterError("--extra-body: must be a JSON object")
    return fields
