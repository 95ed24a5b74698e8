"""Farthing and llama.cpp in turns: A B A B, each turn a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farthing.bench.llama_cpp import LlamaCpp
from farthing.bench.records import Record, head, model_name
from farthing.bench.rounds import Spread
from farthing.bench.turn import PHASES, Phase, Turn, play_in_new_process
from farthing.errors import InvalidParameterError


@dataclass(slots=True)
class Comparison:
    """Tokens a second of both programs in one piece of work, round by round."""

    name: str  # "prefill", "decode", "batch 8"
    turn: Turn
    farthing: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> Spread:
        """Of the rounds' ratios: what a round does to one program it does to the other."""
        pairs = zip(self.farthing, self.peer, strict=True)
        return Spread.of([ours / theirs for ours, theirs in pairs])

    def record(self, peer_model: str, facts: dict[str, Any]) -> Record:
        """The line that is kept."""
        turn = self.turn
        sizes = {
            "prefill": {"prompt_tokens": turn.prompt},
            "decode": {"depth": turn.depth, "new_tokens": turn.new},
            "batch": {"prompt_tokens": turn.batch_prompt, "new_tokens": turn.batch_new},
        }[turn.phase]
        return {
            **head("compare"),
            "case": self.name,
            **sizes,
            "model": model_name(turn.model),
            "peer_model": model_name(peer_model),
            "kv_cache_dtype": turn.kv_cache_dtype,
            "threads": turn.threads,
            "rounds": len(self.farthing),
            "farthing_tokens_s": Spread.of(self.farthing).as_json(),
            "peer_tokens_s": Spread.of(self.peer).as_json(),
            "ratio": self.ratio.as_json(),
            "ratios": [o / t for o, t in zip(self.farthing, self.peer, strict=True)],
            **facts,
        }


def wanted_phases(text: str | None, llama_cpp: LlamaCpp) -> list[Phase]:
    """The phases named in ``text``, separated by commas; None: all that the build can do.

    Raises :class:`InvalidParameterError` for others.
    """
    can_batch = llama_cpp.batched_bench is not None
    if text is None:
        return [phase for phase in PHASES if phase != "batch" or can_batch]
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in PHASES]
    if unknown:
        raise InvalidParameterError(
            f"--phases {text!r}: {unknown[0]!r} must be one of {', '.join(PHASES)}"
        )
    if "batch" in names and not can_batch:
        raise InvalidParameterError(
            f"--phases {text}: batch needs llama-batched-bench beside {llama_cpp.bench}"
        )
    return [phase for phase in PHASES if phase in names]


def peer_file(model: Path, given: Path | None) -> Path:
    """The GGUF file that llama.cpp is to run; raises :class:`InvalidParameterError` if none."""
    path = given or model
    if path.is_file():
        return path
    if given is None:
        raise InvalidParameterError(
            f"MODEL {model}: llama.cpp reads GGUF files only; name one by --peer-model"
        )
    problem = "must be a GGUF file" if path.exists() else "no such file"
    raise InvalidParameterError(f"--peer-model {path}: {problem}")


def compare(
    turns: Sequence[tuple[Turn, Turn]],
    llama_cpp: LlamaCpp,
    rounds: int,
    progress: Callable[[str], None],
) -> list[Comparison]:
    """Plays each pair (Farthing's turn, the peer's) once a round, one after the other.

    ``progress`` is told what each turn gave. Raises :class:`FarthingError` when a turn fails.
    """
    comparisons = {name: Comparison(name, ours) for ours, _ in turns for name in ours.names}
    for number in range(rounds):
        for ours, theirs in turns:
            left, right = play_in_new_process(ours), llama_cpp.play(theirs)
            for name in ours.names:
                comparisons[name].farthing.append(left[name])
                comparisons[name].peer.append(right[name])
                progress(
                    f"round {number + 1} of {rounds}, {name}: farthing {left[name]:.1f}, "
                    f"llama.cpp {right[name]:.1f} tokens/s"
                )
    return list(comparisons.values())
