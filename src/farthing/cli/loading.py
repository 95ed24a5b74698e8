"""Loading a model for a verb that generates."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from farthing.cli.terminal import console
from farthing.errors import InvalidParameterError
from farthing.program.kv_types import KvDtype

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from farthing.llm import LLM


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded; lengths in tokens, None: the LLM decides."""

    threads: int | None = None
    kv_cache_dtype: KvDtype = "fp16"
    max_model_len: int | None = None
    use_cache: bool = True
    adapter: str | None = None
    weights: Literal["mmap", "copy"] = "mmap"
    max_num_seqs: int = 32
    batching: Literal["continuous", "static"] = "continuous"
    kv: Literal["paged", "contiguous"] = "paged"
    prefix_caching: bool = True
    kv_cache_tokens: int | None = None
    kv_cache_memory_bytes: int | None = None
    prefix_cache: str | None = None


def load(model: str, options: LoadOptions) -> LLM:
    """Fetches ``model`` if it is not here yet and loads it, with progress bars on stderr.

    Whoever gets it closes it: only then a prefix cache is saved.
    """
    from farthing import machine
    from farthing.cli.download import fetch
    from farthing.engine.engine import caches_prefixes
    from farthing.engine.prefix_store import check_prefix_folder
    from farthing.llm import LLM
    from farthing.models.adapter import open_adapter
    from farthing.program.weights import explain_bus_errors

    machine.active_isa()  # refuses an impossible FARTHING_ISA before anything is fetched
    if options.adapter is not None:
        open_adapter(Path(options.adapter))  # a wrong one is refused before anything is fetched
    if options.prefix_cache is not None:
        if not options.use_cache:
            raise InvalidParameterError("--prefix-cache has nothing to keep with --no-cache")
        caches = caches_prefixes(options.kv, options.prefix_caching, options.use_cache)
        check_prefix_folder(options.prefix_cache, caches=caches)
    path = fetch(model)
    explain_bus_errors(path)
    bar = LoadBar(model)
    try:
        return LLM(
            path,
            adapter=options.adapter,
            weights=options.weights,
            prefix_cache=options.prefix_cache,
            use_cache=options.use_cache,
            kv_cache_dtype=options.kv_cache_dtype,
            max_model_len=options.max_model_len,
            num_threads=options.threads,
            load_progress=bar.advance,
            max_num_seqs=options.max_num_seqs,
            batching=options.batching,
            kv=options.kv,
            enable_prefix_caching=options.prefix_caching,
            kv_cache_tokens=options.kv_cache_tokens,
            kv_cache_memory_bytes=options.kv_cache_memory_bytes,
        )
    finally:
        bar.finish()


class LoadBar:
    """A bar for a load that takes longer than one cares to wait without it."""

    PATIENCE = 0.7  # seconds

    def __init__(self, name: str, what: str = "Loading") -> None:
        self._name = name
        self._what = what
        self._start = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def advance(self, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of weights are in memory."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif sys.stderr.isatty() and time.monotonic() - self._start > self.PATIENCE:
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn(self._what + " {task.description}"),
                BarColumn(),
                DownloadColumn(binary_units=True),
                console=console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._name, completed=done, total=total)
            self._bar.start()

    def finish(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None
