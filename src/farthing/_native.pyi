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

    def __init__(self, isa: str, dtype: str, layers: int, kv_heads: int, head_dim: int, pool: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    @property
    def blocks(self) -> int: ...

    def store(self, layer: int, block: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], slot: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], k: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)]) -> None: ...

    def attend(self, layer: int, block_table: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], position: int, q: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], scale: float, softcap: float, window: int, tiles: Sequence[int], parts: int = 0) -> NDArray[numpy.float32]: ...

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

def limit_loops(isa: str) -> list:
    """
    Loops of multiply-adds over registers: name, whether of int8 (else fp32), multiply-adds an iteration, and what their sums count.
    """

def sum_limit_loop(isa: str, name: str, iterations: int) -> int:
    """The sum of all numbers the loop keeps, which tells that it computed."""

def time_limit_loop(isa: str, name: str, pool: ThreadPool, iterations: int, tiles: int) -> float:
    """Seconds that the pool's threads need for `tiles` of `iterations` each."""

class ReadRegion:
    """Memory that the threads of a pool wrote, and read from end to end."""

    def __init__(self, bytes: int, pool: ThreadPool) -> None: ...

    @property
    def nbytes(self) -> int: ...

    def read(self) -> float:
        """Read it once; 10^9 bytes a second."""

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

    def fill_packed(self, offset: int, packed: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Copy a part of what packed_bytes() gave to its place in this matrix. Threads may fill disjoint parts at once. Raises ValueError for bytes that are not within it.
        """

    def first_nonfinite(self) -> tuple[int, int] | None:
        """
        (row, column) of a weight, or of the group of a scale or minimum, that is a NaN or an infinity; None if all are finite.
        """

    def dequantize(self, first: int, count: int, isa: str | None = None) -> NDArray[numpy.float32]:
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

def row_block_bytes(scheme: str, cols: int) -> int:
    """
    Packed bytes of 16 rows of a matrix. Raises ValueError where the scheme has no such columns.
    """

def schemes() -> list:
    """
    Weight schemes the kernels serve: name, alias, checkpoint block (0: in no checkpoint), bits of a code, group (columns that share a scale; 0: a row), scale levels, minimum, activation group (0: floats) and codebook.
    """

def first_nonfinite(scheme: str, source: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)]) -> int | None:
    """
    Byte of source, checkpoint bytes of a scheme, at which the first NaN or infinity starts, of weights or of scales and minimums; None if all are finite.
    """

def linear(matrix: Matrix, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], isa: str, *, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, add: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, splits: Sequence[tuple[int, int, int, int]] | None = None, in_place: bool = False, padding: int = 0) -> NDArray[numpy.float32]:
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

def memory_nodes(status_file: str = '/proc/self/status') -> list[int]:
    """
    Memory nodes that the process may use, by the status file of one in /proc.
    """

def interleaved_policy(nodes: Sequence[int]) -> str:
    """
    What the system says of memory that is spread over the given nodes as weights are.
    """

def explain_bus_errors(message: str) -> None:
    """
    Let SIGBUS write the message to stderr before it ends the process, unless something else handles the signal.
    """

class KvPool:
    def __init__(self, dtype: str, num_layers: int, num_kv_heads: int, head_dim: int, num_blocks: int) -> None: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def block_bytes(self) -> int: ...

    def block(self, index: int) -> NDArray[numpy.uint8]: ...

    def copy_block(self, source: int, target: int) -> None: ...

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

    def attention(self, qkv: int, out: int, layer: int, num_heads: int, num_kv_heads: int, head_dim: int, scale: float, softcap: float, window: int, rope: int, q_norm: Sequence[float], k_norm: Sequence[float], norm_eps: float, rounded: Sequence[int]) -> None: ...

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

    def profile(self) -> list[tuple[str, int, float, int]]: ...

    def run(self, pool: ThreadPool, kv: KvPool, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], block_tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], logit_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], argmax_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], hidden_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], outputs: Sequence[Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]], argmax: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

def round_weights(values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], group: int, method: str, *, bits: int, minimum: bool = False, codebook: Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, reach: float | None = None, isa: str | None = None) -> tuple:
    """
    Finite float32 values (n, cols) to codes (n, cols) uint8, scales and minimums (n, groups) as the bits of fp16 (None without a minimum); with group 0 the matrix has one of each, (1, 1). method: 'absmax', a scale that clips nothing; 'mse', the least squared error found; 'weighted', the same, an error counting by the magnitude of its weight. reach: the level that 'absmax' gives the largest weight, by default the nearer end of the codebook. isa: the instruction set, by default the one in force. Raises ValueError where a scale does not fit fp16, naming the row.
    """

def nearest_codes(values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], group: int, *, bits: int, minimums: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, levels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.uint8]:
    """
    The codes (n, cols) nearest to finite values (n, cols) for scales and minimums (n, groups), or (1, 1) with group 0; levels: 16 ascending ones instead of whole numbers.
    """

def squared_error(values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], group: int, *, bits: int, minimums: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, levels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> tuple:
    """
    Sums in double of squared differences between values and what their codes stand for in float32, and of squared values; arguments as for nearest_codes.
    """

def value_range(values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> tuple:
    """The least and the largest of finite values."""

def level_sums(values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], group: int, by_magnitude: bool) -> NDArray[numpy.float64]:
    """
    What a codebook is chosen by: (509, 3) float64 sums of weight, weight * t and weight * t^2 over t = value / scale in bins of a half from -127 to 127. weight: scale squared, with by_magnitude times |value|.
    """

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

class ThreadPool:
    """
    Threads that play passes together, the caller's included. Of more threads than cpus only that many are awake at a time.
    """

    def __init__(self, num_threads: int, cpus: int) -> None: ...

    @property
    def num_threads(self) -> int: ...

    @property
    def cpus(self) -> int: ...

    @property
    def asleep(self) -> int:
        """Threads besides the caller's that sleep and use no CPU."""

def barrier_seconds(pool: ThreadPool, rounds: int) -> list[float]:
    """
    Seconds from the end of the last tile of a stage to the start of the last of the next, with one tile for each thread that has a CPU; one value for each of rounds barriers.
    """

def start_seconds(pool: ThreadPool, rounds: int, idle: float) -> list[float]:
    """
    Seconds from the start of a run to the start of its last thread, with idle seconds without work before it; one value for each of rounds runs.
    """

class SentencePieceBpe:
    def __init__(self, pieces: Sequence[str], scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], kinds: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], bytes: Sequence[int], unknown: int, remove_extra_whitespaces: bool) -> None: ...

    def encode(self, text: str, prefix: bool) -> list[int]: ...
