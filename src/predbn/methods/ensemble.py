"""`ensemble`: several models trained from different seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from predbn.common import MethodError

from .base import Logits, Method, widened
from .temperature import check_temperature


@dataclass(frozen=True)
class Ensemble(Method):
    """p = 1/M Σ_m softmax(z_m / T): probabilities are averaged, after the softmax (Lakshminarayanan et al. 2017).

    All members must predict the same batch (`member_logits` does that), because a strategy that uses statistics of the
    batch makes predictions depend on it. T = 1 is the plain ensemble; any other T is shared by the members:
    ``Temperature.fit(torch.cat(logits), labels.repeat(M)).value`` fits it to each of them.
    """

    name: ClassVar[str] = "ensemble"
    takes_members: ClassVar[bool] = True
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    def log_probabilities(self, logits: Logits) -> Tensor:
        if isinstance(logits, Tensor) or len(logits) == 0:
            raise MethodError("Expected a list with the logits [examples, classes] of one or more members")
        shapes = {tuple(member.shape) for member in logits}
        if len(shapes) > 1:
            raise MethodError(
                f"Expected all members to predict the same examples, but got logits of shapes {sorted(shapes)}"
            )
        logs = torch.stack([torch.log_softmax(widened(member) / self.temperature, 1) for member in logits])
        return (logs.logsumexp(0) - math.log(len(logits))).clamp_max(0)
