"""The forward pass of an adapted Keras layer, in the operations of Keras.

    μ = n/(n+N)·μ_b + N/(n+N)·μ_s,    and likewise σ²,

with N = 0 for `batch`. The variance is computed in two passes, in at least single precision. (`keras.ops.moments`
computes E[x²] − μ², which is inaccurate in a channel with a large mean.)
"""

from __future__ import annotations

import math
from typing import Any

from predbn.norm import Prior


class AdaptedLayer:
    """A mixin for the class of an adapted layer. With training=True the layer works as before."""

    _predbn_strategy: Any

    def call(self: Any, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if training:
            return super().call(inputs, training=training, mask=mask)  # type: ignore[misc]
        from keras import backend, ops

        x = ops.cast(inputs, backend.result_type(inputs.dtype, "float32"))
        mean, var = self._predbn_statistics(x, mask)
        y = ops.batch_normalization(
            x=x,
            mean=mean,
            variance=var,
            axis=self.axis,
            offset=None if self.beta is None else ops.cast(self.beta, x.dtype),
            scale=None if self.gamma is None else ops.cast(self.gamma, x.dtype),
            epsilon=self.epsilon,
        )
        return ops.cast(y, self.compute_dtype)

    def _predbn_statistics(self: Any, x: Any, mask: Any) -> tuple[Any, Any]:
        from keras import ops

        prior = self._predbn_strategy.N if isinstance(self._predbn_strategy, Prior) else 0
        source = ops.cast(self.moving_mean, x.dtype), ops.cast(self.moving_variance, x.dtype)
        if math.isinf(prior):
            return source
        batch = _moments(x, self._reduction_axes, mask)
        if prior == 0:
            return batch
        n = ops.cast(ops.shape(x)[0], x.dtype)
        share = n / (n + prior)
        mean, var = (s + share * (b - s) for s, b in zip(source, batch, strict=True))
        return mean, var


def _moments(x: Any, axes: list[int], mask: Any) -> tuple[Any, Any]:
    """Mean and biased variance of each channel over the values selected by the mask."""
    from keras import ops

    weight = None
    if mask is not None:
        weight = ops.broadcast_to(ops.expand_dims(ops.cast(mask, x.dtype), -1), ops.shape(x))

    def average(values: Any) -> Any:
        if weight is None:
            return ops.mean(values, axes, keepdims=True)
        return ops.sum(weight * values, axes, keepdims=True) / ops.sum(weight, axes, keepdims=True)

    mean = average(x)
    var = average(ops.square(x - mean))
    return ops.squeeze(mean, axes), ops.squeeze(var, axes)
