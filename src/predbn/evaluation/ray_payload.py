"""What travels to the workers of a Ray cluster: the data and the models, each put into the object store once.

A node fetches an object once for all its workers. Images are arrays there, which its workers read where they lie; a
model is fetched when a unit needs it, so that a worker holds no more of them than a run in one process would.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import EvaluationError
from predbn.data import Images, Rows
from predbn.models import AnyModel

from .job import Job
from .model_cache import Shelf
from .plan import Plan
from .source import AnyData, Source
from .worker import Worker, settings_of

__all__ = ["Cargo", "stow"]


@dataclass(frozen=True)
class Cargo:
    """All that a worker needs beside its units. `models` are references into the object store, by member."""

    plan: Plan
    data: AnyData
    validation: Images | Rows | None
    members: Mapping[str, Sequence[str]]
    models: Mapping[str, Any]
    room: int

    def open(self, device: str) -> Worker:
        """What does units in this process."""
        return Worker(
            Source(self.data, images=self.plan.images, device=device),
            Shelf({}, device=device, precision=self.plan.precision, given=_Fetched(self.models), room=self.room),
            self.members,
            validation=self.validation,
            **settings_of(self.plan),
        )


def stow(job: Job) -> Any:
    """A reference to the cargo of a job. Models are loaded one at a time; Ray moves to the disk what it has no room
    for."""
    ray: Any = import_module("ray")
    ray.util.register_serializer(Images, serializer=_packed, deserializer=_unpacked)
    worker = job.worker
    models = {
        name: _put(ray, name, _on_cpu(worker.shelf.original(name)))
        for name in dict.fromkeys(member for members in worker.members.values() for member in members)
    }
    cargo = Cargo(job.plan, worker.source.data, worker.validation, worker.members, models, job.room)
    return _put(ray, worker.source.name, cargo)


def _put(ray: Any, name: str, thing: object) -> Any:
    try:
        return ray.put(thing)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        reason = str(error).splitlines()[0]
        raise EvaluationError(
            f"{name} cannot be sent to other processes ({reason}): give something that can be pickled, or leave out "
            "--engine ray."
        ) from None


def _on_cpu(model: AnyModel) -> AnyModel:
    """The model, or a copy where it lies on a GPU, which the workers may not have."""
    is_elsewhere = any(tensor.device.type != "cpu" for tensor in (*model.parameters(), *model.buffers()))
    return copy.deepcopy(model).cpu() if is_elsewhere else model


class _Fetched(Mapping[str, AnyModel]):
    """Models by name, each fetched from the object store when it is asked for."""

    def __init__(self, references: Mapping[str, Any]) -> None:
        self._references = references

    def __getitem__(self, name: str) -> AnyModel:
        ray: Any = import_module("ray")
        try:
            model: AnyModel = ray.get(self._references[name])
        except ray.exceptions.RaySystemError as error:
            reason = str(error).splitlines()[0]
            raise EvaluationError(
                f"{name} cannot be opened on {ray.util.get_node_ip_address()} ({reason}): what it is made of must be "
                "installed there, or travel in Ray's runtime_env."
            ) from None
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(self._references)

    def __len__(self) -> int:
        return len(self._references)


class _Array(NamedTuple):
    """A tensor's values in the order in which they lie in memory, and the order of dimensions that makes it again."""

    values: npt.NDArray[Any]
    dimensions: tuple[int, ...]


def _packed(images: Images) -> tuple[list[_Array], tuple[str, ...], str]:
    """Images as arrays that Ray hands over without a copy, which it does not do for tensors."""
    return [_array(tensor) for tensor in (images.images, images.labels, images.index)], images.classes, images.name


def _unpacked(packed: tuple[list[_Array], tuple[str, ...], str]) -> Images:
    (images, labels, index), classes, name = packed
    return Images(_tensor(images), _tensor(labels), _tensor(index), classes, name)


def _array(tensor: Tensor) -> _Array:
    """A mapped file of pictures [N, H, W, 3] that is seen as [N, 3, H, W] is not turned round for this."""
    outermost_first = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    values = tensor.cpu().permute(outermost_first).contiguous().numpy()
    return _Array(values, tuple(np.argsort(outermost_first).tolist()))


def _tensor(array: _Array) -> Tensor:
    """A tensor over memory that several processes share and none may write to; batches of `Images` are copies."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array.values).permute(array.dimensions)
