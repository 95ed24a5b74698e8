"""``farthing evaluate``: what a model, or each of several schemes of it, is worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from farthing.cli.options import Json, KvCacheDtype, ModelArgument, Threads, complete_model

if TYPE_CHECKING:
    from farthing.evaluation.battery import Battery
    from farthing.evaluation.settings import Settings
    from farthing.program.kv_types import KvDtype
    from farthing.texts import Text

DEFAULT_TOKENS = 2048


def evaluate(
    model: ModelArgument,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="REFERENCE",
            help="Compare with this model: the same one in a higher precision. With --schemes it "
            "is MODEL's own values if nobody says.",
            autocompletion=complete_model,
            show_default=False,
        ),
    ] = None,
    schemes: Annotated[
        str | None,
        typer.Option(
            "--schemes",
            metavar="A,B,...",
            help="Measure MODEL in each of these schemes (see `farthing quantize`); keep is as its "
            "file is. Each is packed into TMPDIR and removed once it has been measured.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        Literal["absmax", "mse", "weighted"],
        typer.Option("--method", help="How scales are chosen, as in `farthing quantize`."),
    ] = "weighted",
    text: Annotated[
        Path | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="The text to judge on, UTF-8; one that no model was trained or calibrated on. By "
            "default a novel that comes with Farthing.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            min=0,
            metavar="N",
            help=f"Only the whole windows of the text's first N tokens, {DEFAULT_TOKENS:,} if "
            "nobody says; 0: all of it.",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            min=8,
            metavar="TOKENS",
            help="Length of a window; its second half is scored. 512 if nobody says, or the whole "
            "context of a model that has less.",
            show_default=False,
        ),
    ] = None,
    positions: Annotated[
        int | None,
        typer.Option(
            "--positions",
            min=0,
            max=1 << 20,
            metavar="N",
            help="Positions of the reference's greedy paths at which models are asked for the next "
            "token, 144 if nobody says; 0: none.",
            show_default=False,
        ),
    ] = None,
    battery: Annotated[
        str,
        typer.Option(
            "--battery",
            metavar="short|long|FILE|none",
            help="Questions with known answers: 16 or several hundred built-in ones, or JSON lines "
            "with question and answers.",
        ),
    ] = "short",
    repetition_penalty: Annotated[
        float,
        typer.Option(
            "--repetition-penalty",
            metavar="X",
            help="Ask the battery once more with this penalty, beside the greedy answers; 1: do "
            "not.",
        ),
    ] = 1.0,
    no_speed: Annotated[bool, typer.Option("--no-speed", help="Measure no speed.")] = False,
    recommend: Annotated[
        bool,
        typer.Option(
            "--recommend",
            help="Name the smallest scheme that is equivalent to the reference and the smallest "
            "within a loss; of a ladder of schemes if --schemes names none. Takes 8,192 positions.",
        ),
    ] = False,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            metavar="POINTS",
            help="The difference that does not matter, in points (%) of tokens of the text that a "
            "model finds likeliest.",
        ),
    ] = 1.0,
    max_loss: Annotated[
        float,
        typer.Option(
            "--max-loss", metavar="POINTS", help="The loss that --recommend puts up with."
        ),
    ] = 5.0,
    threads: Threads = None,
    kv_cache_dtype: KvCacheDtype = "fp16",
    json: Json = False,
) -> None:
    """Measure what a model, or each of several schemes of it, loses against a reference.

    Perplexity, divergence, agreement with the reference's greedy text, questions, size and speed,
    with intervals; every comparison is paired and says what it could have seen. Models run as they
    are served, a reference with keys and values in float32; one is in memory at a time.
    """
    from functools import partial

    from farthing import machine
    from farthing.cli.download import fetch
    from farthing.cli.evaluate_progress import EvaluationProgress
    from farthing.cli.evaluate_report import print_report, write_report
    from farthing.cli.stop_signals import StoppedError, TerminationRaised
    from farthing.evaluation.candidates import LADDER, split_schemes
    from farthing.evaluation.default_window import default_window
    from farthing.evaluation.evaluate import evaluate
    from farthing.evaluation.report import Report
    from farthing.evaluation.settings import WINDOW

    names = split_schemes(schemes) if schemes is not None else LADDER if recommend else ()
    _require_reference(against, names, positions)
    asked = partial(
        _settings,
        tokens=tokens,
        positions=positions,
        repetition_penalty=repetition_penalty,
        speed=not no_speed,
        recommend=recommend,
        threads=threads,
        kv_cache_dtype=kv_cache_dtype,
    )
    settings = asked(context=context or WINDOW)
    _require_points("--margin", margin)
    _require_points("--max-loss", max_loss)
    machine.active_isa()  # refuses an impossible FARTHING_ISA before anything is fetched
    questions = _battery(battery)
    content = _text(text)
    path = fetch(model)
    reference = None if against is None else fetch(against)
    progress = EvaluationProgress()
    if context is None:
        models = [path] if reference is None else [path, reference]
        settings = asked(context=default_window(models, progress.note))
    try:
        with TerminationRaised():
            found = evaluate(
                path,
                content.text,
                schemes=names,
                reference=reference,
                battery=questions,
                method=method,
                settings=settings,
                observer=progress,
                text_name=content.name,
            )
    except StoppedError as stop:
        raise typer.Exit(stop.status) from None
    finally:
        progress.finish()
    report = Report.of(
        found,
        model=model,
        text=content.name,
        battery=None if questions is None else questions.name,
        method=method,
        settings=settings,
        margin=margin / 100,
        max_loss=max_loss / 100 if recommend else None,
    )
    if json:
        write_report(report)
    else:
        print_report(report)


def _require_reference(against: str | None, schemes: Sequence[str], positions: int | None) -> None:
    """Refuses positions where there is no reference to walk a path."""
    from farthing.errors import InvalidParameterError

    if against is not None or schemes:
        return
    if positions:
        raise InvalidParameterError(
            f"--positions {positions} are of a reference's greedy path; name one with --against, "
            "or --schemes"
        )


def _settings(
    *,
    tokens: int | None,
    context: int,
    positions: int | None,
    repetition_penalty: float,
    speed: bool,
    recommend: bool,
    threads: int | None,
    kv_cache_dtype: KvDtype,
) -> Settings:
    from farthing.errors import InvalidParameterError
    from farthing.evaluation.recommendation import LEAST_POSITIONS
    from farthing.evaluation.settings import POSITIONS, Settings
    from farthing.evaluation.text import scored_of

    scored = scored_of(context)
    needed = -(-LEAST_POSITIONS // scored) * context  # for so many scored tokens
    if tokens is None:
        tokens = max(needed if recommend else DEFAULT_TOKENS, context)
    elif recommend and 0 < tokens < needed:
        raise InvalidParameterError(
            f"--tokens {tokens}: --recommend takes {LEAST_POSITIONS:,} scored tokens at least, "
            f"which {needed:,} tokens in windows of {context} have"
        )
    elif 0 < tokens < context:
        raise InvalidParameterError(
            f"--tokens {tokens} is less than a window of {context} tokens; "
            "give more or a smaller --context"
        )
    if positions is None:
        positions = LEAST_POSITIONS if recommend else POSITIONS
    return Settings(
        context=context,
        windows=tokens // context or None,
        least_scored=LEAST_POSITIONS if recommend else 0,
        positions=positions,
        repetition_penalty=repetition_penalty,
        speed=speed,
        kv_cache_dtype=kv_cache_dtype,
        num_threads=threads,
    )


def _require_points(option: str, points: float) -> None:
    from farthing.errors import InvalidParameterError

    if not 0 < points < 100:
        raise InvalidParameterError(f"{option} {points:g} must be above 0 and below 100 points")


def _battery(name: str) -> Battery | None:
    from farthing.evaluation.battery import BUILT_IN, load_battery

    if name == "none":
        return None
    return load_battery(name if name in BUILT_IN else Path(name))


def _text(file: Path | None) -> Text:
    from farthing.evaluation.text import read_text
    from farthing.texts import Text, evaluation_text

    if file is None:
        return evaluation_text()
    return Text(str(file), str(file), "", read_text(file))
