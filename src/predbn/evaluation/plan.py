"""A plan: what is to be computed, as plain data."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from predbn import methods
from predbn.common import EvaluationError
from predbn.models import Preprocessing, expand

from .imagenet_data import check_imagenet, is_imagenet
from .precision import PRECISIONS, Precision
from .settings import Setting
from .splits import check_order, check_severities, check_shift, severities_of

__all__ = ["BatchSize", "Model", "Plan", "is_ensemble", "needs_fit"]

BatchSize = int | Literal["all"]


@dataclass(frozen=True)
class Model:
    """One model, or the members of an ensemble: a reference as `predbn.models.load` takes it, where `*` stands for
    several of the zoo, or several with commas between. `weights` (a file, or a pattern that several fit) and
    `preprocessing` are for functions of your own."""

    reference: str
    weights: str | None = None
    preprocessing: Preprocessing | None = None

    @property
    def name(self) -> str:
        """What the model is called in results."""
        return self.reference if self.weights is None else f"{self.reference}#{self.weights}"

    def members(self) -> list[Model]:
        """The single models that this stands for: one, unless it is a pattern."""
        references = [member for part in self.reference.split(",") for member in expand(part.strip())]
        weights: list[str | None] = [self.weights]
        if self.weights is not None and any(sign in self.weights for sign in "*?["):
            weights = [*sorted(glob.glob(self.weights))]
            if not weights:
                raise EvaluationError(f"no file fits the weights {self.weights}: name a .safetensors or .pt file.")
        return [replace(self, reference=reference, weights=each) for reference in references for each in weights]


@dataclass(frozen=True)
class Plan:
    """models × methods × strategies × splits × prediction batch sizes × stream orders × seeds.

    models       references, or `Model`s; a pattern is measured member by member and as an ensemble
    data         "sample" (in the package), "cifar10" or "cifar10:PATH"; "imagenet:PATH", also with -v2, -a, -r, and -c
                 for the published corruptions; a folder: images.npy beside labels.npy, one folder a class, CIFAR-10-C
                 or ImageNet-C; or rows, "criteo" or "criteo:FOLDER" (test rows; "criteo:FOLDER#all" for a folder that
                 is a test set of its own)
    clean        the clean images of a published CIFAR-10-C or ImageNet-C, which do not come with them
    validation   data for what is fitted (temperatures, eps=tuned) or calibrated (auto); that of "sample" and
                 "cifar10" unless given
    methods      "vanilla", "temperature", "ensemble"
    strategies   as `Setting.parse` reads them: "train", "batch", "prior(N=16)", "batch[eps=0.01, layers=last]"
    shifts       "all", "standard", "extra" (each with the clean images), "clean", "fog", "mixed-5"; for rows "all",
                 "clean", "tokens", "columns", "marginals"
    batch_sizes  of the prediction batch, whose statistics are used; "all" is a whole split at once
    orders       "shuffled", "official", "by_class", "dirichlet:0.1"
    severities   1 to 5, or percentages for rows; all that the data has unless given
    seeds        what corruptions, mixtures and orders are drawn from
    images       how many images of a split; all of them unless given
    precision    "fp32" (without TF32), "tf32", "bf16" or "fp16" (convolutions and products; statistics stay fp32)
    bins         of the ECE; as in the paper unless given: 30 for ImageNet, 10 for other data
    diagram_bins of the reliability diagrams; those of the ECE unless given
    hits         whether to keep which images were predicted right, a bit each: for intervals over images

    The default order is a shuffled one because many data sets are stored class by class, and the statistics of a
    batch of one class are those of that class.
    """

    models: tuple[Model, ...]
    data: str = "sample"
    clean: str | None = None
    validation: str | None = None
    methods: tuple[str, ...] = ("vanilla",)
    strategies: tuple[str, ...] = ("train", "batch")
    shifts: tuple[str, ...] = ("all",)
    severities: tuple[int, ...] = ()
    batch_sizes: tuple[BatchSize, ...] = (500,)
    orders: tuple[str, ...] = ("shuffled",)
    seeds: tuple[int, ...] = (0,)
    images: int | None = None
    precision: Precision = "fp32"
    bins: int | None = None
    diagram_bins: int | None = None
    hits: bool = False

    def __post_init__(self) -> None:
        models = (
            self.models if isinstance(self.models, Sequence) and not isinstance(self.models, str) else [self.models]
        )
        self._set("models", tuple(Model(model) if isinstance(model, str) else model for model in models))
        if self.severities == ():
            self._set("severities", severities_of(self.data))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type.startswith("tuple"):
                value = (value,) if isinstance(value, str | int) else tuple(dict.fromkeys(value))
                if not value:
                    raise EvaluationError(f"the plan has no {field.name}: give at least one.")
                self._set(field.name, value)
        self._set("strategies", tuple(dict.fromkeys(str(Setting.parse(text)) for text in self.strategies)))
        self._check()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check(self) -> None:
        for method in self.methods:
            if not needs_fit(method):
                methods.find(method)
        for shift in self.shifts:
            check_shift(shift, self.data)
        for order in self.orders:
            check_order(order)
        check_severities(self.severities, self.data)
        for seed in self.seeds:
            if not _is_whole(seed):
                raise EvaluationError(f"seed {seed!r} is not a whole number.")
        for size in self.batch_sizes:
            if size != "all" and not (_is_whole(size) and size >= 1):
                raise EvaluationError(f"batch size {size!r} is neither a whole number, 1 or more, nor 'all'.")
        if not isinstance(self.hits, bool):
            raise EvaluationError(f"the plan's hits is {self.hits!r}, but it must be true or false.")
        check_imagenet(self.data)
        for name in ("images", "bins", "diagram_bins"):
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and value >= 1):
                raise EvaluationError(f"the plan's {name} is {value!r}, but it must be a whole number, 1 or more.")
        if self.precision not in PRECISIONS:
            raise EvaluationError(f"precision {self.precision!r} is not known: use {', '.join(PRECISIONS)}.")

    @property
    def ece_bins(self) -> int:
        """The bins of the ECE: those given, or the paper's."""
        return self.bins or (30 if is_imagenet(self.data) else 10)

    @property
    def is_fitted(self) -> bool:
        """Whether anything is fitted or calibrated, so that validation data is needed."""
        return any(needs_fit(method) for method in self.methods) or any(
            setting.eps == "tuned" or setting.strategy.uses_calibration
            for setting in map(Setting.parse, self.strategies)
        )

    @property
    def largest_batch(self) -> int:
        """The largest batch size that the plan gives as a number."""
        return max((size for size in self.batch_sizes if size != "all"), default=500)

    @property
    def is_calibrated(self) -> bool:
        """Whether a strategy looks at clean source data first."""
        return any(Setting.parse(strategy).strategy.uses_calibration for strategy in self.strategies)

    @property
    def validation_data(self) -> str | None:
        """The reference of the validation data: the given one, or that of data which has its own."""
        if self.validation is not None:
            return self.validation
        own = self.data.partition("#")[0]
        return own if own.partition(":")[0] in ("sample", "cifar10", "criteo") and own == self.data else None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def needs_fit(method: str) -> bool:
    """Whether a method's arguments come from validation data: "temperature", but not "temperature(value=2)"."""
    return "(" not in method and methods.kind(method).needs_fit


def is_ensemble(method: str) -> bool:
    """Whether a method takes all members of a model at once."""
    return methods.kind(method.partition("(")[0].strip()).takes_members
