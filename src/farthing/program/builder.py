"""Writes a :class:`Program` operation by operation, checking widths and weight shapes as it goes.

A mistake in a model's file is raised where it is made, with the operation and both widths.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

from farthing.config import Activation, Rope
from farthing.errors import InvalidParameterError
from farthing.program.ops import (
    Add,
    Attention,
    Embed,
    Gated,
    HiddenRows,
    Linear,
    LogitRows,
    Moe,
    Op,
    Program,
    RmsNorm,
    Rows,
    Scale,
    Softcap,
    Tap,
    Value,
    ValueOp,
    WeightSlot,
)


class ProgramBuilder:
    """Collects operations; each method appends one and returns its value.

    ``taps`` chooses which :meth:`tap` points become operations: none (for serving), all, or those
    named. Every method raises :class:`InvalidParameterError` when shapes do not fit.
    """

    def __init__(self, *, taps: bool | Collection[str] = False) -> None:
        self._taps = taps
        self._tap_points: list[str] = []
        self._ops: list[Op] = []
        self._values: list[Value] = []
        self._weights: dict[str, WeightSlot] = {}
        self._num_layers = 0

    def embed(self, table: WeightSlot) -> Value:
        """Rows of ``table`` (vocab, width) named by the step's tokens."""
        _, width = self._weight("embed", table, 2)
        return self._append(Embed(self._value(Rows.TOKENS, width), table.name))

    def rms_norm(self, x: Value, weight: WeightSlot, eps: float) -> Value:
        """Root-mean-square norm of each row, times ``weight`` (width,)."""
        self._check_value("rms_norm", x)
        (width,) = self._weight("rms_norm", weight, 1)
        self._check_width("rms_norm", x.width, weight.name, width)
        return self._append(RmsNorm(self._value(x.rows, width), x, weight.name, eps))

    def linear(
        self,
        x: Value,
        *weights: WeightSlot,
        biases: Sequence[WeightSlot | None] | None = None,
        add: Value | None = None,
    ) -> Value:
        """``x`` times each of ``weights`` (outputs, inputs), side by side; then ``+ add``.

        ``biases``: one (outputs,) vector or None for each weight; None stands for no biases.
        """
        self._check_value("linear", x)
        if not weights:
            self._fail("linear", "needs at least one weight")
        if biases is None:
            biases = [None] * len(weights)
        if len(biases) != len(weights):
            self._fail("linear", f"{len(biases)} biases for {len(weights)} weights")
        width = 0
        for weight, bias in zip(weights, biases, strict=True):
            outputs, inputs = self._weight("linear", weight, 2)
            self._check_width("linear", x.width, weight.name, inputs)
            if bias is not None:
                (bias_width,) = self._weight("linear", bias, 1)
                self._check_width("linear", outputs, bias.name, bias_width)
            width += outputs
        self._check_add("linear", x.rows, width, add)
        names = tuple(weight.name for weight in weights)
        bias_names = tuple(None if bias is None else bias.name for bias in biases)
        return self._append(Linear(self._value(x.rows, width), x, names, bias_names, add))

    def attention(
        self,
        qkv: Value,
        *,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rope: Rope | None,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
        q_norm: WeightSlot | None = None,
        k_norm: WeightSlot | None = None,
        norm_eps: float = 0.0,
    ) -> Value:
        """Norms, rope, KV store and causal attention of ``layer`` (from 0, each once, in order).

        ``scale`` multiplies the scores, ``head_dim ** -0.5`` unless given. ``q_norm`` and
        ``k_norm`` are as wide as one head or as all query or key heads. ``window``: positions that
        a row sees, its own included.
        """
        self._check_value("attention", qkv)
        if num_heads < 1 or num_kv_heads < 1 or num_heads % num_kv_heads:
            self._fail("attention", f"{num_heads} heads cannot share {num_kv_heads} kv heads")
        wanted = (num_heads + 2 * num_kv_heads) * head_dim
        self._check_width("attention", qkv.width, "q, k and v heads together", wanted)
        if layer != self._num_layers:
            self._fail("attention", f"layer {layer} follows {self._num_layers} layer(s)")
        if rope is not None:
            self._check_rope(rope, head_dim)
        for norm, heads in ((q_norm, num_heads), (k_norm, num_kv_heads)):
            if norm is not None:
                (width,) = self._weight("attention", norm, 1)
                if width not in (head_dim, heads * head_dim):
                    wanted_widths = f"{head_dim} or {heads * head_dim}"
                    self._fail("attention", f"{norm.name} is {width} wide, wanted {wanted_widths}")
        for name, number in (("window", window), ("softcap", softcap)):
            if number is not None and number <= 0:
                self._fail("attention", f"{name} {number}: must be positive, or None for no {name}")
        self._num_layers += 1
        out = self._value(qkv.rows, num_heads * head_dim)
        return self._append(
            Attention(
                out,
                qkv,
                layer,
                num_heads,
                num_kv_heads,
                head_dim,
                scale=head_dim**-0.5 if scale is None else scale,
                rope=rope,
                window=window,
                softcap=softcap,
                q_norm=None if q_norm is None else q_norm.name,
                k_norm=None if k_norm is None else k_norm.name,
                norm_eps=norm_eps if q_norm is not None or k_norm is not None else 0.0,
            )
        )

    def _check_rope(self, rope: Rope, head_dim: int) -> None:
        if rope.dim < 2 or rope.dim % 2 or rope.dim > head_dim:
            self._fail("attention", f"rope.dim {rope.dim}: not an even number up to {head_dim}")
        scaling = rope.scaling
        if scaling is None:
            return
        if scaling.kind == "longrope":
            self._fail("attention", "rope.scaling longrope: not yet fixed by Rope.at_context")
        if scaling.kind == "factors" or scaling.factors:
            width = len(scaling.factors)
            self._check_width("attention", rope.dim // 2, "rope.scaling.factors", width)

    def gated(self, x: Value, activation: Activation = "silu") -> Value:
        """``act(first half of x) * second half``."""
        self._check_value("gated", x)
        if x.width % 2:
            self._fail("gated", f"input is {x.width} wide, which does not halve")
        return self._append(Gated(self._value(x.rows, x.width // 2), x, activation))

    def moe(
        self,
        x: Value,
        router: WeightSlot,
        gate: Sequence[WeightSlot],
        up: Sequence[WeightSlot],
        down: Sequence[WeightSlot],
        *,
        top_k: int,
        normalize: bool,
        activation: Activation = "silu",
        add: Value | None = None,
    ) -> Value:
        """Mixture of gated experts, then ``+ add``.

        ``router`` (experts, width); of each expert ``gate`` and ``up`` (inner, width) and ``down``
        (width, inner), experts of one size.
        """
        self._check_value("moe", x, Rows.TOKENS)
        experts, router_width = self._weight("moe", router, 2)
        self._check_width("moe", x.width, router.name, router_width)
        if not experts == len(gate) == len(up) == len(down):
            self._fail(
                "moe",
                f"router of {experts} experts, {len(gate)} gates, {len(up)} ups, {len(down)} downs",
            )
        if not 1 <= top_k <= experts:
            self._fail("moe", f"top_k {top_k}: must be from 1 to the {experts} experts")
        width, inner = self._weight("moe", down[0], 2)
        stacks = ((gate, (inner, x.width)), (up, (inner, x.width)), (down, (width, inner)))
        for stack, shape in stacks:
            for weight in stack:
                if self._weight("moe", weight, 2) != shape:
                    self._fail("moe", f"{weight.name} has shape {weight.shape}, wanted {shape}")
        self._check_add("moe", x.rows, width, add)
        out = self._value(x.rows, width)
        gates, ups, downs = (tuple(weight.name for weight in stack) for stack, _ in stacks)
        return self._append(
            Moe(out, x, router.name, gates, ups, downs, inner, top_k, normalize, activation, add)
        )

    def add(self, a: Value, b: Value) -> Value:
        """``a + b``."""
        self._check_value("add", a)
        self._check_add("add", a.rows, a.width, b)
        return self._append(Add(self._value(a.rows, a.width), a, b))

    def scale(self, x: Value, factor: float) -> Value:
        """``x * factor``."""
        self._check_value("scale", x)
        return self._append(Scale(self._value(x.rows, x.width), x, factor))

    def softcap(self, x: Value, cap: float) -> Value:
        """``cap * tanh(x / cap)``."""
        self._check_value("softcap", x)
        if cap <= 0:
            self._fail("softcap", f"cap {cap}: must be positive")
        return self._append(Softcap(self._value(x.rows, x.width), x, cap))

    def logit_rows(self, x: Value) -> Value:
        """The rows of ``x`` (T, width) that need logits: (R, width)."""
        self._check_value("logit_rows", x, Rows.TOKENS)
        return self._append(LogitRows(self._value(Rows.LOGITS, x.width), x))

    def hidden_rows(self, x: Value) -> Value:
        """The rows of ``x`` (T, width) asked for as hidden states: (H, width). At most once."""
        self._check_value("hidden_rows", x, Rows.TOKENS)
        if any(isinstance(op, HiddenRows) for op in self._ops):
            self._fail("hidden_rows", "a program hands out one hidden state")
        return self._append(HiddenRows(self._value(Rows.HIDDEN, x.width), x))

    def tap(self, x: Value, name: str) -> None:
        """Marks ``x`` as observable under ``name``; an operation only if ``taps`` asked for it."""
        self._check_value("tap", x)
        if name in self._tap_points:
            self._fail("tap", f"two taps named {name!r}")
        self._tap_points.append(name)
        if self._taps is True or (self._taps is not False and name in self._taps):
            self._ops.append(Tap(x, name))

    def finish(self, output: Value) -> Program:
        """The program whose logits (R, vocab) are ``output``."""
        self._check_value("finish", output, Rows.LOGITS)
        if not isinstance(self._taps, bool):
            unknown = sorted(set(self._taps) - set(self._tap_points))
            if unknown:
                self._fail(
                    "finish", f"no tap named {unknown[0]!r}; taps: {', '.join(self._tap_points)}"
                )
        return Program(tuple(self._ops), tuple(self._values), tuple(self._weights.values()), output)

    def _value(self, rows: Rows, width: int) -> Value:
        value = Value(len(self._values), rows, width)
        self._values.append(value)
        return value

    def _append(self, op: ValueOp) -> Value:
        self._ops.append(op)
        return op.out

    def _weight(self, op: str, slot: WeightSlot, ndim: int) -> tuple[int, ...]:
        """Records ``slot`` on first use; returns its shape."""
        if len(slot.shape) != ndim or min(slot.shape) < 1:
            self._fail(op, f"{slot.name} has shape {slot.shape}, wanted {ndim} dimension(s)")
        known = self._weights.setdefault(slot.name, slot)
        if known.shape != slot.shape:
            self._fail(op, f"{slot.name} has shape {slot.shape} here and {known.shape} before")
        return slot.shape

    def _check_value(self, op: str, x: Value, rows: Rows | None = None) -> None:
        if not (x.id < len(self._values) and self._values[x.id] is x):
            self._fail(op, f"{x} belongs to another program")
        if rows is not None and x.rows is not rows:
            self._fail(op, f"input has {x.rows.value} rows, wanted {rows.value}")

    def _check_width(self, op: str, width: int, other: str, other_width: int) -> None:
        if width != other_width:
            self._fail(op, f"input is {width} wide, {other} takes {other_width}")

    def _check_add(self, op: str, rows: Rows, width: int, add: Value | None) -> None:
        if add is None:
            return
        self._check_value(op, add)
        if (add.rows, add.width) != (rows, width):
            self._fail(
                op,
                f"cannot add ({add.rows.value}, {add.width}) to ({rows.value}, {width})",
            )

    def _fail(self, op: str, problem: str) -> NoReturn:
        raise InvalidParameterError(f"{op} (operation {len(self._ops)}): {problem}")
