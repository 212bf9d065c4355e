"""The models of a plan, each loaded once and kept in memory as long as there is room."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from predbn import models
from predbn.common import EvaluationError
from predbn.data import ClassMask, class_mask, wnids
from predbn.models import AnyModel, Classifier, restrict
from predbn.norm import calibrate

from . import cuda_graphs
from .cuda_graphs import GraphStreams
from .plan import Model
from .precision import Precision, casting, prepare_model
from .predictor import Predictor, copy_for_attack, copy_sharing_tensors, pass_size
from .setting import Setting
from .source import Inputs

CalibrationData = Callable[[int], Iterable[Tensor]]
"""Given the number of values of an image or row: batches of clean source data."""

MEMORY_LIMIT = 4 << 30
"""Bytes of parameters and buffers that are kept in memory."""


class PredictorKey(NamedTuple):
    """A model under a setting at a batch size; `attacked`: whether its batches are attacked, which takes gradients."""

    model: str
    setting: Setting
    batch_size: int
    attacked: bool = False


@dataclass
class _Entry:
    """A model in memory with everything that is made from it."""

    model: AnyModel
    nbytes: int
    is_prepared: bool = False
    calibrated: AnyModel | None = None
    predictors: dict[PredictorKey, Predictor] = field(default_factory=dict)


class ModelCache:
    """Loads models on demand, and evicts the least recently used when they exceed `memory_limit`.

    Memory is therefore bounded whatever the number of models. An evicted model takes its predictors with it; the state
    of their strategies is kept and restored. `in_memory` holds models by name that need not be loaded.
    """

    def __init__(
        self,
        members: Mapping[str, Model],
        *,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
        in_memory: Mapping[str, AnyModel] | None = None,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self._members, self._in_memory, self._memory_limit = dict(members), in_memory or {}, memory_limit
        self._device, self._precision = torch.device(device), precision
        self._mask: ClassMask | None = None
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        # Sizes and states outlive the eviction of a model.
        self._nbytes: dict[str, int] = {}
        self._values: dict[str, int] = {}
        self._states: dict[PredictorKey, dict[str, Any]] = {}
        self._calibration_lock = threading.RLock()
        self.calibration_data: CalibrationData | None = None

    @cached_property
    def graph_streams(self) -> GraphStreams | None:
        """The streams of CUDA graphs; None on a CPU. Made on first use: a process that only plans may have no GPU."""
        return GraphStreams(self._device, cuda_graphs.STREAMS) if self._device.type == "cuda" else None

    def restrict_to(self, classes: tuple[str, ...]) -> None:
        """If these are some of ImageNet's classes, use only their logits of models that have all 1,000.

        Call it before the first prediction.
        """
        self._mask = class_mask(classes) if classes and set(classes) <= set(wnids()) else None
        for entry in self._entries.values():
            entry.model = self._restricted(entry.model)

    def original(self, name: str) -> AnyModel:
        """The model as it is in memory or in its file, not yet prepared for prediction."""
        entry = self._entry(name)
        return self._open(name) if entry.is_prepared else entry.model

    def model(self, name: str) -> AnyModel:
        """The model in the precision of the plan, on the device."""
        entry = self._entry(name)
        if not entry.is_prepared:
            entry.model = prepare_model(entry.model.to(self._device), self._precision)
            entry.is_prepared = True
            entry.nbytes = self._nbytes[name] = _nbytes(entry.model)
        return entry.model

    def predictor(self, key: PredictorKey) -> Predictor:
        """The predictor; if its model was evicted, it is made again with the state that it had."""
        model = self.model(key.model)
        predictors = self._entries[key.model].predictors
        if key not in predictors:
            if key.setting.strategy.calibration == "needed":
                model = self._calibrated(key.model)
            size, graph_stream = self.pass_size(key), None
            if key.attacked:
                model = copy_for_attack(cast(Classifier, model))
            elif self.graph_streams is not None:
                graph_stream = self.graph_streams.choose(key.setting, size * self._values[key.model])
            predictors[key] = Predictor(model, key.setting, self._precision, graph_stream, key.batch_size, size)
            if key in self._states:
                predictors[key].load_state(self._states.pop(key))
        return predictors[key]

    def pass_size(self, key: PredictorKey) -> int:
        """How many images the predictor takes at a time."""
        if key.model not in self._values:
            self._entry(key.model)
        values = self._values[key.model]
        return pass_size(key.setting, key.batch_size, values, self._device, attacked=key.attacked)

    def groups_in_memory(self, names: Iterable[str]) -> Iterator[list[str]]:
        """The names without repetition, in groups that fit in memory together. The models of a group are loaded.

        Predictors of a group are made and used on several threads, which must not load or evict models.
        """
        groups: list[list[str]] = [[]]
        nbytes = 0
        for name in dict.fromkeys(names):
            if name not in self._nbytes:
                self._entry(name)
            if groups[-1] and nbytes + self._nbytes[name] > self._memory_limit:
                groups.append([])
                nbytes = 0
            groups[-1].append(name)
            nbytes += self._nbytes[name]
        for group in filter(None, groups):
            for name in group:
                self.model(name)
            yield group

    def describe(self, name: str) -> dict[str, Any]:
        """The model, for the run card: classes, preprocessing, card, and the checksum of its tensors as loaded."""
        model = self.original(name)
        digest = hashlib.sha256()
        for key, tensor in sorted(model.state_dict().items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        info = model.info
        return {
            "classes": info.classes,
            "sha256": digest.hexdigest(),
            "preprocessing": info.preprocessing.describe(),
            "card": info.card,
        }

    def clear(self) -> None:
        while self._entries:
            self._evict_oldest()

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            model = self._open(name)
            self._entries[name] = entry = _Entry(model, _nbytes(model))
            self._nbytes.setdefault(name, entry.nbytes)
            self._values[name] = model.info.preprocessing.values
            while len(self._entries) > 1 and sum(e.nbytes for e in self._entries.values()) > self._memory_limit:
                self._evict_oldest()
        self._entries.move_to_end(name)
        return self._entries[name]

    def _open(self, name: str) -> AnyModel:
        if name in self._in_memory:
            return self._restricted(self._in_memory[name].eval())
        member = self._members[name]
        return self._restricted(
            models.open_model(member.reference, weights=member.weights, preprocessing=member.preprocessing)
        )

    def _restricted(self, model: AnyModel) -> AnyModel:
        mask = self._mask
        if mask is not None and isinstance(model, Classifier) and model.info.classes == mask.total:
            return restrict(model, mask)
        return model

    def _calibrated(self, name: str) -> AnyModel:
        """The model with the statistics of its layers on clean data, computed once for all its predictors."""
        if self.calibration_data is None:
            raise EvaluationError("there is no validation data to calibrate on: name some with --validation.")
        # Predictors are made on several threads; the first one calibrates, the others wait for it.
        with self._calibration_lock:
            entry = self._entry(name)
            if entry.calibrated is None:
                images = self.calibration_data(self._values[name])
                with casting(self._precision, self._device):
                    entry.calibrated = calibrate(copy_sharing_tensors(self.model(name)), images)
            return entry.calibrated

    def _evict_oldest(self) -> None:
        _, entry = self._entries.popitem(last=False)
        for key, predictor in entry.predictors.items():
            state = predictor.state()
            if state is not None:
                self._states[key] = state


def inputs_of(model: AnyModel) -> Inputs:
    return "pictures" if isinstance(model, Classifier) else "rows"


def check_classes(name: str, classes: int, data_classes: tuple[str, ...]) -> None:
    """Raise an error if a model does not have the classes of the data.

    If the data only numbers its classes, it may not contain the last ones.
    """
    is_numbered = data_classes == tuple(map(str, range(len(data_classes))))
    if classes < len(data_classes) or (classes > len(data_classes) and not is_numbered):
        raise EvaluationError(
            f"{name} has {classes} classes, but the data has {len(data_classes)}: use a model trained for them."
        )


def _nbytes(model: AnyModel) -> int:
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
