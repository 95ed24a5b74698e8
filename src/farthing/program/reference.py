"""NumPy float64 executor: the definition of every operation, written to be read, not to be fast.

It shares no layout or packing code with the native executor. All arithmetic is float64; the only
rounding is that of stored keys and values, and only when ``kv_dtype`` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from farthing.config import Rope
from farthing.errors import InvalidParameterError
from farthing.program import ops
from farthing.program.kv_types import KV_SIDES, LARGEST_CODE, KvDtype, StoredAs
from farthing.program.step import BLOCK_TOKENS, NOT_FINITE, StepBatch, StepOutput

Float64 = NDArray[np.float64]
Index = NDArray[np.int64]
Weights = Callable[[str], NDArray[np.floating]]
"""Gives a weight by name, in any floating-point type, each time it is used."""

STORES: dict[StoredAs | None, type[np.floating]] = {"fp32": np.float32, "fp16": np.float16}
"""Types that round as arrays do. What codes stand for is kept in float64."""

CHUNK_OUTPUTS = 8192
"""Outputs of a matrix held in float64 at a time, so that a real model runs in little memory."""


class ReferenceExecutor:
    """Plays ``program`` over its own KV store, which grows with the highest block in use.

    ``kv_dtype`` rounds stored keys and values, as a native cache of that type does: for ``int8``
    to a multiple, from -127 to 127, of the largest magnitude in the head's vector over 127; for
    ``int4`` the same with 7. None rounds nothing.
    """

    def __init__(
        self, program: ops.Program, weights: Weights, *, kv_dtype: KvDtype | None = None
    ) -> None:
        self.program = program
        self._weights = weights
        self._last_use = {
            x.id: index for index, op in enumerate(program.ops) for x in ops.inputs(op)
        }
        layers = [op for op in program.ops if isinstance(op, ops.Attention)]
        # One array a layer, (slots, kv heads, head dim); slot b * BLOCK_TOKENS + i is in block b.
        self._sides: tuple[StoredAs | None, StoredAs | None] = (
            (None, None) if kv_dtype is None else KV_SIDES[kv_dtype]
        )
        self._keys, self._values = (
            [
                np.zeros((0, op.num_kv_heads, op.head_dim), STORES.get(side, np.float64))
                for op in layers
            ]
            for side in self._sides
        )
        self._holds = np.zeros(0, np.int64)  # (slots,) the position a slot was stored for; -1: none

    def run(self, batch: StepBatch) -> StepOutput:
        """Stores k and v of every row and returns what the batch asks for, in float64.

        Raises :class:`InvalidParameterError` for arrays that contradict each other, a token outside
        the vocabulary, a slot written by two rows, or a context position that no step has stored;
        nothing is stored then.
        """
        batch.check()
        slots = self._claim(batch)
        env: dict[int, Float64] = {}
        hidden: Float64 | None = None
        taps: dict[str, Float64] = {}
        for index, op in enumerate(self.program.ops):
            if isinstance(op, ops.Tap):
                taps[op.name] = env[op.x.id]
            else:
                env[op.out.id] = self._compute(op, env, batch, slots)
            if isinstance(op, ops.HiddenRows):
                hidden = env[op.out.id]
            for x in ops.inputs(op):
                if self._last_use[x.id] == index and x != self.program.output:
                    env.pop(x.id, None)
        logits = env[self.program.output.id]
        kept = len(batch.logit_rows)
        return StepOutput(logits[:kept], _argmax(logits[kept:]), hidden, taps)

    def _compute(
        self, op: ops.ValueOp, env: dict[int, Float64], batch: StepBatch, slots: list[Index]
    ) -> Float64:
        match op:
            case ops.Embed():
                return _float64(self._weights(op.table)[batch.tokens])
            case ops.RmsNorm():
                return _rms_norm(env[op.x.id], self._weights(op.weight), op.eps)
            case ops.Linear():
                parts = [self._matrix(env[op.x.id], name) for name in op.weights]
                for part, bias in zip(parts, op.biases, strict=True):
                    part += 0 if bias is None else self._weights(bias)
                y = np.concatenate(parts, axis=-1)
                return y if op.add is None else y + env[op.add.id]
            case ops.Attention():
                return self._attention(op, env[op.qkv.id], batch, slots)
            case ops.Gated():
                return _gated(env[op.x.id], op.activation)
            case ops.Moe():
                y = self._moe(op, env[op.x.id])
                return y if op.add is None else y + env[op.add.id]
            case ops.Add():
                return env[op.a.id] + env[op.b.id]
            case ops.Scale():
                return env[op.x.id] * op.factor
            case ops.Softcap():
                return op.cap * np.tanh(env[op.x.id] / op.cap)
            case ops.LogitRows():
                rows = np.concatenate([batch.logit_rows, batch.argmax_rows])
                return _float64(env[op.x.id][rows])
            case ops.HiddenRows():
                return env[op.x.id][batch.hidden_rows]

    def _matrix(self, x: Float64, name: str) -> Float64:
        """``x @ weight.T``."""
        weight = self._weights(name)
        chunks = range(0, len(weight), CHUNK_OUTPUTS)
        parts = [x @ _float64(weight[i : i + CHUNK_OUTPUTS]).T for i in chunks]
        return np.concatenate(parts, axis=-1)

    def _attention(
        self, op: ops.Attention, qkv: Float64, batch: StepBatch, slots: list[Index]
    ) -> Float64:
        heads = qkv.reshape(len(qkv), -1, op.head_dim)
        q, k, v = np.split(heads, [op.num_heads, op.num_heads + op.num_kv_heads], axis=1)
        q, k = (
            self._head_norm(q, op.q_norm, op.norm_eps),
            self._head_norm(k, op.k_norm, op.norm_eps),
        )
        if op.rope is not None:
            q, k = _rotate(q, batch.positions, op.rope), _rotate(k, batch.positions, op.rope)
        k, v = (
            rounded_to_codes(x, LARGEST_CODE[side]) if side in LARGEST_CODE else x
            for x, side in zip((k, v), self._sides, strict=True)
        )
        keys, values = self._keys[op.layer], self._values[op.layer]
        out = np.empty_like(q)
        spans = list(zip(batch.row_offsets[:-1], batch.row_offsets[1:], slots, strict=True))
        for start, stop, context in spans:
            with np.errstate(over="ignore"):  # beyond float16 is infinity, as in a native cache
                keys[context[start - stop :]] = k[start:stop]
                values[context[start - stop :]] = v[start:stop]
        for start, stop, context in spans:
            past_k, past_v = _float64(keys[context]), _float64(values[context])
            position = batch.positions[start:stop, None]
            key_position = np.arange(len(context))
            seen = key_position <= position
            if op.window is not None:
                seen &= key_position > position - op.window
            for head in range(op.num_heads):
                kv_head = head // (op.num_heads // op.num_kv_heads)
                score = q[start:stop, head] @ past_k[:, kv_head].T * op.scale
                if op.softcap is not None:
                    score = op.softcap * np.tanh(score / op.softcap)
                weight = _softmax(np.where(seen, score, -np.inf))
                out[start:stop, head] = weight @ past_v[:, kv_head]
        return out.reshape(len(qkv), -1)

    def _head_norm(self, heads: Float64, name: str | None, eps: float) -> Float64:
        """RMS norm of (T, heads, head_dim): of each head, or of all heads of a row as one."""
        if name is None:
            return heads
        weight = self._weights(name)
        return _rms_norm(heads.reshape(len(heads), -1, len(weight)), weight, eps).reshape(
            heads.shape
        )

    def _moe(self, op: ops.Moe, x: Float64) -> Float64:
        probability = _softmax(self._matrix(x, op.router))
        chosen = np.argsort(-probability, axis=-1, kind="stable")[:, : op.top_k]  # ties: lower id
        weight = np.take_along_axis(probability, chosen, axis=-1)
        if op.normalize:
            weight = weight / weight.sum(axis=-1, keepdims=True)
        out = np.zeros((len(x), op.out.width))
        for expert in np.unique(chosen):
            rows, rank = np.nonzero(chosen == expert)
            gate, up = (self._matrix(x[rows], w[expert]) for w in (op.gate, op.up))
            y = _gated(np.concatenate([gate, up], axis=-1), op.activation)
            out[rows] += weight[rows, rank, None] * self._matrix(y, op.down[expert])
        return out

    def _claim(self, batch: StepBatch) -> list[Index]:
        """Slots of each sequence's whole context, position 0 to its last row; grows the store."""
        self._check_tokens(batch)
        slots = []
        for table, last in zip(batch.block_tables, batch.row_offsets[1:] - 1, strict=True):
            positions = np.arange(batch.positions[last] + 1)
            offsets = positions % BLOCK_TOKENS
            slots.append(table[positions // BLOCK_TOKENS].astype(np.int64) * BLOCK_TOKENS + offsets)
        self._grow(1 + max(int(context.max()) for context in slots))
        lengths = np.diff(batch.row_offsets)
        written = np.concatenate([c[-n:] for c, n in zip(slots, lengths, strict=True)])
        if len(np.unique(written)) != len(written):
            raise InvalidParameterError("block_tables: two rows of a step write the same slot")
        holds = self._holds.copy()
        holds[written] = batch.positions
        for sequence, context in enumerate(slots):
            missing = np.flatnonzero(holds[context] != np.arange(len(context)))
            if missing.size:
                raise InvalidParameterError(
                    f"block_tables: sequence {sequence} reads position {missing[0]}, which no step "
                    "has stored in its block"
                )
        self._holds = holds
        return slots

    def _check_tokens(self, batch: StepBatch) -> None:
        shapes = {slot.name: slot.shape for slot in self.program.weights}
        for op in self.program.ops:
            if isinstance(op, ops.Embed):
                vocab = shapes[op.table][0]
                outside = (batch.tokens < 0) | (batch.tokens >= vocab)
                if outside.any():
                    token = batch.tokens[outside][0]
                    raise InvalidParameterError(f"tokens: {token} is not in 0..{vocab - 1}")

    def _grow(self, num_slots: int) -> None:
        extra = num_slots - len(self._holds)
        if extra > 0:
            self._holds = np.concatenate([self._holds, np.full(extra, -1)])
            for store in (self._keys, self._values):
                store[:] = [np.pad(array, ((0, extra), (0, 0), (0, 0))) for array in store]


def _argmax(logits: Float64) -> NDArray[np.int32]:
    """The lowest id of each row's highest logit; NOT_FINITE for a NaN or no finite logit."""
    tokens = logits.argmax(axis=-1)
    usable = ~np.isnan(logits).any(axis=-1) & np.isfinite(logits).any(axis=-1)
    return np.where(usable, tokens, NOT_FINITE).astype(np.int32)


def inverse_frequencies(rope: Rope) -> Float64:
    """Radians per position of each rotated pair, (rope.dim / 2,).

    ``theta ** (-2 i / dim)`` (Su et al. 2021, section 3.2.2), then the scaling of
    :class:`~farthing.config.RopeScaling`. ``llama3`` looks at how often a wavelength fits into the
    original context: from ``high_freq_factor`` times up the frequency is kept, up to
    ``low_freq_factor`` times it is divided by ``factor``, in between the two are blended linearly.
    ``yarn`` blends between the pairs that fit ``beta_fast`` and ``beta_slow`` times, linearly in
    the index of the pair; those indices are rounded outwards if ``truncate``.
    """
    index = np.arange(rope.dim // 2)
    frequency: Float64 = rope.theta ** (-2 * index / rope.dim)
    scaling = rope.scaling
    if scaling is None:
        return frequency
    match scaling.kind:
        case "linear":
            return frequency / scaling.factor
        case "factors":
            return frequency / np.array(scaling.factors, np.float64)
        case "llama3":
            fits = scaling.original_context_length * frequency / (2 * np.pi)
            low, high = scaling.low_freq_factor, scaling.high_freq_factor
            kept: Float64 = np.clip((fits - low) / (high - low), 0, 1)
            return _float64(kept * frequency + (1 - kept) * frequency / scaling.factor)
        case "yarn":
            first, last = (
                rope.dim
                * np.log(scaling.original_context_length / (2 * np.pi * turns))
                / (2 * np.log(rope.theta))
                for turns in (scaling.beta_fast, scaling.beta_slow)
            )
            if scaling.truncate:
                first, last = np.floor(first), np.ceil(last)
            first, last = max(first, 0), min(last, rope.dim - 1)
            last += 0.001 * (first == last)
            divided = np.clip((index - first) / (last - first), 0, 1)
            return _float64(divided * frequency / scaling.factor + (1 - divided) * frequency)
        case "longrope":
            raise InvalidParameterError("rope.scaling longrope: not yet fixed by Rope.at_context")


def rounded_to_codes(heads: Float64, largest_code: int) -> Float64:
    """Code times scale of each number of (T, heads, head_dim); NaN where a head's are not finite.

    Codes are from ``-largest_code`` to ``largest_code``. Rounded as float32 numbers, which is what
    a native cache is given.
    """
    single = heads.astype(np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        largest = np.abs(single).max(axis=-1, keepdims=True)
        codes = np.rint(single * (np.float32(largest_code) / largest))
        scale = largest / np.float32(largest_code)
        rounded: Float64 = codes.astype(np.float64) * scale
    rounded[np.broadcast_to(largest < np.float32(1e-30), rounded.shape)] = 0
    rounded[~np.broadcast_to(np.isfinite(largest), rounded.shape)] = np.nan
    return rounded


def _rotate(heads: Float64, positions: NDArray[np.int32], rope: Rope) -> Float64:
    """Rotates pairs (i, i + dim / 2) of the first ``rope.dim`` of (T, heads, head_dim)."""
    half = rope.dim // 2
    angle = (positions[:, None] * inverse_frequencies(rope))[:, None, :]
    a, b = heads[..., :half], heads[..., half : rope.dim]
    magnitude = 1.0 if rope.scaling is None else rope.scaling.magnitude
    cos, sin = magnitude * np.cos(angle), magnitude * np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, heads[..., rope.dim :]], axis=-1)


def _rms_norm(x: Float64, weight: NDArray[np.floating], eps: float) -> Float64:
    return _float64(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight)


def _gated(x: Float64, activation: str) -> Float64:
    gate, up = np.split(x, 2, axis=-1)
    if activation == "silu":
        with np.errstate(over="ignore"):  # gate / infinity is the right 0
            return _float64(gate / (1 + np.exp(-gate)) * up)
    inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)  # Hendrycks and Gimpel 2016
    return _float64(0.5 * gate * (1 + np.tanh(inner)) * up)


def _softmax(x: Float64) -> Float64:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return _float64(e / e.sum(axis=-1, keepdims=True))


def _float64(array: NDArray[np.floating]) -> Float64:
    return array.astype(np.float64, copy=False)
