"""llama.cpp's own benchmarks: where they are, and what they say."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farthing.bench.turn import Turn
from farthing.errors import FarthingError, InvalidParameterError
from farthing.program.kv_types import KV_SIDES, KvDtype, StoredAs

KV_TYPES: dict[StoredAs, str] = {"fp32": "f32", "fp16": "f16", "int8": "q8_0", "int4": "q4_0"}


def kv_options(dtype: KvDtype) -> list[str]:
    """The options of its programs for keys and values of our type."""
    keys, values = KV_SIDES[dtype]
    return ["-ctk", KV_TYPES[keys], "-ctv", KV_TYPES[values]]


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """Its programs. ``batched_bench`` is None where it was not built."""

    bench: Path
    batched_bench: Path | None

    @classmethod
    def find(cls, place: Path) -> LlamaCpp:
        """In a build or install folder, or beside the ``llama-bench`` given.

        Raises :class:`InvalidParameterError` naming ``place``.
        """
        bench = find_program(place, "llama-bench")
        batched = bench.parent / "llama-batched-bench"
        return cls(bench, batched if _runs(batched) else None)

    def play(self, turn: Turn) -> dict[str, float]:
        """Tokens a second by name, the same work as ``turn`` is for Farthing.

        One repetition after the program's own warm-up. Raises :class:`FarthingError` with the
        program's last line when it fails.
        """
        if turn.phase == "batch":
            return self._batches(turn)
        if turn.phase == "prefill":
            sizes = ["-p", turn.prompt, "-n", 0]
        else:
            sizes = ["-p", 0, "-n", turn.new, "-d", turn.depth]
        options = ["-m", turn.model, "-t", turn.threads, "-r", 1, *kv_options(turn.kv_cache_dtype)]
        output = _run(self.bench, [*options, "-o", "json", *sizes])
        try:
            return {turn.phase: _rate(json.loads(output)[0]["avg_ts"])}
        except (ValueError, LookupError, TypeError):
            raise FarthingError(f"{self.bench}: prints no JSON with avg_ts") from None

    def _batches(self, turn: Turn) -> dict[str, float]:
        assert self.batched_bench is not None, "asked before"
        context = max(turn.batch) * (turn.batch_prompt + turn.batch_new)
        options: list[object] = ["-m", turn.model, "-t", turn.threads, "-tb", turn.threads]
        options += ["-c", context, *kv_options(turn.kv_cache_dtype), "--output-format", "jsonl"]
        options += ["-npp", turn.batch_prompt, "-ntg", turn.batch_new]
        options += ["-npl", ",".join(map(str, turn.batch))]
        rates = {}
        for line in _run(self.batched_bench, options).splitlines():
            with contextlib.suppress(ValueError, LookupError, TypeError):  # what is no row
                row = json.loads(line)
                rates[f"batch {row['pl']}"] = _rate(row["speed_tg"])
        missing = [name for name in turn.names if name not in rates]
        if missing:
            raise FarthingError(f"{self.batched_bench}: prints no JSON line of {missing[0]}")
        return rates

    def describe(self) -> str:
        """Its version, as the program gives it, or its path where it gives none."""
        return version_of(self.bench)


def find_program(place: Path, name: str) -> Path:
    """``place`` itself, or the program called ``name`` in a build or install folder.

    Raises :class:`InvalidParameterError` naming ``place``.
    """
    if place.is_dir():
        candidates = [place / name, place / "bin" / name, place / "build" / "bin" / name]
    elif place.is_file():
        candidates = [place]
    else:
        raise InvalidParameterError(f"--llama-cpp {place}: no such folder or program")
    for candidate in candidates:
        if _runs(candidate):
            return candidate.absolute()
    raise InvalidParameterError(
        f"--llama-cpp {place}: must be {name}, or the folder of a llama.cpp build that has it"
    )


def version_of(program: Path) -> str:
    """What a program of llama.cpp says of its version, or its path where it says nothing."""
    child = _child([str(program), "--version"])
    lines = [line.strip() for line in (child.stdout + child.stderr).splitlines()]
    versions = [line for line in lines if line.startswith("version")]
    return f"llama.cpp {versions[0]}" if versions else str(program)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _run(program: Path, arguments: Sequence[object]) -> str:
    child = _child([str(program), *map(str, arguments)])
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines() or ["no message"]
        raise FarthingError(f"{program}: exit status {child.returncode}: {lines[-1]}")
    return child.stdout


def _child(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # llama.cpp prints pieces of tokens: no UTF-8 always
            command, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError as error:
        raise FarthingError(f"{command[0]}: {error.strerror}") from None


def _rate(value: Any) -> float:
    """Raises ``ValueError`` or ``TypeError`` for what is no number of tokens a second."""
    rate = float(value)
    if not 0 < rate < math.inf:
        raise ValueError(value)
    return rate
