"""Options that the benchmarks share, and lists of numbers read from them."""

from __future__ import annotations

from typing import Annotated

import typer

from farthing.cli.options import MODEL_HELP, complete_model
from farthing.errors import InvalidParameterError

OptionalModel = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help=MODEL_HELP + " Or give --shape.",
        autocompletion=complete_model,
        show_default=False,
    ),
]
Shape = Annotated[
    str | None,
    typer.Option(
        "--shape",
        metavar="NAME|NUMBERS",
        help="Random weights instead of a model: 0.5B, 1.5B, 3B, 7B or 14B as Qwen2.5 has them, or "
        "numbers such as layers=4,hidden=512; intermediate, heads, kv_heads and vocab are needed "
        "too, head_dim is hidden / heads if not given.",
        show_default=False,
    ),
]
Scheme = Annotated[
    str | None,
    typer.Option(
        "--scheme",
        metavar="NAME",
        help="How the matrices of --shape are stored; w4g32 if not given.",
        show_default=False,
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        "--rounds",
        min=1,
        max=1000,
        metavar="N",
        help="Rounds; each measures everything once, the machine's limits too.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Folder for the results, a JSON line each; bench/results/<machine> of the checkout "
        "that runs, or of Farthing's own folder where it is installed.",
        show_default=False,
    ),
]
PeerModel = Annotated[
    str | None,
    typer.Option(
        "--peer-model",
        metavar="FILE",
        help="GGUF file for llama.cpp; MODEL itself if not given.",
        show_default=False,
    ),
]
Context = Annotated[
    int, typer.Option("--context", min=0, metavar="TOKENS", help="Tokens a sequence has already.")
]
Contexts = Annotated[
    str,
    typer.Option(
        "--context", metavar="TOKENS,...", help="Tokens that the sequence has already, one by one."
    ),
]
Tokens = Annotated[
    int, typer.Option("--tokens", min=1, max=1 << 20, metavar="N", help="Length of the prompt.")
]
Batches = Annotated[
    str, typer.Option("--batch", metavar="N,...", help="How many sequences decode together.")
]


def counts(option: str, text: str, *, least: int = 1, most: int = 1 << 20) -> list[int]:
    """The numbers of ``text``, such as ``1,2,4``.

    Raises :class:`InvalidParameterError` naming the option.
    """
    from farthing.bench.shapes import whole_number

    numbers: dict[int, None] = {}  # each once, in their order
    for part in text.split(","):
        number = whole_number(part.strip(), least, most)
        if number is None:
            raise InvalidParameterError(
                f"{option} {text!r}: must be whole numbers from {least} to {most}, separated by "
                "commas"
            )
        numbers[number] = None
    return list(numbers)
