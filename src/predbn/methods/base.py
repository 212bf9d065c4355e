"""The interface of a method, finding one by name, and the simplest one, `vanilla`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from predbn.common import MethodError, find_by_name, format_spec, look_up

Logits: TypeAlias = Tensor | Sequence[Tensor]
"""[n, classes] of one model, or one such tensor for each member of an ensemble."""


@dataclass(frozen=True)
class Method(ABC):
    """Turns logits into probabilities.

    A method is a small immutable object and knows nothing of models: logits are computed once and used by every
    method, whatever BN strategy they were computed under.
    """

    name: ClassVar[str]
    takes_members: ClassVar[bool] = False
    """Whether it takes the logits of several models."""
    needs_fit: ClassVar[bool] = False
    """Whether its arguments come from validation data, under the strategy it will be used with."""

    _by_name: ClassVar[dict[str, type[Method]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Method._by_name[cls.name] = cls

    @abstractmethod
    def log_probabilities(self, logits: Logits) -> Tensor:
        """ln p, [n, classes], in float32 or better: exact even if p itself rounds to 0."""

    def probabilities(self, logits: Logits) -> Tensor:
        """p, [n, classes]."""
        return self.log_probabilities(logits).exp()

    def __str__(self) -> str:
        return format_spec(self.name, self)


@dataclass(frozen=True)
class Vanilla(Method):
    """p = softmax(z): the model as it is."""

    name: ClassVar[str] = "vanilla"

    def log_probabilities(self, logits: Logits) -> Tensor:
        return torch.log_softmax(single(logits), 1)


def find_method(method: str | Method, **arguments: Any) -> Method:
    """A method from an object, a name with arguments, or a string such as ``"temperature(value=1.5)"``."""
    return find_by_name(
        "method", Method, Method._by_name, method, arguments, example="temperature(value=1.5)", error=MethodError
    )


def method_class(name: str) -> type[Method]:
    """The class of a method. It says what the method takes and whether it must be fitted, before there is an object."""
    return look_up("method", Method._by_name, name, error=MethodError)


def single(logits: Logits) -> Tensor:
    """The logits of the only model, in float32 or better."""
    if isinstance(logits, Tensor):
        return widened(logits)
    if len(logits) != 1:
        raise MethodError(f"Expected the logits of one model, but got {len(logits)}; use an ensemble for several")
    return widened(logits[0])


def widened(logits: Tensor) -> Tensor:
    """Logits in float32 or better."""
    if logits.dim() != 2 or not logits.is_floating_point():
        dtype = str(logits.dtype).removeprefix("torch.")
        raise MethodError(f"Expected floating-point logits [examples, classes], but got {dtype} {list(logits.shape)}")
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
