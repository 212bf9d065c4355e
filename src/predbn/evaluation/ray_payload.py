"""What travels to the workers of a Ray cluster: the data and the models, each put into the object store once.

A node fetches an object once for all its workers. Images are stored as arrays, which workers read from shared memory
without a copy. A model is fetched when a unit needs it, so that a worker holds no more models than a single process.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy.typing as npt
import torch

from predbn.common import EvaluationError
from predbn.data import Images, Rows
from predbn.models import AnyModel

from .job import Job
from .model_cache import ModelCache
from .plan import Plan
from .source import AnyData, make_source
from .worker import Worker


@dataclass(frozen=True)
class Payload:
    """Everything a worker needs besides its units. `models` are references into the object store, by member."""

    plan: Plan
    data: AnyData
    validation: Images | Rows | None
    members: Mapping[str, Sequence[str]]
    models: Mapping[str, Any]
    memory_limit: int

    def open(self, device: str) -> Worker:
        """The worker of this process."""
        cache = ModelCache(
            {},
            device=device,
            precision=self.plan.precision,
            in_memory=_FetchedModels(self.models),
            memory_limit=self.memory_limit,
        )
        source = make_source(self.data, images=self.plan.images, device=device)
        return Worker(self.plan, source, cache, self.members, self.validation)


def put_payload(job: Job) -> Any:
    """Put the payload of a job into the object store, and return its reference.

    Models are put one at a time; Ray spills to disk what does not fit in memory.
    """
    ray: Any = import_module("ray")
    ray.util.register_serializer(Images, serializer=_packed, deserializer=_unpacked)
    worker = job.worker
    models = {name: _put(ray, name, _on_cpu(job.cache.original(name))) for name in job.member_names}
    job.cache.clear()  # this process only coordinates from now on
    payload = Payload(job.plan, job.source.data, worker.validation, worker.members, models, job.memory_limit)
    return _put(ray, job.source.name, payload)


def _put(ray: Any, name: str, value: object) -> Any:
    try:
        return ray.put(value)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        reason = str(error).splitlines()[0]
        raise EvaluationError(
            f"{name} cannot be sent to other processes ({reason}): it must be possible to pickle it; or leave out "
            "--engine ray."
        ) from None


def _on_cpu(model: AnyModel) -> AnyModel:
    """The model, or a copy if it is on a GPU, which the workers may not have."""
    is_on_gpu = any(tensor.device.type != "cpu" for tensor in (*model.parameters(), *model.buffers()))
    return copy.deepcopy(model).cpu() if is_on_gpu else model


class _FetchedModels(dict[str, Any]):
    """Models by name, as references that are fetched from the object store on access."""

    def __getitem__(self, name: str) -> AnyModel:
        ray: Any = import_module("ray")
        try:
            model: AnyModel = ray.get(super().__getitem__(name))
        except ray.exceptions.RaySystemError as error:
            reason = str(error).splitlines()[0]
            raise EvaluationError(
                f"{name} cannot be opened on {ray.util.get_node_ip_address()} ({reason}): the packages that it needs "
                "must be installed there, or be part of Ray's runtime_env."
            ) from None
        return model


def _packed(images: Images) -> tuple[list[npt.NDArray[Any]], tuple[str, ...], str]:
    """Images as arrays: Ray shares those without a copy, but not tensors."""
    tensors = (images.images, images.labels, images.index)
    return [tensor.cpu().contiguous().numpy() for tensor in tensors], images.classes, images.name


def _unpacked(packed: tuple[list[npt.NDArray[Any]], tuple[str, ...], str]) -> Images:
    """Images on shared, read-only memory. That is safe because their batches are copies."""
    arrays, classes, name = packed
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        images, labels, index = map(torch.from_numpy, arrays)
    return Images(images, labels, index, classes, name)
