"""`temperature`: logits divided by a number that calibrates the confidence on validation data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from predbn.common import MethodError
from predbn.norm import Population, Strategy, adapted, device_of, evaluating, find_strategy

from .base import Logits, Method, single

_CONVERGED = 1e-6


@dataclass(frozen=True)
class Temperature(Method):
    """p = softmax(z / T) (Guo et al. 2017). T changes confidence, never the predicted class."""

    name: ClassVar[str] = "temperature"
    needs_fit: ClassVar[bool] = True
    value: float

    def __post_init__(self) -> None:
        check_temperature(self.value)

    def log_probabilities(self, logits: Logits) -> Tensor:
        return torch.log_softmax(single(logits) / self.value, 1)

    @classmethod
    def fit(cls, logits: Tensor, labels: Tensor) -> Temperature:
        """The temperature of least NLL on [n, classes] logits and [n] labels.

        With β = 1 / T the NLL, the mean of ln Σ_c exp(β z_c) − β z_y, is convex in β. Its slope at β = 0 is the mean of
        (mean_c z_c) − z_y, and for β → ∞ it tends to the mean of (max_c z_c) − z_y. So there is a best T exactly if the
        first is negative and the second positive; otherwise an error is raised. LBFGS finds the minimum in float64
        over ln T, which keeps T positive. The logits are centred and scaled to variance 1 before, so that z and
        100 z + 7 take the same steps.
        """
        with torch.inference_mode(False), torch.enable_grad():
            centred, labels = _checked(logits, labels)
            scale = float(centred.std())
            return cls(scale * _minimise(centred / scale, labels))


def fit_temperature(
    model: nn.Module, batches: Iterable[Any], *, strategy: str | Strategy = "batch", **options: Any
) -> Temperature:
    """`Temperature.fit` on a model's predictions under the strategy it will be used with.

    Fit it under that strategy: other statistics change the scale of the logits, and with it the temperature.
    `batches` yields (images, labels); `options` are passed to `predbn.adapt`. Only logits are kept, and the model is
    left as it was.
    """
    if "loader" not in options and isinstance(find_strategy(strategy), Population):
        if isinstance(batches, Iterator):
            raise MethodError(
                "Expected batches that can be iterated over twice for 'population', but got an iterator; give a list"
            )
        options["loader"] = batches
    device, pairs = device_of(model), list[tuple[Tensor, Tensor]]()
    with adapted(model, strategy, **options), evaluating(model):
        for batch in batches:
            if not (isinstance(batch, tuple | list) and len(batch) > 1 and all(map(torch.is_tensor, batch[:2]))):
                raise MethodError(
                    f"Expected batches to be tuples that start with images and labels, but got {type(batch).__name__}"
                )
            pairs.append((model(batch[0].to(device)), batch[1].to(device)))
    if not pairs:
        raise MethodError("Expected at least one batch of validation data, but got none")
    return Temperature.fit(*map(torch.cat, zip(*pairs, strict=True)))


def check_temperature(value: float) -> None:
    """Raise an error for a value that logits cannot be divided by."""
    if not (isinstance(value, int | float) and 0 < value < math.inf):
        raise MethodError(f"Expected temperature to be finite and greater than 0, but got {value!r}")


def _checked(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    wide, labels = single(logits).detach().double(), labels.detach().to(logits.device).long()
    if labels.shape != wide.shape[:1] or len(labels) == 0:
        raise MethodError(
            f"Expected one label for each of the {len(wide)} rows of logits, but got labels {list(labels.shape)}"
        )
    if not bool(torch.isfinite(wide).all()):
        raise MethodError("Expected finite logits, but got NaN or infinity; look for an overflow in the model")
    if not bool(((labels >= 0) & (labels < wide.shape[1])).all()):
        raise MethodError(
            f"Expected labels between 0 and {wide.shape[1] - 1}, but got {int(labels.min())} to {int(labels.max())}"
        )
    centred = wide - wide.mean(1, keepdim=True)
    label_logits = centred.gather(1, labels[:, None])[:, 0]
    if float((centred.amax(1) - label_logits).mean()) <= 0:
        raise MethodError(
            "every validation example is predicted correctly, so the NLL falls all the way to temperature 0 and no "
            "temperature is best; give more or other validation data"
        )
    if float(label_logits.mean()) <= 0:
        raise MethodError(
            "the labels' logits are no higher than the others, so the NLL falls all the way to infinite temperature "
            "and no temperature is best; check that logits and labels belong together"
        )
    return centred, labels


def _minimise(logits: Tensor, labels: Tensor) -> float:
    log_temperature = torch.zeros((), dtype=torch.float64, device=logits.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [log_temperature], max_iter=200, tolerance_grad=1e-11, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def nll() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(logits * torch.exp(-log_temperature), labels)
        loss.backward()
        return loss

    optimiser.step(nll)
    nll()
    slope = float("nan") if log_temperature.grad is None else abs(log_temperature.grad.item())
    if not slope <= _CONVERGED:
        raise MethodError(f"the fit of the temperature did not converge (slope {slope:.1e}); check the logits' range")
    return math.exp(log_temperature.item())
