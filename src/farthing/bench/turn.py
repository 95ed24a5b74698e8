"""One turn of a comparison: a process that loads a model, measures one phase and ends.

    python -m farthing.bench.turn '{"model": "m.gguf", "phase": "prefill", ...}'

Prints tokens a second by name as JSON. Errors of use: one line on stderr, exit status 2.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from farthing.engine.block_pool import BLOCK_TOKENS, blocks_for
from farthing.errors import FarthingError
from farthing.program.kv_types import KvDtype
from farthing.sampling.params import SamplingParams

if TYPE_CHECKING:
    from farthing.llm import LLM

Phase = Literal["prefill", "decode", "batch"]
PHASES: tuple[Phase, ...] = ("prefill", "decode", "batch")


@dataclass(frozen=True, slots=True)
class Turn:
    """What both programs do in a phase. Counts of tokens."""

    model: str
    phase: Phase
    threads: int
    kv_cache_dtype: KvDtype = "fp16"
    prompt: int = 512  # prefill
    depth: int = 64  # decode: tokens before the first that is timed
    new: int = 128  # decode
    batch: tuple[int, ...] = (8, 16, 32)
    batch_prompt: int = 16
    batch_new: int = 32

    @property
    def names(self) -> list[str]:
        """What rates the turn gives, by name."""
        return [f"batch {n}" for n in self.batch] if self.phase == "batch" else [self.phase]


def play(turn: Turn) -> dict[str, float]:
    """Tokens a second by name, after a warm-up; raises what :class:`LLM` raises."""
    from farthing.llm import LLM

    sequences = max(turn.batch) if turn.phase == "batch" else 1
    longest = {
        "prefill": turn.prompt + 1,
        "decode": turn.depth + turn.new + 1,
        "batch": turn.batch_prompt + turn.batch_new + 1,
    }[turn.phase]
    llm = LLM(
        Path(turn.model),
        num_threads=turn.threads,
        kv_cache_dtype=turn.kv_cache_dtype,
        max_model_len=longest,
        kv_cache_tokens=sequences * blocks_for(longest) * BLOCK_TOKENS,
        max_num_seqs=sequences,
        enable_prefix_caching=False,  # the warm-up reads the same prompt
        max_num_batched_tokens=max(512, sequences * turn.batch_prompt),
    )
    if turn.phase == "prefill":
        _prefill(llm, turn.prompt)
        return {"prefill": _prefill(llm, turn.prompt)}
    if turn.phase == "decode":
        _decode(llm, 1, turn.depth, 2)
        return {"decode": _decode(llm, 1, turn.depth, turn.new)}
    _decode(llm, sequences, turn.batch_prompt, 2)
    return {f"batch {n}": _decode(llm, n, turn.batch_prompt, turn.batch_new) for n in turn.batch}


def _prefill(llm: LLM, length: int) -> float:
    """Tokens of a prompt by the seconds to the first token of its answer."""
    (output,) = llm.generate(_prompt(llm, 0, length), _greedy(1))
    assert output.metrics.cached_tokens == 0, "a prompt that is found is not read"
    return length / output.metrics.prefill_seconds


def _decode(llm: LLM, sequences: int, depth: int, new: int) -> float:
    """``new`` tokens of each sequence by the seconds from the first token to the last."""
    prompts = [_prompt(llm, i * depth, depth) for i in range(sequences)]
    outputs = llm.generate(prompts, _greedy(new + 1))
    return sequences * new / max(output.metrics.decode_seconds for output in outputs)


def _prompt(llm: LLM, first: int, length: int) -> list[int]:
    return [7919 * i % llm.config.vocab_size for i in range(first, first + length)]


def _greedy(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)


def play_in_new_process(turn: Turn) -> dict[str, float]:
    """As :func:`play`, in a process that ends with it.

    Raises :class:`FarthingError` with the child's line when it fails.
    """
    command = [sys.executable, "-m", "farthing.bench.turn", json.dumps(asdict(turn))]
    child = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines() or [f"exit status {child.returncode}"]
        raise FarthingError(f"{turn.phase} of {turn.model}: {lines[-1]}")
    rates: dict[str, float] = json.loads(child.stdout)
    return rates


def main() -> None:
    """The child."""
    given = json.loads(sys.argv[1])
    try:
        rates = play(Turn(**{**given, "batch": tuple(given["batch"])}))
    except FarthingError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
