"""A job: a plan made concrete, and the recipe by which any process opens what its units need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch

from predbn.common import EvaluationError
from predbn.data import DecodingProgress as Report
from predbn.data import Images, Rows
from predbn.models import AnyModel, Classifier, Preprocessing

from .model_cache import ROOM, Shelf, check_classes
from .plan import Model, Plan, is_ensemble, needs_fit
from .precision import check_precision
from .settings import Setting
from .source import AnyData, Source, open_images, open_source
from .splits import resolve
from .tabular import is_tabular, open_randomised, open_rows
from .units import Cell, Fit, FitUnit, SplitUnit
from .worker import Worker, settings_of

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """What travels to where units are done: the plan and the device, or things in memory in place of their names.

    `data`, `validation` and `models` (by name) stand in for what the plan names; an engine of several processes
    pickles them. `report` gets how many pictures of a folder are decoded, and of how many; it does not travel.
    """

    plan: Plan
    device: str = "cpu"
    data: AnyData | None = None
    validation: Images | Rows | None = None
    models: Mapping[str, AnyModel] = field(default_factory=dict)
    room: int = ROOM
    report: Report | None = None

    def __post_init__(self) -> None:
        check_precision(self.plan.precision, self.device)

    def __getstate__(self) -> dict[str, Any]:
        """What was opened stays in its process."""
        known = set(self.__dataclass_fields__) - {"report"}
        return {name: value for name, value in self.__dict__.items() if name in known}

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """The names of the members of every model of the plan."""
        found = {}
        for model in self.plan.models:
            found[model.name] = self._given(model) or [member.name for member in model.members()]
        return found

    def _given(self, model: Model) -> list[str]:
        """The names of the models in memory that it stands for."""
        return [name for name in self.models if name == model.name or fnmatchcase(name, model.name)]

    @cached_property
    def source(self) -> Source:
        """The data, opened."""
        data = self.data
        if data is None and is_tabular(self.plan.data):
            data = open_randomised(self.plan.data, self.plan.largest_batch)
        if data is None:
            plan, framed = self.plan, self._preprocessing()
            data = open_source(plan.data, plan.clean, preprocessing=framed, report=self.report)
        return Source(data, images=self.plan.images, device=self.device)

    @cached_property
    def worker(self) -> Worker:
        """What does the units in this process."""
        plan, validation = self.plan, self.validation
        if validation is None and plan.is_fitted:
            if plan.validation_data is None:
                raise EvaluationError(
                    "the plan fits temperatures or eps, or calibrates, and names no validation data: add it with "
                    "--validation, or use auto(calibrated=False)."
                )
            if is_tabular(plan.validation_data):
                validation = open_rows(plan.validation_data, "validation")
            else:
                framed = self._preprocessing()
                validation = open_images(plan.validation_data, "validation", preprocessing=framed, report=self.report)
        shelf = self._shelf(self.source.classes)
        return Worker(self.source, shelf, self.members, validation=validation, **settings_of(plan))

    def _shelf(self, classes: tuple[str, ...] = ()) -> Shelf:
        members = {
            member.name: member for model in self.plan.models if not self._given(model) for member in model.members()
        }
        return Shelf(
            members,
            device=self.device,
            precision=self.plan.precision,
            given=self.models,
            room=self.room,
            classes=classes,
        )

    def _preprocessing(self) -> Preprocessing:
        """How the models want pictures framed: all alike, since they are decoded once."""
        names = [members[0] for members in self.members.values()]
        shelf = self._shelf()
        found = {name: _pictures(name, shelf.original(name)) for name in names}
        first = found[names[0]]
        for name, other in found.items():
            if (other.size, other.resize, other.interpolation) != (first.size, first.resize, first.interpolation):
                raise EvaluationError(
                    f"{name} takes its pictures resized and cropped in another way than {names[0]}: "
                    "evaluate them in runs of their own."
                )
        return first

    def context(self) -> dict[str, Any]:
        """All that determines values and is not in the key of a row: results with another context are others."""
        worker, models = self.worker, {}
        for members in self.members.values():
            if self.source.is_tabular == isinstance(worker.shelf.original(members[0]), Classifier):
                takes, there = ("pictures", "rows") if self.source.is_tabular else ("rows", "pictures")
                raise EvaluationError(f"{members[0]} takes {takes}, but {self.source.name} is of {there}.")
        for name in dict.fromkeys(member for each in self.members.values() for member in each):
            models[name] = worker.shelf.describe(name)
            check_classes(name, models[name]["classes"], self.source.classes)
        context: dict[str, Any] = {
            "data": self.source.describe(),
            "models": models,
            "ensembles": {name: members for name, members in self.members.items() if len(members) > 1},
            "precision": self.plan.precision,
            "device": torch.device(self.device).type,
            "bins": self.plan.ece_bins,
            "diagram_bins": self.plan.diagram_bins or self.plan.ece_bins,
        }
        if worker.validation is not None:
            known = worker.validation
            what = "rows" if isinstance(known, Rows) else "images"
            context["validation"] = {"name": known.name, what: len(known), "sha256": dict(known.sums)}
        return context

    def cells(self) -> list[Cell]:
        """What is to be measured on every stream."""
        found = []
        for name, members in self.members.items():
            for method in self.plan.methods:
                together = is_ensemble(method)
                if together and len(members) == 1:
                    raise EvaluationError(
                        f"method {method} needs several models, and {name} is one: use a pattern such as "
                        "zoo:resnet20-cifar10/batch/*, or commas between references."
                    )
                found += [
                    Cell(model, method, strategy, len(self.source) if size == "all" else size)
                    for model in ([name] if together else members)
                    for strategy in self.plan.strategies
                    for size in self.plan.batch_sizes
                ]
        return list(dict.fromkeys(found))

    def eps_units(self) -> list[FitUnit]:
        """The eps to tune."""
        units = [
            FitUnit(member, cell.strategy, cell.batch_size, "eps")
            for cell in self.cells()
            if Setting.parse(cell.strategy).eps == "tuned"
            for member in self.members.get(cell.model, [cell.model])
        ]
        return list(dict.fromkeys(units))

    def temperature_units(self, eps: list[Fit]) -> list[FitUnit]:
        """The temperatures to fit, under the eps that were tuned."""
        tuned = {(fit.model, fit.strategy, fit.batch_size): fit.value for fit in eps if fit.what == "eps"}
        units = []
        for cell in self.cells():
            if needs_fit(cell.method):
                key = cell.model, cell.strategy, cell.batch_size
                fixed = Setting.parse(cell.strategy).eps
                units.append(FitUnit(*key, "temperature", tuned.get(key) if fixed == "tuned" else fixed))
        return units

    def split_units(self, fits: list[Fit], done: set[tuple[Any, ...]]) -> list[SplitUnit]:
        """Units for all cells that are not done, a done one being (*cell, *split, order, seed)."""
        units, cells = [], self.cells()
        source = self.source
        for split in resolve(self.plan.shifts, self.plan.severities, source.names, has_clean=source.has_clean):
            for order in self.plan.orders:
                for seed in self.plan.seeds:
                    missing = tuple(cell for cell in cells if (*cell, *split, order, seed) not in done)
                    if missing:
                        settings = {(cell.strategy, cell.batch_size) for cell in missing}
                        own = tuple(fit for fit in fits if (fit.strategy, fit.batch_size) in settings)
                        units.append(SplitUnit(split, order, seed, missing, own))
        return units


def _pictures(name: str, model: AnyModel) -> Preprocessing:
    """How a model wants its pictures."""
    if not isinstance(model, Classifier):
        raise EvaluationError(f"{name} takes rows, but the data is pictures: give --data criteo.")
    return model.description.preprocessing
