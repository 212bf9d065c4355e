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

    All members must have seen the same batch (`member_logits` sees to it), for under a strategy that takes
    statistics from the batch their predictions depend on it. T = 1 is the plain ensemble; another is shared
    by the members: ``Temperature.fit(torch.cat(logits), labels.repeat(M)).value`` suits them one by one.
    """

    name: ClassVar[str] = "ensemble"
    takes_members: ClassVar[bool] = True
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    def log_probabilities(self, logits: Logits) -> Tensor:
        if isinstance(logits, Tensor) or len(logits) == 0:
            raise MethodError("an ensemble takes a list of one or more members' logits, [examples, classes] each")
        shapes = {tuple(each.shape) for each in logits}
        if len(shapes) > 1:
            raise MethodError(
                f"the members' logits have shapes {sorted(shapes)}; give predictions of the same examples"
            )
        members = torch.stack([torch.log_softmax(widened(each) / self.temperature, 1) for each in logits])
        return (members.logsumexp(0) - math.log(len(logits))).clamp_max(0)
