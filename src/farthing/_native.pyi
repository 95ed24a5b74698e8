"""
Farthing's native code: kernels, packed matrices and the program player.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def rope_inverse_frequencies(theta: float, dim: int) -> NDArray[numpy.float64]:
    """
    theta^(-2i/dim) for i < dim/2, float64, the same bits on every machine.
    """

def rope_table(isa: str, positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], inv_freq: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], magnitude: float = 1.0) -> tuple:
    """cos and sin (positions, inv_freq), float32."""

def rope_rows(isa: str, heads: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu')], cos: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], sin: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None:
    """Rotates heads (tokens, heads, head_dim) in place."""

def attention_scratch_bytes(head_dim: int) -> int: ...

class TestPool:
    """The attention kernels over a KV pool held in NumPy bytes."""

    def __init__(self, isa: str, kv_type: str, layers: int, kv_heads: int, head_dim: int, pool: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    @property
    def blocks(self) -> int: ...

    def store(self, layer: int, block: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], slot: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], k: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)]) -> None: ...

    def attend(self, layer: int, block_table: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], position: int, q: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], scale: float, softcap: float, window: int, tiles: Sequence[int]) -> NDArray[numpy.float32]: ...

def rms_norm(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], eps: float) -> NDArray[numpy.float32]: ...

def gated(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], activation: str) -> NDArray[numpy.float32]: ...

def add(isa: str, a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]: ...

def scale(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], factor: float) -> NDArray[numpy.float32]: ...

def softcap(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], cap: float) -> NDArray[numpy.float32]: ...

def route(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], top_k: int, normalize: bool) -> tuple[NDArray[numpy.int32], NDArray[numpy.float32]]: ...

def combine(isa: str, y: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], add: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.float32]: ...

class FloatMode:
    """
    with FloatMode(): the calling thread rounds to nearest and keeps denormals, as the kernels do; its own mode comes back after.
    """

    def __init__(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> None: ...

def exp(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]: ...

def log(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]: ...

def tanh(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]: ...

def exp_double(isa: str, x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float64]: ...

def log_double(isa: str, x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float64]: ...

def sin_cos_double(isa: str, x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple: ...

class Matrix:
    """A weight matrix (rows, cols) in the packed layout, zero until packed."""

    def __init__(self, scheme: str, rows: int, cols: int, codebook: Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

    @staticmethod
    def from_packed(scheme: str, rows: int, cols: int, packed: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], codebook: Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> Matrix:
        """
        A matrix of what packed_bytes() gave, of which nothing is copied: the array is kept alive. Raises ValueError for a length or an alignment (64 bytes) that is not the layout's.
        """

    def pack(self, first_row: int, source: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)]) -> int:
        """
        Pack checkpoint bytes into rows first_row.. and return how many rows they were. Threads may pack disjoint rows at once. Raises ValueError for sizes that do not fit.
        """

    def pack_codes(self, first_row: int, codes: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order='C', device='cpu', writable=False)], minimums: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None) -> None:
        """
        Pack codes (n, cols) and the bits of fp16 scales and minimums (n, groups) into rows first_row... Symmetric codes have the zero point 2^(bits - 1). Raises ValueError for sizes that do not fit and codes of more bits.
        """

    def packed_bytes(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """
        The packed memory (nbytes), read-only and not copied; nothing may be packed while it is in use.
        """

    def first_nonfinite(self) -> tuple[int, int] | None:
        """
        (row, column) of a weight, or of the group of a scale or minimum, that is a NaN or an infinity; None if all are finite.
        """

    def dequantize(self, first: int, count: int, isa: str | None = None) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """
        Rows first.. as float32 (count, cols), bit for bit the checkpoint format's values.
        """

    @property
    def scheme(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def cols(self) -> int: ...

    @property
    def row_blocks(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def activation_group(self) -> int:
        """
        Columns that share a scale when activations become int8; 0: they stay float32.
        """

def schemes() -> list:
    """
    Weight schemes the kernels serve: name, alias, checkpoint block (0: in no checkpoint), bits of a code, group (columns that share a scale; 0: a row), scale levels, minimum, activation group (0: floats) and codebook.
    """

def first_nonfinite(scheme: str, source: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)]) -> int | None:
    """
    Byte of source, checkpoint bytes of a scheme, at which the first NaN or infinity starts, of weights or of scales and minimums; None if all are finite.
    """

def linear(matrix: Matrix, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], isa: str, *, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, add: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, splits: Sequence[tuple[int, int, int, int]] | None = None, in_place: bool = False, padding: int = 0) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
    """
    x (T, cols) @ matrix.T (+ bias) (+ add) -> (T, rows + padding), by the kernels of one instruction set. splits: (block_begin, block_end, row_begin, row_end) per kernel call; what no call writes stays NaN. in_place: add lies in the result's memory.
    """

def quantize_rows(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], group: int, isa: str) -> tuple:
    """
    x (T, cols) -> int8 codes (T, padded), scales (T, padded / group), sums (T, padded / 16). padded is cols filled up to whole groups and whole 32s; what is filled up is zero.
    """

def isa() -> str:
    """
    The instruction set in force. Raises RuntimeError if FARTHING_ISA cannot run here.
    """

def supported_isas() -> list[str]:
    """Instruction sets that CPU and operating system can run, best last."""

def read_bandwidth(bytes: int, threads: int, repeats: int) -> list[float]:
    """Sequential read bandwidth, 10^9 bytes a second of each repeat."""

class ThreadPool:
    def __init__(self, num_threads: int, spin: bool) -> None: ...

    @property
    def num_threads(self) -> int: ...

    @property
    def spin(self) -> bool: ...

class KvPool:
    def __init__(self, dtype: str, num_layers: int, num_kv_heads: int, head_dim: int, num_blocks: int) -> None: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def block_bytes(self) -> int: ...

class Program:
    def __init__(self, max_rows: int, isa: str) -> None: ...

    @property
    def max_rows(self) -> int: ...

    @property
    def workspace_bytes(self) -> int: ...

    def float_buffer(self, arg0: str, arg1: int, /) -> int: ...

    def int8_buffer(self, arg0: str, arg1: int, arg2: int, /) -> int: ...

    def output(self, arg0: str, arg1: int, /) -> int: ...

    def routing(self, num_experts: int, experts_per_token: int) -> None: ...

    def rope(self, inverse_frequencies: Sequence[float], magnitude: float) -> int: ...

    def embed(self, arg0: Matrix, arg1: int, /) -> None: ...

    def rms_norm(self, arg0: int, arg1: Sequence[float], arg2: float, arg3: int, arg4: Sequence[int], /) -> None: ...

    def quantize(self, arg0: int, arg1: Sequence[int], /) -> None: ...

    def linear(self, arg0: int, arg1: Sequence[tuple[Matrix, Sequence[float], int]], arg2: int, arg3: int, /) -> None: ...

    def attention(self, qkv: int, out: int, layer: int, num_heads: int, num_kv_heads: int, head_dim: int, scale: float, softcap: float, window: int, rope: int, q_norm: Sequence[float], k_norm: Sequence[float], norm_eps: float) -> None: ...

    def gated(self, arg0: int, arg1: str, arg2: int, arg3: Sequence[int], /) -> None: ...

    def head(self, arg0: int, arg1: Sequence[tuple[int, tuple[Matrix, Sequence[float], int]] | tuple[str, float]], arg2: int, /) -> None: ...

    def route(self, arg0: int, arg1: bool, arg2: int, /) -> None: ...

    def expert_linear(self, arg0: int, arg1: Sequence[tuple[Sequence[Matrix], int]], arg2: int, /) -> None: ...

    def combine(self, arg0: int, arg1: int, arg2: int, arg3: int, /) -> None: ...

    def add(self, arg0: int, arg1: int, arg2: int, /) -> None: ...

    def scale(self, arg0: int, arg1: float, arg2: int, /) -> None: ...

    def softcap(self, arg0: int, arg1: float, arg2: int, /) -> None: ...

    def copy_rows(self, arg0: int, arg1: int, /) -> None: ...

    def set_profiling(self, on: bool) -> None: ...

    def profile(self) -> list[tuple[str, int, float]]: ...

    def run(self, pool: ThreadPool, kv: KvPool, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], block_tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], logit_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], argmax_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], hidden_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], outputs: Sequence[Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]], argmax: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

class RowSampler:
    def __init__(self, pool: ThreadPool | None) -> None: ...

    def draw(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperatures: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], seeds: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], choices: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], allowed: Sequence[Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None], controls: Sequence[Controls | None]) -> NDArray[numpy.int32]:
        """
        Tokens of rows `rows` of logits (any, vocab); -1 where a logit is NaN or none is finite, -2 where nothing is allowed. allowed: a packed bit mask or None for each; controls: Controls or None for each.
        """

    def logprobs(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], chosen: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], counts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple:
        """
        (log probability of chosen (R,), its rank (R,), the counts[i] likeliest tokens and their log probabilities (R, max counts)) of rows `rows`; rank 0 where a logit is NaN or the highest is not finite. Tokens beyond counts[i] are -1.
        """

class SequenceBreakers:
    def __init__(self, vocab_size: int, sequences: Sequence[Sequence[int]]) -> None: ...

class Controls:
    """What a request's parameters do to its logits."""

    def __init__(self, vocab_size: int, prompt: Sequence[int], *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, typical_p: float = 1.0, repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0, dry_multiplier: float = 0.0, dry_base: float = 1.75, dry_allowed_length: int = 2, dry_last_n: int = -1, dry_breakers: SequenceBreakers | None = None, bias: Sequence[tuple[int, float]] = [], bad_words: Sequence[Sequence[int]] = [], end_tokens: Sequence[int] = [], min_tokens: int = 0) -> None: ...

    @property
    def num_generated(self) -> int: ...

    def append(self, token: int) -> None:
        """A token was generated."""

    def edits(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> list[tuple[int, float]]:
        """
        (token, value) of every token whose value may differ from its logit, ascending.
        """

def choose(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperature: float, seed: int = 0, choice: int = 0, position: int = 0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, typical_p: float = 1.0, allowed: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, edits: Sequence[tuple[int, float]] = []) -> int: ...

def greedy_by_pieces(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Sequence[int], apart: bool) -> int:
    """
    What choose gives a greedy row, from the pieces that end at `ends`: seen one after the other, or apart and then joined.
    """

def kept_tokens(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, typical_p: float = 1.0, allowed: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, edits: Sequence[tuple[int, float]] = []) -> NDArray[numpy.int32]:
    """Ids of the tokens that the filters leave, ascending."""

def row_logprobs(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], chosen: int, n: int) -> tuple[float, int, list[tuple[int, float]]]:
    """
    Log probability and rank of `chosen`, and the first n as (token, log probability).
    """

def log_sum_exp(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> float: ...

def gumbel(isa: str, seed: int, choice: int, position: int, first_token: int, count: int) -> NDArray[numpy.float32]: ...

def gumbel_of_words(isa: str, x: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], z: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]: ...

def philox(isa: str, key: int, counter: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], count: int) -> NDArray[numpy.uint32]: ...

class SentencePieceBpe:
    def __init__(self, pieces: Sequence[str], scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], kinds: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], bytes: Sequence[int], unknown: int, remove_extra_whitespaces: bool) -> None: ...

    def encode(self, text: str, prefix: bool) -> list[int]: ...
