"""A model's weights for the reference executor: as they are, and with rounded activations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from farthing.models.checkpoint import PackedTensor
from farthing.program.reference import Weights
from farthing.program.weights import NativeWeight
from support.native_runs import NativeModel


class RoundsItsInput(np.ndarray[Any, np.dtype[np.floating]]):
    """A weight matrix whose product first rounds the activations to int8 by groups."""

    group = 0

    def __array_finalize__(self, source: object) -> None:
        self.group = getattr(source, "group", 0)

    def __getitem__(self, key: Any) -> Any:
        """Rows looked up by token are values, not a matrix to multiply by."""
        part = super().__getitem__(key)
        return part if isinstance(key, slice) else np.asarray(part)

    def __rmatmul__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        cols = x.shape[-1]
        filled = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -cols % self.group)])
        groups = filled.reshape(*x.shape[:-1], -1, self.group)
        scale = np.abs(groups).max(axis=-1, keepdims=True) / 127
        rounded = np.rint(groups / np.where(scale == 0, 1, scale)) * scale
        return np.asarray(rounded.reshape(filled.shape)[..., :cols] @ np.asarray(self))


def reference_weights(model: NativeModel) -> tuple[Weights, Weights]:
    """The exact weights of ``model``, and those whose products round their input as served."""

    def exact(name: str) -> NDArray[np.floating]:
        source, weight = model.tensors[name], model.weights[name]
        if not isinstance(source, PackedTensor):
            return source.dequantize()
        assert not isinstance(weight, np.ndarray)
        return weight.dequantize(0, weight.rows)

    return exact, rounding_inputs(model, exact)


def rounding_inputs(model: NativeModel, exact: Weights) -> Weights:
    """The weights ``exact`` for products that round their input as ``model`` is served."""

    def rounding(name: str) -> NDArray[np.floating]:
        weight: NativeWeight = model.weights[name]
        if isinstance(weight, np.ndarray) or not weight.activation_group:
            return exact(name)
        matrix = exact(name).view(RoundsItsInput)
        matrix.group = weight.activation_group
        return matrix

    return rounding


def log_softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Log probabilities along the last axis."""
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))


def mean_divergence(truth: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Mean Kullback-Leibler divergence over positions, in nats."""
    return float((np.exp(truth) * (truth - other)).sum(axis=-1).mean())
