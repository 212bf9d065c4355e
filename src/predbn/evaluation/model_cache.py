"""The models of a plan, as many of them in memory at a time as there is room for."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from predbn import models
from predbn.common import EvaluationError
from predbn.models import AnyModel, Classifier, restrict
from predbn.norm import calibrate

from .cuda_graphs import Desk
from .imagenet_data import mask_for
from .plan import Model
from .precision import Precision, casting, prepare
from .predictor import Lane, share, span_of
from .settings import Setting

__all__ = ["LaneKey", "Shelf", "check_classes"]

Calibration = Callable[[int], Iterable[Tensor]]
"""Batches of clean source data, each image or row of so many values."""

ROOM = 4 << 30
"""Bytes of parameters and buffers that are kept in memory."""


class LaneKey(NamedTuple):
    """A model under a setting at a batch size; `eps` is the number that "tuned" stands for."""

    model: str
    strategy: str
    batch_size: int
    eps: float | None


class Shelf:
    """Loads models when they are asked for and lets the longest unused go when there is no room.

    Memory is therefore bounded whatever the number of models. A model that is let go takes its lanes with it; what
    their strategies remember is kept and given back. For data with some of ImageNet's `classes`, of a model with all
    of them only the logits of these count.
    """

    def __init__(
        self,
        members: Mapping[str, Model],
        *,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
        given: Mapping[str, AnyModel] | None = None,
        room: int = ROOM,
        classes: tuple[str, ...] = (),
    ) -> None:
        self._mask = mask_for(classes)
        self._members, self._given, self._room = dict(members), given or {}, room
        self._device, self._precision = torch.device(device), precision
        self._models: OrderedDict[str, AnyModel] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._values: dict[str, int] = {}
        self._lanes: dict[LaneKey, Lane] = {}
        self._memories: dict[LaneKey, dict[str, Any]] = {}
        self._calibrated: dict[str, AnyModel] = {}
        self._calibrating = threading.RLock()
        self.calibration: Calibration | None = None

    @cached_property
    def desk(self) -> Desk | None:
        """Where the graphs of a GPU find their images; made when it is first needed, for a process that only plans
        what others compute may have no GPU."""
        return Desk() if self._device.type == "cuda" else None

    def original(self, name: str) -> AnyModel:
        """The model as it was given or is loaded, neither prepared nor kept."""
        if name in self._given:
            found = self._given[name].eval()
        else:
            member = self._members[name]
            found = models.open_model(member.reference, weights=member.weights, preprocessing=member.preprocessing)
        mask = self._mask
        if mask is not None and isinstance(found, Classifier) and found.description.classes == mask.total:
            return restrict(found, mask)
        return found

    def model(self, name: str) -> AnyModel:
        """The model, in the plan's precision, on the device."""
        if name not in self._models:
            classifier = prepare(self.original(name).to(self._device), self._precision)
            tensors = (*classifier.parameters(), *classifier.buffers())
            self._bytes[name] = sum(tensor.nbytes for tensor in tensors)
            self._values[name] = classifier.description.preprocessing.values
            self._models[name] = classifier
            self._make_room()
        self._models.move_to_end(name)
        return self._models[name]

    def lane(self, key: LaneKey) -> Lane:
        """The lane, made anew with what it remembered if its model had to go in between."""
        model = self.model(key.model)
        if key not in self._lanes:
            setting = Setting.parse(key.strategy)
            span = self.span(key)
            if setting.strategy.uses_calibration:
                model = self._with_calibration(key.model)
            self._lanes[key] = Lane(model, setting, key.eps, self._precision, self.desk, key.batch_size, span)
            if key in self._memories:
                self._lanes[key].remember(self._memories.pop(key))
        return self._lanes[key]

    def _with_calibration(self, name: str) -> AnyModel:
        """The model with what its layers look like on clean data, looked at once for all its lanes."""
        if self.calibration is None:
            raise EvaluationError("there is no validation data to calibrate on: name some with --validation.")
        with self._calibrating:
            if name not in self._calibrated:
                images = self.calibration(self._values[name])
                with casting(self._precision, self._device):
                    self._calibrated[name] = calibrate(share(self.model(name)), images)
            return self._calibrated[name]

    def span(self, key: LaneKey) -> int:
        """How many images the lane wants at a time."""
        if key.model not in self._values:
            self.model(key.model)
        return span_of(Setting.parse(key.strategy), key.batch_size, self._values[key.model], self._device)

    def waves(self, names: Iterable[str]) -> Iterator[list[str]]:
        """The names in groups that have room together."""
        wave: list[str] = []
        size = 0
        for name in names:
            if name not in self._bytes:
                self.model(name)
            if wave and size + self._bytes[name] > self._room:
                yield wave
                wave, size = [], 0
            wave.append(name)
            size += self._bytes[name]
        if wave:
            yield wave

    def describe(self, name: str) -> dict[str, Any]:
        """What a model is, for the run card: classes, preprocessing, card, and the sum of its tensors as loaded."""
        classifier = self.original(name)
        digest = hashlib.sha256()
        for key, tensor in sorted(classifier.state_dict().items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        known = classifier.description
        return {
            "classes": known.classes,
            "sha256": digest.hexdigest(),
            "preprocessing": known.preprocessing.describe(),
            "card": known.card,
        }

    def _make_room(self) -> None:
        while len(self._models) > 1 and sum(self._bytes[name] for name in self._models) > self._room:
            name, _ = self._models.popitem(last=False)
            self._calibrated.pop(name, None)
            for key in [key for key in self._lanes if key.model == name]:
                memory = self._lanes.pop(key).memory()
                if memory is not None:
                    self._memories[key] = memory


def check_classes(name: str, classes: int, wanted: tuple[str, ...]) -> None:
    """Refuse a model whose classes are not those of the data. Data that only numbers its classes may not have met
    the last of them."""
    numbered = wanted == tuple(map(str, range(len(wanted))))
    if classes < len(wanted) or (classes > len(wanted) and not numbered):
        raise EvaluationError(
            f"{name} has {classes} classes, but the data has {len(wanted)}: give a model that was trained for them."
        )
