"""``farthing quantize``: a model packed with few bits, to be used where it lies."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farthing.cli.options import (
    SCHEME_NAMES,
    Json,
    Method,
    SourceArgument,
    Threads,
    method_option,
)
from farthing.cli.quantize_mixed import Mixture

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from farthing.packing.folder import PartialFolder
    from farthing.packing.plan import Plan

DEFAULT_SCHEME = "w4g64"
DEFAULT_METHOD: Method = "weighted"


def quantize(
    model: SourceArgument,
    scheme: Annotated[
        str | None,
        typer.Option(
            "--scheme",
            "-s",
            metavar="NAME",
            help=f"How weights are stored. {SCHEME_NAMES}; iq4_nl: those of GGUF. f16, bf16, f32: "
            "floats. keep: what the file has.",
            show_default=DEFAULT_SCHEME,
        ),
    ] = None,
    method: Annotated[Method | None, method_option(DEFAULT_METHOD)] = None,
    head_scheme: Annotated[
        str | None,
        typer.Option(
            "--head-scheme",
            metavar="NAME",
            help="Scheme of the output matrix, and of an embedding that is one with it.",
            show_default=False,
        ),
    ] = None,
    mixed: Annotated[
        str | None,
        typer.Option(
            "--mixed",
            metavar="BYTES",
            help="Choose a scheme for every matrix, so that all take at most BYTES (400M, 350MiB) "
            "and the model's predictions change least. That is measured, in minutes; another size "
            "then takes seconds.",
            show_default=False,
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            help="The text --mixed measures on, UTF-8; by default a built-in novel. Do not judge "
            "the model by it.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Directory to make; by default MODEL-SCHEME or MODEL-BYTES, here.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace a packed model of that name.")
    ] = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Quantize a model into a packed directory, which every other verb takes as a model.

    Its weights are used where they lie in the files, so it is ready at once and shared by all
    processes that use it. An interrupted run goes on where it stopped.
    """
    from farthing.cli.download import fetch
    from farthing.cli.terminal import console, dim, human_bytes, write_json
    from farthing.cli.unused_options import chooses_scales, require_unset
    from farthing.packing.folder import check_target
    from farthing.packing.plan import find_target
    from farthing.packing.quantize import PackOptions, PackProgress, quantize_model

    for name in (scheme, head_scheme):
        if name is not None:
            find_target(name)  # a wrong one is refused before anything is fetched
    mixture = Mixture.asked(mixed, calibration, scheme, head_scheme)
    if out is not None:
        check_target(Path(out), [], force=force)  # as is a place that cannot be
    scheme = scheme or DEFAULT_SCHEME
    if mixture is None and not chooses_scales([scheme, *([head_scheme] if head_scheme else [])]):
        require_unset("--method", method, f"--scheme {scheme} rounds nothing to codes")
    path = fetch(model)
    target = Path(out or f"{_name(model, path)}-{scheme if mixture is None else mixture.label}")
    options = PackOptions(scheme, method or DEFAULT_METHOD, head_scheme, force, threads)
    start = time.monotonic()
    if mixture is not None:
        check_target(target, [path], force=force)  # before minutes are spent
        options = mixture.choose(path, options)
    bar = PackingBar(target)
    try:
        packed = quantize_model(
            path, target, options, PackProgress(bar.plan, bar.folder, bar.advance)
        )
    except KeyboardInterrupt:
        bar.finish()
        bar.explain()
        raise
    finally:
        bar.finish()
    seconds = time.monotonic() - start
    if json:
        write_json(
            {
                "model": model,
                "path": str(packed.path),
                "scheme": scheme if mixture is None else None,
                "head_scheme": head_scheme,
                "carried": bar.carried,
                "mixed": None if mixture is None else mixture.facts(),
                "method": options.method if bar.rounded else "none",
                "tensor_bytes": packed.nbytes,
                "parameters": packed.parameters,
                "bits_per_weight": 8 * packed.nbytes / packed.parameters,
                "resumed_tensors": packed.resumed,
                "seconds": seconds,
            }
        )
        return
    console().print(str(packed.path), soft_wrap=True)
    for line in () if mixture is None else mixture.lines():
        dim(line)
    dim(
        f"{human_bytes(packed.nbytes)}, {8 * packed.nbytes / packed.parameters:.2f} bits a weight "
        f"· {seconds:.1f} s"
    )


def _name(model: str, path: Path) -> str:
    """What the model is called: its file without the ending, its folder, or the name given."""
    if not Path(model).exists():
        return model.rpartition("/")[2].rpartition(":")[2].removesuffix(".gguf")
    return path.stem if path.suffix == ".gguf" else path.resolve().name


class PackingBar:
    """What is said while a model is packed: lines on stderr, and a bar on a terminal."""

    def __init__(self, target: Path) -> None:
        self.carried: dict[str, str] = {}  # schemes, and what they are served as
        self.rounded = False  # whether scales are chosen for any weight
        self._target = target
        self._partial: PartialFolder | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def plan(self, plan: Plan) -> None:
        """Says which codes of the file are given up, and which schemes others carry."""
        from farthing.cli.terminal import dim

        self.carried = dict(plan.carried)
        self.rounded = plan.rounded
        if plan.requantized:
            dim(
                f"The file's weights are quantized already ({', '.join(plan.requantized)}); they "
                "are turned to floats first and lose a second time"
            )
        for name, carrier in plan.carried.items():
            dim(f"No kernel has {name}: its values are kept and served as {carrier}")

    def folder(self, partial: PartialFolder) -> None:
        """Says what an interrupted run has left."""
        from farthing.cli.terminal import dim

        self._partial = partial
        if partial.done:
            dim(
                f"Going on where an interrupted run stopped: {partial.done} of {partial.total} "
                "tensors are here"
            )

    def advance(self, done: int, total: int) -> None:
        """``done`` of ``total`` bytes are written."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif sys.stderr.isatty():
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            from farthing.cli.terminal import console

            self._bar = Progress(
                TextColumn("Packing {task.description}"),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TimeRemainingColumn(),
                console=console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._target.name, completed=done, total=total)
            self._bar.start()

    def explain(self) -> None:
        """Says where an interrupted run has left what it did."""
        from farthing.cli.terminal import dim

        partial = self._partial
        if partial is not None and partial.path.is_dir():
            dim(
                f"Interrupted: {partial.done} of {partial.total} tensors are kept in "
                f"{partial.path}; the same command goes on from there"
            )

    def finish(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None
