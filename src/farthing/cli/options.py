"""Arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from farthing.program.kv_types import KvDtype


def complete_model(incomplete: str) -> list[str]:
    """Catalog names that begin with what was typed, for the shell."""
    from farthing import catalog

    return [entry.name for entry in catalog.CATALOG if entry.name.startswith(incomplete)]


MODEL_HELP = (
    "Catalog name (see `farthing list`), hub id, GGUF file, Hugging Face or packed directory."
)

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help=MODEL_HELP, autocompletion=complete_model)
]
SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Catalog name (see `farthing list`), hub id, GGUF file or Hugging Face directory; "
        "none that is packed already.",
        autocompletion=complete_model,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help=MODEL_HELP + " Without it, the catalog's default.",
        autocompletion=complete_model,
        show_default=False,
    ),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", min=1, metavar="N", help="Longest answer, in tokens.")
]
Temperature = Annotated[
    float,
    typer.Option(
        "--temperature",
        "-t",
        min=0.0,
        metavar="T",
        help="0 takes the most probable token each time (greedy); above 0 samples.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", help="Seed of the sampling; random if not given.", show_default=False
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        help="End the answer before this text; may be repeated.",
        show_default=False,
    ),
]
_ABOVE_ZERO = " Acts at a temperature above 0."
TopK = Annotated[
    int,
    typer.Option(
        "--top-k", metavar="K", help="Draw from the K likeliest tokens; 0 is off." + _ABOVE_ZERO
    ),
]
TopP = Annotated[
    float,
    typer.Option(
        "--top-p",
        metavar="P",
        help="Draw from the likeliest tokens that make up P together; 1 is off." + _ABOVE_ZERO,
    ),
]
MinP = Annotated[
    float,
    typer.Option(
        "--min-p",
        metavar="P",
        help="Draw from tokens at least P times as likely as the likeliest; 0 is off."
        + _ABOVE_ZERO,
    ),
]
TypicalP = Annotated[
    float,
    typer.Option(
        "--typical-p",
        metavar="P",
        help="Draw from the tokens nearest to the expected surprise that make up P; 1 is off."
        + _ABOVE_ZERO,
    ),
]
RepetitionPenalty = Annotated[
    float,
    typer.Option(
        "--repetition-penalty",
        "--repeat-penalty",
        metavar="X",
        help="Make tokens seen before less likely; 1 is off.",
    ),
]
PresencePenalty = Annotated[
    float,
    typer.Option(
        "--presence-penalty", metavar="X", help="Taken from tokens the answer has; 0 is off."
    ),
]
FrequencyPenalty = Annotated[
    float,
    typer.Option(
        "--frequency-penalty",
        metavar="X",
        help="Taken from tokens as often as the answer has them; 0 is off.",
    ),
]
DryMultiplier = Annotated[
    float,
    typer.Option(
        "--dry-multiplier",
        metavar="X",
        help="Strength of DRY, which keeps sequences from being repeated; 0 is off.",
    ),
]
JsonSchema = Annotated[
    str | None,
    typer.Option(
        "--json-schema",
        metavar="FILE|TEXT",
        help="Answer in JSON that satisfies this schema: a file, or the schema itself.",
        show_default=False,
    ),
]
JsonObject = Annotated[bool, typer.Option("--json-object", help="Answer with a JSON object.")]
Regex = Annotated[
    str | None,
    typer.Option(
        "--regex",
        metavar="REGEX",
        help="Answer with a text that this expression matches as a whole.",
        show_default=False,
    ),
]
Choice = Annotated[
    list[str] | None,
    typer.Option(
        "--choice",
        metavar="TEXT",
        help="Answer with this text or another one given so.",
        show_default=False,
    ),
]
Grammar = Annotated[
    str | None,
    typer.Option(
        "--grammar",
        metavar="FILE",
        help="Answer with a text of the Lark or GBNF grammar in this file.",
        show_default=False,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=1024,
        metavar="N",
        help="Threads to compute with; by default one per core this process may use.",
        show_default=False,
    ),
]
Method = Literal["absmax", "mse", "weighted"]
"""``RoundingMethod``, whose module is too heavy for a command that only shows its help."""


def method_option(default: Method) -> Any:
    """``--method``; its value is None if nobody says, so that one in vain can be refused."""
    return typer.Option(
        "--method",
        help="How scales are chosen: absmax clips nothing and is quick; mse searches for the least "
        "squared error; weighted does so with errors on large weights counting for more, which "
        "keeps most of a model's quality.",
        show_default=default,
    )


SCHEME_NAMES = (
    "w4g64: 4 bits (w2 to w8), a scale for each group of 64 (g16 to g256, row or tensor); w4g64m: "
    "a minimum too (w2m to w5m); nf4g64, km4g64: uneven levels, NF4's or learnt from each matrix"
)
"""What names of schemes are made of, for help."""

KvCacheDtype = Annotated[
    KvDtype,
    typer.Option(
        "--kv-cache-dtype",
        help="Types in which keys and values are stored: int8 takes about half of fp16, k8v4 "
        "(int8 keys, int4 values) 0.4, int4 a quarter, with a loss that not every model bears.",
    ),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        "--max-model-len",
        min=1,
        metavar="TOKENS",
        help="Shorten the context to this; by default the model's own.",
        show_default=False,
    ),
]
Weights = Annotated[
    Literal["mmap", "copy"],
    typer.Option(
        "--weights",
        help="Use a packed directory's weights where they lie, shared with other processes, or "
        "copy them into memory of this one: on huge pages, which may be faster. Weights of other "
        "models are always packed into memory.",
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        metavar="DIR",
        help="Directory of a LoRA adapter made for the model, as peft saves it.",
        show_default=False,
    ),
]
MaxNumSeqs = Annotated[
    int, typer.Option("--max-num-seqs", min=1, max=4096, metavar="N", help="Answers at a time.")
]
Batching = Annotated[
    Literal["continuous", "static"],
    typer.Option(
        "--batching",
        help="static: a batch begins together and lasts until its longest answer ends, for "
        "comparison.",
    ),
]
Kv = Annotated[
    Literal["paged", "contiguous"],
    typer.Option(
        "--kv",
        help="contiguous: reserve the longest context for each answer, for comparison.",
    ),
]
NoPrefixCaching = Annotated[
    bool,
    typer.Option(
        "--no-prefix-caching", help="Read every prompt whole, also what others had in common."
    ),
]
KvCacheTokens = Annotated[
    int | None,
    typer.Option(
        "--kv-cache-tokens",
        min=16,
        metavar="TOKENS",
        help="Room of the KV cache for all answers together; by default, for the longest context.",
        show_default=False,
    ),
]
KvCacheMemory = Annotated[
    int | None,
    typer.Option(
        "--kv-cache-memory-bytes",
        min=1,
        metavar="BYTES",
        help="The same in bytes.",
        show_default=False,
    ),
]
PrefixCache = Annotated[
    str | None,
    typer.Option(
        "--prefix-cache",
        metavar="DIR",
        help="Keep what was computed of prompts and answers in this folder, and begin with what "
        "it has: text that was read before need not be read again. It holds what was said.",
        show_default=False,
    ),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Recompute the whole context for every token (slow)."),
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think",
        help="Let the model think first, or not, if its chat template has a switch for that.",
        show_default=False,
    ),
]
TemplateArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--chat-template-arg",
        metavar="NAME=VALUE",
        help="A variable of the chat template, its value JSON or text; may be repeated.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
