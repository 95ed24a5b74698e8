"""``farthing evaluate``: what a model, or each of several schemes of it, is worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farthing.cli.figure_options import (
    DEFAULT_FORMAT,
    FigureFormatOption,
    Figures,
    require_drawable,
    tell_drawn,
)
from farthing.cli.options import (
    SCHEME_NAMES,
    Json,
    KvCacheDtype,
    Method,
    ModelArgument,
    Threads,
    complete_model,
    method_option,
)

if TYPE_CHECKING:
    from farthing.evaluation.battery import Battery
    from farthing.evaluation.settings import Settings
    from farthing.program.kv_types import KvDtype
    from farthing.texts import Text

DEFAULT_TOKENS = 2048
DEFAULT_METHOD: Method = "weighted"
DEFAULT_MARGIN = 1.0
DEFAULT_MAX_LOSS = 5.0


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
            help="Measure MODEL in each of these schemes, packed into TMPDIR and removed once it "
            f"has been measured. {SCHEME_NAMES}. keep: as the file is.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[Method | None, method_option(DEFAULT_METHOD)] = None,
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
            help="Questions with known answers: 16 or several hundred built-in ones, or a file of "
            "JSON lines with question and answers; none: leave it out.",
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
        float | None,
        typer.Option(
            "--margin",
            metavar="POINTS",
            help="The difference that does not matter, in points (%) of tokens of the text that a "
            "model finds likeliest.",
            show_default=str(DEFAULT_MARGIN),
        ),
    ] = None,
    max_loss: Annotated[
        float | None,
        typer.Option(
            "--max-loss",
            metavar="POINTS",
            help="The loss that --recommend puts up with.",
            show_default=str(DEFAULT_MAX_LOSS),
        ),
    ] = None,
    figures: Figures = None,
    figure_format: FigureFormatOption = None,
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
    from farthing.cli.name_lists import split_names
    from farthing.cli.stop_signals import StoppedError, TerminationRaised
    from farthing.cli.unused_options import chooses_scales, require_unset
    from farthing.evaluation.candidates import LADDER
    from farthing.evaluation.default_window import default_window
    from farthing.evaluation.evaluate import evaluate
    from farthing.evaluation.figures import draw
    from farthing.evaluation.report import Report
    from farthing.program.weights import explain_bus_errors

    names: Sequence[str] = LADDER if recommend else ()
    if schemes is not None:
        names = split_names("--schemes", schemes, "scheme", ("keep", *LADDER))
    if against is None and not names:
        _require_no_comparison(positions, margin, figures if no_speed else None)
    rounds = chooses_scales(names)
    if not rounds:
        require_unset("--method", method, "no weight is rounded; name schemes with --schemes")
    if not recommend:
        require_unset("--max-loss", max_loss, "is what --recommend puts up with; give both")
    if battery == "none" and repetition_penalty != 1:
        require_unset(
            "--repetition-penalty",
            f"{repetition_penalty:g}",
            "is of a battery, and --battery none leaves that out",
        )
    require_drawable(figures, figure_format)
    method = method or DEFAULT_METHOD
    margin = _points("--margin", margin, DEFAULT_MARGIN)
    max_loss = _points("--max-loss", max_loss, DEFAULT_MAX_LOSS)
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
    settings = None if context is None else asked(context=context)
    machine.active_isa()  # refuses an impossible FARTHING_ISA before anything is fetched
    questions = _battery(battery)
    content = _text(text)
    path = fetch(model)
    reference = None if against is None else fetch(against)
    used = path if reference is None else f"{path} or {reference}"
    explain_bus_errors(used, may_copy=False)
    progress = EvaluationProgress()
    if settings is None:  # only the models know how long windows can be
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
        method=method if rounds else None,
        settings=settings,
        margin=margin,
        max_loss=max_loss if recommend else None,
    )
    if json:
        write_report(report)
    else:
        print_report(report)
    if figures is not None:  # last: what was measured is told whatever becomes of the pictures
        tell_drawn(draw(report, figures, figure_format or DEFAULT_FORMAT), figures)


def _require_no_comparison(
    positions: int | None, margin: float | None, figures: Path | None
) -> None:
    """Refuses what only makes sense beside a reference. ``figures`` are without speed."""
    from farthing.cli.unused_options import require_unset

    remedy = "name one with --against, or --schemes"
    require_unset("--positions", positions or None, f"are of a reference's greedy path; {remedy}")
    require_unset("--margin", margin, f"is of a difference from a reference; {remedy}")
    require_unset(
        "--figures",
        figures,
        f"there is nothing to draw with --no-speed and no reference; {remedy}",
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


def _points(option: str, points: float | None, default: float) -> float:
    """As a share."""
    from farthing.errors import InvalidParameterError

    points = default if points is None else points
    if not 0 < points < 100:
        raise InvalidParameterError(f"{option} {points:g} must be above 0 and below 100 points")
    return points / 100


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
