"""A job: a plan with its models and data found, from which any process makes the worker that computes its units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch

from predbn.common import EvaluationError, Progress
from predbn.data import (
    Images,
    ReferenceAndData,
    ResizeCrop,
    Rows,
    is_shifted,
    is_tabular,
    number_classes,
    open_images,
    open_randomised,
    open_reference_and_data,
    open_rows,
    open_shifted,
    read_class_map,
    wnids,
)
from predbn.models import AnyModel, Classifier

from .model_cache import MEMORY_LIMIT, ModelCache, check_classes, inputs_of
from .plan import Model, Plan, is_ensemble, needs_fit
from .precision import check_precision
from .source import AnyData, Source, make_source
from .splits import Split
from .units import Cell, Fit, FitUnit, SplitUnit
from .worker import Worker


@dataclass(frozen=True)
class Job:
    """A plan and a device, with data and models in memory that replace what the plan names.

    An engine with several processes pickles `data`, `validation` and `models` (by name). `memory_limit` is for the
    models, in bytes. `progress` is called with how many pictures of a folder are decoded, and how many there are; it is
    not pickled.
    """

    plan: Plan
    device: str = "cpu"
    data: AnyData | None = None
    validation: Images | Rows | None = None
    models: Mapping[str, AnyModel] = field(default_factory=dict)
    memory_limit: int = MEMORY_LIMIT
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_precision(self.plan.precision, self.device)

    def __getstate__(self) -> dict[str, Any]:
        """The fields only: what was opened stays in its process."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "progress"}

    @cached_property
    def _models_by_member(self) -> dict[str, dict[str, Model | None]]:
        """The members of every model of the plan, by name; None for those in memory."""
        members: dict[str, dict[str, Model | None]] = {}
        for model in self.plan.models:
            in_memory = [name for name in self.models if name == model.name or fnmatchcase(name, model.name)]
            members[model.name] = dict.fromkeys(in_memory) or {member.name: member for member in model.members()}
        return members

    @cached_property
    def members(self) -> dict[str, list[str]]:
        return {name: list(members) for name, members in self._models_by_member.items()}

    @cached_property
    def member_names(self) -> list[str]:
        """The names of all single models, without repetition."""
        return list(dict.fromkeys(member for members in self.members.values() for member in members))

    @cached_property
    def cache(self) -> ModelCache:
        """The models, for everything in this process that needs one."""
        to_load = {
            name: model
            for members in self._models_by_member.values()
            for name, model in members.items()
            if model is not None
        }
        return ModelCache(
            to_load,
            device=self.device,
            precision=self.plan.precision,
            in_memory=self.models,
            memory_limit=self.memory_limit,
        )

    @cached_property
    def source(self) -> Source:
        """The data, opened."""
        data = self._open_test_data() if self.data is None else self.data
        if isinstance(data, Images | ReferenceAndData):
            data = self._with_classes_of_models(data)
        return make_source(data, images=self.plan.images, device=self.device)

    @cached_property
    def splits(self) -> list[Split]:
        return self.source.splits(self.plan.shifts, self.plan.severities)

    @cached_property
    def worker(self) -> Worker:
        """What computes the units in this process."""
        validation = self.validation
        if validation is None and self.plan.needs_validation:
            validation = self._open_validation_data()
        self.cache.restrict_to(self.source.classes)
        return Worker(self.plan, self.source, self.cache, self.members, validation)

    def _open_test_data(self) -> AnyData:
        reference = self.plan.data
        if is_tabular(reference):
            return open_randomised(reference, self.plan.largest_batch)
        options: dict[str, Any] = {"transform": self._crop(), "images": self.plan.images, "progress": self.progress}
        if self.plan.reference is not None:
            return open_reference_and_data(self.plan.reference, reference, unlabelled=self.plan.unlabelled, **options)
        if is_shifted(reference):
            return open_shifted(reference, self.plan.clean, transform=self._crop())
        return open_images(reference, "test", **options)

    def _with_classes_of_models(self, data: Images | ReferenceAndData) -> Images | ReferenceAndData:
        """The data with labels that are outputs of the models, found by name if their names are known."""
        names = [members[0] for members in self.members.values()]
        info = self.cache.original(names[0]).info
        known = info.class_names or (wnids() if info.classes == len(wnids()) else ())
        # Data with some of ImageNet's classes alone is predicted with their logits only: see `ModelCache.restrict_to`.
        is_named = isinstance(data, ReferenceAndData) or (known != data.classes and known != wnids())
        class_map = None
        if self.plan.class_map is not None:
            class_map = read_class_map(self.plan.class_map)
        elif known and is_named and set(data.classes) <= set(known):
            class_map = number_classes(names[0], known)
        if class_map is None and isinstance(data, Images):
            return data
        return data.for_model(class_map, info.classes)

    def _open_validation_data(self) -> Images | Rows:
        if isinstance(self.source.data, ReferenceAndData):
            known = self.source.data.reference
            if self.plan.is_fitted and not known.is_labelled:
                raise EvaluationError(
                    f"temperatures are fitted with labels, and {known.name} has none: sort its images into one folder "
                    "per class, or leave out --method temperature."
                )
            return known
        reference = self.plan.validation_data
        if reference is None:
            raise EvaluationError(
                "the plan fits temperatures or calibrates, and names no validation data: add it with --validation, or "
                "use auto(calibrated=False)."
            )
        if is_tabular(reference):
            return open_rows(reference, "validation")
        return open_images(reference, "validation", transform=self._crop(), progress=self.progress)

    def _crop(self) -> ResizeCrop:
        """How the models want pictures resized and cropped: all in the same way, since pictures are decoded once."""
        crops: dict[str, ResizeCrop] = {}
        for name in (members[0] for members in self.members.values()):
            model = self.cache.original(name)
            if not isinstance(model, Classifier):
                raise EvaluationError(f"{name} takes rows, but the data has pictures: use --data criteo.")
            crops[name] = model.info.preprocessing.crop
            first = next(iter(crops))
            if crops[name] != crops[first]:
                raise EvaluationError(
                    f"{name} wants its pictures resized and cropped in another way than {first}: "
                    "evaluate them in separate runs."
                )
        return crops[first]

    def context(self) -> dict[str, Any]:
        """Everything that determines values and is not a key of a row. All results of a folder have the same."""
        worker, source = self.worker, self.source
        for members in self.members.values():
            takes = inputs_of(self.cache.original(members[0]))
            if takes != source.inputs:
                raise EvaluationError(f"{members[0]} takes {takes}, but {source.name} has {source.inputs}.")
        models = {}
        for name in self.member_names:
            models[name] = self.cache.describe(name)
            if source.classes:  # pictures without labels have none
                check_classes(name, models[name]["classes"], source.classes)
        context: dict[str, Any] = {
            "data": source.describe(),
            "models": models,
            "ensembles": {name: members for name, members in self.members.items() if len(members) > 1},
            "precision": self.plan.precision,
            "device": torch.device(self.device).type,
            "bins": self.plan.ece_bins,
            "diagram_bins": self.plan.diagram_bins or self.plan.ece_bins,
        }
        validation = worker.validation
        if validation is not None:
            counted = {source.counted: len(validation)}
            context["validation"] = {"name": validation.name, **counted, "sha256": dict(validation.sums)}
        return context

    def cells(self) -> list[Cell]:
        """What to measure on every stream."""
        cells = []
        for name, members in self.members.items():
            for method in self.plan.methods:
                takes_members = is_ensemble(method)
                if takes_members and len(members) == 1:
                    raise EvaluationError(
                        f"method {method} needs several models, and {name} is one: use a pattern such as "
                        "zoo:resnet20-cifar10/batch/*, or commas between references."
                    )
                cells += [
                    Cell(model, method, strategy, len(self.source) if size == "all" else size)
                    for model in ([name] if takes_members else members)
                    for strategy in self.plan.strategies
                    for size in self.plan.batch_sizes
                ]
        return list(dict.fromkeys(cells))

    def temperature_units(self) -> list[FitUnit]:
        return [FitUnit(cell.model, cell.strategy, cell.batch_size) for cell in self.cells() if needs_fit(cell.method)]

    def split_units(self, fits: list[Fit], done: set[tuple[Any, ...]]) -> list[SplitUnit]:
        """Units for all cells that are not done; a done one is (*cell, *split, order, seed)."""
        units, cells = [], self.cells()
        for split in self.splits:
            for order in self.plan.orders:
                for seed in self.plan.seeds:
                    missing = tuple(cell for cell in cells if (*cell, *split, order, seed) not in done)
                    if missing:
                        used = {(cell.strategy, cell.batch_size) for cell in missing}
                        needed = tuple(fit for fit in fits if (fit.strategy, fit.batch_size) in used)
                        units.append(SplitUnit(split, order, seed, missing, needed))
        return units
