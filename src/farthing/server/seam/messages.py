"""What server and engine say to each other: plain data.

A ``key`` is the server's number of a prompt with all its choices. Times are of the system's
monotonic clock (``time.monotonic``), which both processes read.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from farthing.engine.metrics import EngineLoad, EngineMetrics
from farthing.engine.outputs import Logprob, RequestOutput, StreamChunk
from farthing.openai_protocol.errors import RequestError
from farthing.sampling.params import SamplingParams

# To the engine.


@dataclass(frozen=True, slots=True)
class Submit:
    """A prompt to generate from; answered by :class:`Accepted` or :class:`Refused`."""

    key: int
    prompt_token_ids: array[int]
    params: SamplingParams
    stream: bool  # whether chunks are wanted as they come, or only the whole at the end
    user: str = ""
    priority: int = 0
    cache_salt: str | None = None
    timeout: float | None = None  # seconds from when it is read


@dataclass(frozen=True, slots=True)
class Abort:
    """Nobody waits for this any more: its blocks are free before the next step."""

    key: int


@dataclass(frozen=True, slots=True)
class AskMetrics:
    """To be answered by :class:`Metrics` with the same ticket."""

    ticket: int


@dataclass(frozen=True, slots=True)
class CheckIntegrity:
    """To be answered by :class:`Integrity`; for tests: it visits every block."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End all requests, save the prefix cache if it has a folder, and the process."""


ToEngine = Submit | Abort | AskMetrics | CheckIntegrity | Stop

# From the engine.


@dataclass(frozen=True, slots=True)
class Loading:
    """So many bytes of weights are in memory."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is the same for the life of an engine."""

    max_model_len: int  # tokens of one sequence
    vocab_size: int
    num_blocks: int  # of the KV cache
    block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    num_threads: int
    isa: str
    fingerprint: str  # of the numerics
    kv_cache_dtype: str
    weight_bytes: int  # that a pass reads
    prefix_caching: bool
    restored_tokens: int  # of the prefix cache's folder
    kv_block_bytes: int = 0  # of the KV cache
    read_bandwidth: float = 0.0  # bytes a second that memory gives; 0.0: not measured


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Accepted:
    """The prompt is queued; what follows comes with :class:`Stepped`."""

    key: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The prompt is not taken; nothing more comes of it."""

    key: int
    error: RequestError


@dataclass(frozen=True, slots=True)
class Stepped:
    """A turn of the loop, told at its end.

    A streamed prompt ends with the last of its choices' final chunks (those with a finish reason),
    another with its ``outputs``; either may end in ``failures`` instead.
    """

    started: float
    ended: float
    decode_rows: int
    prefill_rows: int
    num_running: int
    num_waiting: int
    # Key and number of each choice that ran for the first time; from 0, which reads the prompt.
    begun: tuple[tuple[int, int], ...]
    # Of each choice that had rows in it or ended: key, number, the tokens of the prompt that are
    # stored for it, the tokens it has so far, and whether it has ended.
    progress: tuple[tuple[int, int, int, int, bool], ...]
    chunks: tuple[tuple[int, StreamChunk], ...]
    outputs: tuple[tuple[int, RequestOutput], ...]
    failures: tuple[tuple[int, RequestError], ...]
    # As each pass finds them: those of a long prompt at once would hold up both processes. They go
    # before what a result has itself, and before the chunks.
    prompt_logprobs: tuple[tuple[int, list[dict[int, Logprob] | None]], ...] = ()


@dataclass(frozen=True, slots=True)
class Metrics:
    """The answer to :class:`AskMetrics`."""

    ticket: int
    metrics: EngineMetrics
    load: EngineLoad


@dataclass(frozen=True, slots=True)
class Integrity:
    """The answer to :class:`CheckIntegrity`. ``problem``: what is not accounted for, if anything.

    What is meant is that the four numbers agree, that every block is held as often as tables name
    it, and that requests are where their state says.
    """

    ticket: int
    free_blocks: int
    held_blocks: int
    cached_blocks: int
    num_blocks: int
    open_prompts: int  # that somebody waits for
    problem: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine cannot go on and ends. ``internal``: by a bug, not by what it was given."""

    message: str
    internal: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """All is saved; the process ends."""


FromEngine = Loading | Ready | Accepted | Refused | Stepped | Metrics | Integrity | Failed | Stopped
