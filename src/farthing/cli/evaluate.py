"""``farthing evaluate``: what a model predicts of a text, and how far that is from a reference."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farthing.cli.options import Json, KvCacheDtype, ModelArgument, Threads, complete_model

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from farthing.cli.loading import LoadBar
    from farthing.evaluation.divergence import Scores
    from farthing.evaluation.summary import Summary


def evaluate(
    model: ModelArgument,
    text: Annotated[
        Path,
        typer.Option(
            "--text",
            metavar="FILE",
            help="The text to judge it on, UTF-8; one that it was not trained or calibrated on.",
        ),
    ],
    kl: Annotated[
        str | None,
        typer.Option(
            "--kl",
            metavar="REFERENCE",
            help="Compare with this model too: the same one in a higher precision.",
            autocompletion=complete_model,
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        int,
        typer.Option(
            "--context",
            min=8,
            metavar="TOKENS",
            help="Length of a window; its second half is scored.",
        ),
    ] = 512,
    chunks: Annotated[
        int | None,
        typer.Option(
            "--chunks",
            min=1,
            metavar="N",
            help="Only the first N windows; by default the whole text.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            min=1,
            metavar="N",
            help="Only the whole windows of the first N tokens.",
            show_default=False,
        ),
    ] = None,
    threads: Threads = None,
    kv_cache_dtype: KvCacheDtype = "fp16",
    json: Json = False,
) -> None:
    """Measure a model's perplexity on a text, and its divergence from a reference.

    Windows and scored tokens are those of llama-perplexity, so that figures compare. The model runs
    as it is served; the reference with keys and values in float32.
    """
    from farthing import machine
    from farthing.cli.download import fetch
    from farthing.cli.terminal import write_json
    from farthing.errors import InvalidParameterError
    from farthing.evaluation.evaluate import Settings, evaluate
    from farthing.evaluation.summary import summarize
    from farthing.evaluation.text import read_text

    windows = chunks
    if tokens is not None:
        if tokens < context:
            raise InvalidParameterError(
                f"--tokens {tokens} is less than a window of {context} tokens; "
                "give more or a smaller --context"
            )
        windows = min(tokens // context, chunks or tokens)
    machine.active_isa()  # refuses an impossible FARTHING_ISA before anything is fetched
    content = read_text(text)
    path = fetch(model)
    reference = None if kl is None else fetch(kl)
    settings = Settings(context, windows, kv_cache_dtype, threads)
    progress = EvaluationProgress()
    try:
        found = evaluate(
            path,
            content,
            reference=reference,
            settings=settings,
            observer=progress,
            text_name=str(text),
        )
    finally:
        progress.finish()
    summary = summarize(found)
    if json:
        write_json(
            {
                "model": model,
                "reference": kl,
                "text": str(text),
                "kv_cache_dtype": kv_cache_dtype,
                "isa": machine.active_isa(),
                **asdict(summary),
            }
        )
        return
    _print(model, kl, text, summary)


class EvaluationProgress:
    """Bars on a terminal; elsewhere a line for each tenth of the windows."""

    def __init__(self) -> None:
        self._loading: LoadBar | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._tenth = 0

    def note(self, message: str) -> None:
        """Writes a line."""
        from farthing.cli.terminal import dim

        dim(message[0].upper() + message[1:])

    def loading(self, path: Path, done: int, total: int) -> None:
        """A model's weights come; its bar takes the place of the windows'."""
        from farthing.cli.loading import LoadBar

        if self._loading is None:
            self.finish()
            self._loading = LoadBar(path.name)
        self._loading.advance(done, total)

    def running(self, path: Path, done: int, total: int, scores: list[Scores]) -> None:
        """A window is done; its bar takes the place of the load's."""
        from farthing.cli.terminal import console, dim

        if self._loading is not None:
            self._loading.finish()
            self._loading = None
            self._tenth = 0
        title = f"{path.name}, window {done} of {total}{_so_far(scores)}"
        if not sys.stderr.isatty():
            if done * 10 // total > self._tenth:
                self._tenth = done * 10 // total
                dim(title)
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeRemainingColumn(),
                console=console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(title, total=total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, description=title, completed=done)

    def finish(self) -> None:
        """Takes the bars away."""
        if self._loading is not None:
            self._loading.finish()
        if self._bar is not None:
            self._bar.stop()
        self._loading = self._bar = self._task = None


def _so_far(scores: list[Scores]) -> str:
    from farthing.evaluation.divergence import Scores
    from farthing.evaluation.statistics import mean

    if not scores:
        return ""
    together = Scores.joined(scores)
    text = f": perplexity {mean(together.nll).exponential().value:.4g}"
    if together.kl is not None:
        text += f", divergence {mean(together.kl).value:.4g}"
    return text


def _print(model: str, kl: str | None, text: Path, summary: Summary) -> None:
    from farthing.cli.terminal import human_bytes, print_facts
    from farthing.evaluation.statistics import Estimate

    def estimate(e: Estimate, digits: int, unit: str = "") -> str:
        error = "" if e.standard_error is None else f" ± {e.standard_error:,.{digits}f}"
        return f"{e.value:,.{digits}f}{error}{unit}"

    t, memory = summary.tokens, summary.memory
    facts = {
        "Model": model,
        "Text": f"{text}, {t.windows} of {t.available_windows} windows of {t.context} tokens, "
        f"{t.scored:,} tokens scored ({t.scored_bytes:,} bytes)",
        "Perplexity": estimate(summary.perplexity, 4),
        "Bits per byte": estimate(summary.bits_per_byte, 4),
    }
    against = summary.against
    if against is not None:
        kl_, top = against.kl, against.same_top
        facts |= {
            "Reference": str(kl),
            "Its perplexity": estimate(against.perplexity, 4),
            "Ratio": estimate(against.perplexity_ratio, 5),
            "KL divergence": estimate(kl_.mean, 6, " nats a token"),
            "  median": f"{kl_.median:.6f}",
            "  99th percentile": f"{kl_.p99:.6f}",
            "  maximum": f"{kl_.maximum:.6f}",
            "Same top token": f"{top.value:.2%} ({top.low:.2%} to {top.high:.2%} at 95 %)",
        }
    in_memory = f"{human_bytes(memory.model_weights)} of weights"
    if against is not None:
        in_memory += (
            f" and {human_bytes(memory.reference_head)} of the reference's head; before, "
            f"{human_bytes(memory.reference_weights)} of the reference alone; "
            f"{human_bytes(memory.states_on_disk)} on disk"
        )
    print_facts({**facts, "Memory": in_memory})
