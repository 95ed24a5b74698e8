"""A run of one verb: what is measured, shown and kept."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from errno import ENOTDIR
from pathlib import Path
from typing import Any

from farthing import machine
from farthing.bench.limits import Limits, barrier_seconds
from farthing.bench.records import (
    CpuTime,
    Record,
    append,
    head,
    record_of,
    results_folder,
    run_facts,
    target_facts,
)
from farthing.bench.rounds import Case, Spread, measure
from farthing.bench.steps import prepare
from farthing.bench.target import Needs, Target, load_model_target, make_shape_target
from farthing.cli.bench.tables import (
    counted,
    print_barrier,
    print_measurements,
    say_where,
    status,
)
from farthing.cli.download import fetch
from farthing.cli.loading import LoadBar
from farthing.cli.terminal import write_json
from farthing.errors import InvalidParameterError
from farthing.program.kv_types import KvDtype
from farthing.program.native import thread_team
from farthing.program.weights import WeightPlacement

DEFAULT_SCHEME = "w4g32"


class Session:
    """Appends to the results after each measurement, so that an interrupted run leaves some.

    The folder is made with the first of them; ``OSError`` is raised at once when it cannot be.
    """

    def __init__(
        self, verb: str, *, threads: int | None, rounds: int, json: bool, output: str | None
    ) -> None:
        machine.active_isa()  # refuses an impossible FARTHING_ISA before anything is loaded
        self.verb = verb
        self.num_threads = threads or machine.default_threads()
        self.rounds = rounds
        self._json = json
        self._folder = open_folder(output)
        self._limits: dict[int, Limits] = {}
        self._records: list[Record] = []
        self._path = self._folder

    @property
    def thread_counts(self) -> list[int]:
        """One thread, and all."""
        return sorted({1, self.num_threads})

    def target(
        self,
        model: str | None,
        shape: str | None,
        scheme: str | None,
        needs: Needs,
        kv_cache_dtype: KvDtype,
        weights: WeightPlacement,
    ) -> Target:
        """The model or shape that was asked for, its cache written.

        Raises :class:`InvalidParameterError` unless exactly one was, and what loading raises.
        """
        if (model is None) == (shape is None):
            problem = "both are given" if model else "one is needed"
            raise InvalidParameterError(f"bench {self.verb}: MODEL or --shape, {problem}")
        if shape is not None:
            with status(f"Making {shape}"):
                target = make_shape_target(
                    shape,
                    scheme or DEFAULT_SCHEME,
                    needs,
                    num_threads=self.num_threads,
                    kv_cache_dtype=kv_cache_dtype,
                )
        else:
            assert model is not None
            if scheme is not None:
                raise InvalidParameterError(
                    f"--scheme {scheme}: is for --shape; the weights of a model are as stored"
                )
            path = fetch(model)
            bar = LoadBar(model)
            try:
                target = load_model_target(
                    path,
                    model,
                    needs,
                    num_threads=self.num_threads,
                    kv_cache_dtype=kv_cache_dtype,
                    weights=weights,
                    progress=bar.advance,
                )
            finally:
                bar.finish()
        prepare(target)
        return target

    def measure_target(self, target: Target, cases: Sequence[Case]) -> None:
        """Measures ``cases`` with the target's own threads."""
        limits = Limits(target.executor.threads)
        facts = target_facts(target)
        self._measure(f"{target.name}, {counted(self.num_threads, 'thread')}", cases, limits, facts)

    def measure(
        self,
        title: str,
        cases: Sequence[Case],
        num_threads: int,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Measures ``cases``, which have ``num_threads`` threads of their own."""
        if num_threads not in self._limits:
            self._limits[num_threads] = Limits(thread_team(num_threads))
        limits = self._limits[num_threads]
        self._measure(f"{title}, {counted(num_threads, 'thread')}", cases, limits, facts or {})

    def measure_barrier(self, num_threads: int) -> None:
        """What ``num_threads`` threads spend between two instructions."""
        before = CpuTime.now()
        seconds = Spread.of(barrier_seconds(thread_team(num_threads)))
        record = {
            **head(self.verb),
            "case": "barrier",
            "part": "barrier",
            "threads": num_threads,
            "seconds": seconds.as_json(),
            **run_facts(before),
        }
        self._path = append([record], self._folder)
        self._records.append(record)
        if not self._json:
            print_barrier(counted(num_threads, "thread"), seconds)

    def _measure(
        self, title: str, cases: Sequence[Case], limits: Limits, facts: Mapping[str, Any]
    ) -> None:
        before = CpuTime.now()
        with status(title) as progress:
            measurements = measure(cases, limits, self.rounds, progress)
        facts = {**facts, **run_facts(before)}
        records = [record_of(m, self.verb, limits.num_threads, facts) for m in measurements]
        self._path = append(records, self._folder)
        self._records += records
        if not self._json:
            print_measurements(title, measurements)

    def finish(self) -> None:
        """Prints what ``--json`` asked for, and says where the results are."""
        if self._json:
            write_json(self._records)
        say_where(len(self._records), self._path)


def open_folder(output: str | None) -> Path:
    """The folder for results, which can be made and written to; ``output`` is the user's wish.

    Nothing stays behind: who appends the first result makes it. Raises ``OSError`` naming it.
    """
    from farthing.download.settings import DownloadSettings

    home = DownloadSettings.from_environment().home
    folder = Path(output).expanduser() if output is not None else results_folder(home)
    made: list[Path] = []
    try:
        for part in (*reversed(folder.parents), folder):
            if not part.is_dir():
                part.mkdir()
                made.append(part)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError as error:
        raise NotADirectoryError(ENOTDIR, "is not a folder", str(part)) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        for part in reversed(made):
            with contextlib.suppress(OSError):  # another run has written there meanwhile
                part.rmdir()
    return folder
