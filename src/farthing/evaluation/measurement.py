"""One model in memory under every instrument."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing import machine
from farthing.engine.model_loader import LoadedModel
from farthing.evaluation.answers import Answers, answer
from farthing.evaluation.divergence import Scores
from farthing.evaluation.observer import Observer
from farthing.evaluation.paths import Paths, greedy_paths, likeliest_tokens
from farthing.evaluation.perplexity import Truth, keep_states, score
from farthing.evaluation.settings import Settings
from farthing.evaluation.size import Size, size_of
from farthing.evaluation.speed import BATCHES, Speed, measure_speed
from farthing.evaluation.states import StateFile
from farthing.evaluation.statistics import exponential
from farthing.evaluation.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """What one model did. None: it was not asked."""

    name: str
    scheme: str | None  # that it was packed in for this
    size: Size
    scores: Scores
    tokens: NDArray[np.int32] | None  # likeliest at each position of the paths, (positions,)
    answers: Answers | None
    answers_with_penalty: Answers | None
    speed: Speed | None


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceRun:
    """What the reference did; its scores come with the first candidate's."""

    size: Size
    paths: Paths | None
    answers: Answers | None
    answers_with_penalty: Answers | None
    speed: Speed | None


class Instruments:
    """Puts models to a task; each is called by a name."""

    def __init__(self, task: Task, settings: Settings, observer: Observer) -> None:
        self._task = task
        self._settings = settings
        self._observer = observer

    def run_reference(self, name: str, loaded: LoadedModel, states: StateFile) -> ReferenceRun:
        """Fills ``states`` and walks the paths that the others are asked about."""
        task, settings = self._task, self._settings
        keep_states(
            loaded,
            task.windows,
            states,
            lambda done, total: self._observer.running(name, "text", done, total, ""),
        )
        paths = None
        if task.prompts is not None:
            paths = greedy_paths(
                loaded,
                task.prompts,
                positions=settings.positions,
                length=settings.path_tokens,
                ends=loaded.tokenizer.eos_token_ids,
                told=lambda done, total: self._observer.running(name, "paths", done, total, ""),
            )
        answers, with_penalty = self._answers(name, loaded)
        speed = self._speed(name, loaded)
        return ReferenceRun(size_of(loaded), paths, answers, with_penalty, speed)

    def measure(
        self,
        name: str,
        scheme: str | None,
        loaded: LoadedModel,
        truth: Truth | None,
        paths: Paths | None,
    ) -> Measurement:
        """All that is measured of a model, against ``truth`` and on ``paths`` if there are any."""
        settings = self._settings
        scores = score(
            loaded,
            self._task.windows,
            truth,
            settings.num_threads or machine.default_threads(),
            lambda done, total, scores: self._observer.running(
                name, "text", done, total, _so_far(scores)
            ),
        )
        tokens = None
        if paths is not None:
            tokens = likeliest_tokens(
                loaded,
                paths,
                lambda done, total: self._observer.running(name, "paths", done, total, ""),
            )
        answers, with_penalty = self._answers(name, loaded)
        speed = self._speed(name, loaded)
        return Measurement(
            name, scheme, size_of(loaded), scores, tokens, answers, with_penalty, speed
        )

    def _answers(self, name: str, loaded: LoadedModel) -> tuple[Answers | None, Answers | None]:
        """Without the repetition penalty, and with it if one is asked for."""
        battery, penalty = self._task.battery, self._settings.repetition_penalty

        def answered(penalty: float) -> Answers | None:
            if battery is None:
                return None
            suffix = "" if penalty == 1 else f"repetition penalty {penalty:g}"
            return answer(
                loaded,
                battery,
                penalty,
                lambda done, total: self._observer.running(name, "battery", done, total, suffix),
            )

        return answered(1.0), None if penalty == 1 else answered(penalty)

    def _speed(self, name: str, loaded: LoadedModel) -> Speed | None:
        if not self._settings.speed:
            return None
        return measure_speed(
            loaded,
            lambda batch: self._observer.running(name, "speed", batch, BATCHES[-1], ""),
        )


def _so_far(scores: list[Scores]) -> str:
    together = Scores.joined(scores)
    text = f"perplexity {exponential(float(together.nll.mean())):.4g}"
    if together.kl is not None:
        text += f", divergence {together.kl.mean():.4g}"
    return text
