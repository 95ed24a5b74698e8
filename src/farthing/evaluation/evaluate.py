"""What models are worth beside a reference, through the kernels, weights and KV type that serve.

One model is in memory at a time. The reference runs first and leaves behind what the others are
compared with: the hidden states that predict the text, a few kilobytes a token on disk, the tokens
of its greedy paths, its answers. Each candidate then runs beside the reference's output projection
alone, which makes logits of those states (``engine/logit_head.py``), and is freed before the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from farthing import machine
from farthing.engine.logit_head import LogitHead
from farthing.engine.model_loader import LoadedModel, LoadOptions, load_model
from farthing.evaluation.answers import answer_params
from farthing.evaluation.battery import Battery
from farthing.evaluation.calibration import require_other_text
from farthing.evaluation.candidates import REFERENCE, Candidate, as_reference, of_schemes, ready
from farthing.evaluation.divergence import Scores
from farthing.evaluation.measurement import Instruments, Measurement, ReferenceRun
from farthing.evaluation.observer import Observer
from farthing.evaluation.paths import Paths
from farthing.evaluation.perplexity import LOGIT_ROWS, Truth
from farthing.evaluation.scratch import scratch_folder
from farthing.evaluation.settings import Settings
from farthing.evaluation.states import StateFile
from farthing.evaluation.task import Task, make_task
from farthing.evaluation.text import Windows
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from farthing.program.kv_types import KvDtype
from farthing.program.native import FloatMode
from farthing.quantization.rounding import RoundingMethod

ROWS = 512
"""Rows of a pass, as when serving."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that were taken, the most at a time."""

    model_weights: int
    reference_weights: int = 0  # freed before the first candidate is loaded
    reference_head: int = 0
    states_on_disk: int = 0
    peak_resident: int = 0  # of the process, mapped files included


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What was found, token by token."""

    windows: Windows
    bytes_scored: int
    paths: Paths | None
    reference: Measurement | None
    reference_is: str | None  # in words
    candidates: tuple[Measurement, ...]
    memory: Memory


def evaluate(
    model: Path,
    text: str,
    *,
    schemes: Sequence[str] = (),
    reference: Path | None = None,
    battery: Battery | None = None,
    method: RoundingMethod = "weighted",
    settings: Settings,
    observer: Observer,
    text_name: str = "the text",
) -> Evaluation:
    """Measures the model at ``model``, or what it becomes in each of ``schemes``.

    They are compared with the model at ``reference``; without one, what ``schemes`` make of a model
    is with the values that its file has. ``text_name`` is what errors call the text. Raises
    :class:`InvalidParameterError` for schemes that cannot be, a text too short or a reference of
    another vocabulary, and what loading or packing a model raises.
    """
    answer_params(settings.repetition_penalty)  # refused before anything is loaded
    source = _open(model)
    candidates = of_schemes(source, schemes) if schemes else [Candidate.of_files(model)]
    truth, opened, words = None, None, None
    if reference is not None:
        truth, opened, words = Candidate(REFERENCE, reference), _open(reference), str(reference)
    elif schemes:
        truth, opened, words = as_reference(source), source, "the file's own values"
        if truth.half:
            words += " as fp16"
        observer.note(f"The reference is {words}")
    for each in (source,) if opened in (None, source) else (source, opened):
        require_other_text(each, text, text_name, observer.note)
    task = make_task(source, opened, text, text_name, battery, settings)
    del source, opened  # they hold files open
    packs = any(each.scheme is not None for each in candidates)
    with scratch_folder() if packs else contextlib.nullcontext(Path()) as scratch:
        run = _Run(task, settings, method, observer, scratch)
        if truth is None:
            paths, measured, found = None, None, run.measure(candidates)
        else:
            paths, measured, found = run.against(truth, candidates)
        memory = replace(run.memory, peak_resident=machine.peak_resident_bytes())
    return Evaluation(task.windows, task.bytes_scored, paths, measured, words, tuple(found), memory)


def _open(path: Path, *, half: bool = False) -> Checkpoint:
    with FloatMode():
        checkpoint = open_checkpoint(path, FAMILIES)
        return checkpoint.as_half(build_program(checkpoint.config)) if half else checkpoint


class _Run:
    """Models one after the other."""

    def __init__(
        self,
        task: Task,
        settings: Settings,
        method: RoundingMethod,
        observer: Observer,
        scratch: Path,
    ) -> None:
        self.memory = Memory(0)
        self._task = task
        self._settings = settings
        self._method = method
        self._observer = observer
        self._scratch = scratch
        self._instruments = Instruments(task, settings, observer)

    def against(
        self, reference: Candidate, candidates: Sequence[Candidate]
    ) -> tuple[Paths | None, Measurement, list[Measurement]]:
        """The reference's paths, what it did itself, and what the candidates did beside it."""
        width = _open(reference.path).config.hidden_size
        with StateFile(self._task.windows.targets.size, width) as states:
            self._observer.note(
                f"The reference's hidden states take {states.nbytes / 2**20:,.1f} MiB of disk "
                f"in {states.folder} until the end"
            )
            with self._loaded(reference, "fp32") as loaded:
                run = self._instruments.run_reference(reference.name, loaded, states)
            del loaded  # which keeps the file's pages
            head = LogitHead(
                _open(reference.path, half=reference.half),
                max_rows=LOGIT_ROWS,
                num_threads=self._settings.num_threads,
            )
            self.memory = replace(
                self.memory,
                reference_weights=run.size.weights,
                reference_head=head.weight_bytes,
                states_on_disk=states.nbytes,
            )
            found = self.measure(candidates, Truth(head, states), run.paths)
        return run.paths, _reference(reference, run, found[0].scores), found

    def measure(
        self,
        candidates: Sequence[Candidate],
        truth: Truth | None = None,
        paths: Paths | None = None,
    ) -> list[Measurement]:
        """Each of the candidates."""
        found: list[Measurement] = []
        for each in candidates:
            with self._loaded(each, self._settings.kv_cache_dtype) as loaded:
                found.append(
                    self._instruments.measure(each.name, each.scheme, loaded, truth, paths)
                )
            del loaded  # which keeps the file's pages
            most = max(self.memory.model_weights, found[-1].size.weights)
            self.memory = replace(self.memory, model_weights=most)
        return found

    @contextlib.contextmanager
    def _loaded(self, candidate: Candidate, kv_cache_dtype: KvDtype) -> Iterator[LoadedModel]:
        """The candidate in memory, packed first where it has to be."""
        name = candidate.name
        options = LoadOptions(
            kv_cache_dtype=kv_cache_dtype,
            max_model_len=self._task.context,
            num_threads=self._settings.num_threads,
            max_num_batched_tokens=ROWS,
            kv_cache_tokens=self._task.cached_tokens,
            half=candidate.half,
        )
        with ready(
            candidate,
            self._scratch,
            method=self._method,
            num_threads=self._settings.num_threads,
            note=self._observer.note,
            told=lambda done, total: self._observer.running(name, "packing", done, total, ""),
        ) as path:
            loaded = load_model(
                path,
                options,
                lambda done, total: self._observer.running(name, "loading", done, total, ""),
            )
            try:
                yield loaded
            finally:
                loaded.runner.close()  # at once, whoever still refers to it


def _reference(reference: Candidate, run: ReferenceRun, scores: Scores) -> Measurement:
    """The reference as one of the models. ``scores`` are a candidate's."""
    assert scores.reference_nll is not None
    assert scores.reference_right is not None
    return Measurement(
        reference.name,
        reference.scheme,
        run.size,
        Scores(scores.reference_nll, scores.reference_right),
        None if run.paths is None else run.paths.said,
        run.answers,
        run.answers_with_penalty,
        run.speed,
    )
