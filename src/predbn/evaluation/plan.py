"""A plan: what to compute, as plain data."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from predbn.common import EvaluationError
from predbn.data import IMAGENET_SETS, imagenet_folder, is_tabular
from predbn.methods import find_method, method_class
from predbn.models import Preprocessing, expand

from .plan_fields import PlanField, plan_field
from .precision import PRECISIONS, Precision
from .setting import Setting
from .source import source_class
from .splits import attack_of

_MAX_BINS = 10_000
"""Each bin is a row of a table, for every model and split."""
_MAX_COUNT = 2**31 - 1


@dataclass(frozen=True)
class Model:
    """One model, or the members of an ensemble.

    reference      as `predbn.models.load` takes it; a `*` matches several of the zoo, and commas separate several
    weights        a file, or a pattern that matches several; for functions of your own
    preprocessing  for functions of your own
    """

    reference: str
    weights: str | None = None
    preprocessing: Preprocessing | None = None

    def __post_init__(self) -> None:
        expected = {"reference": str, "weights": str | None, "preprocessing": Preprocessing | None}
        for name, kind in expected.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                what = "a table" if name == "preprocessing" else "a string"
                raise EvaluationError(f"expected the {name} of a model to be {what}, but got {value!r}.")

    @property
    def name(self) -> str:
        """The name of the model in results."""
        return self.reference if self.weights is None else f"{self.reference}#{self.weights}"

    def members(self) -> list[Model]:
        """The single models that this stands for: one, unless it is a pattern or a list."""
        references = [member for part in self.reference.split(",") for member in expand(part.strip())]
        weights: list[str | None] = [self.weights]
        if self.weights is not None and any(sign in self.weights for sign in "*?["):
            weights = [*sorted(glob.glob(self.weights))]
            if not weights:
                raise EvaluationError(f"no file matches the weights {self.weights}: name a .safetensors or .pt file.")
        return [replace(self, reference=reference, weights=file) for reference in references for file in weights]


@dataclass(frozen=True)
class Plan:
    """models × methods × strategies × splits × prediction batch sizes × stream orders × seeds.

    `models` are references or `Model`s; a pattern is measured member by member and as an ensemble. The other fields
    are the options of `predbn evaluate`, and are described there.

    Orders are shuffled by default because many data sets are stored class by class, and the statistics of a batch of
    one class are those of that class.
    """

    models: tuple[Model, ...]
    data: str = plan_field(
        "sample",
        "sample (2,000 CIFAR-10 test images, part of the package), cifar10 (see predbn data) or cifar10:FOLDER; "
        "imagenet:FOLDER, and so for imagenet-v2, -a, -r and -c; a folder with images.npy and labels.npy, with one "
        "folder of images per class, CIFAR-10-C or ImageNet-C; loader:MODULE:FUNCTION, a DataLoader of yours with "
        "images as the network takes them, or pairs of them and labels; or criteo or criteo:FOLDER, the rows that "
        "predbn data criteo has prepared (FOLDER#all if all rows are for testing).",
    )
    reference: str | None = plan_field(
        None,
        "For data that has really shifted: a folder of images that the model knows, from the old camera. Strategies "
        "are calibrated on it, --data is predicted as it comes, and the output says first which strategy to use.",
    )
    unlabelled: bool = plan_field(
        False, "With --reference: the folders in --data are not classes; use no labels.", kind=bool
    )
    class_map: str | None = plan_field(
        None,
        "Which class is which output of the model: a file with one name per line in the order of the outputs. For "
        "folders with other names, or only some of the classes.",
    )
    clean: str | None = plan_field(
        None, "The clean images of a published CIFAR-10-C or ImageNet-C, which do not contain them."
    )
    validation: str | None = plan_field(
        None,
        "Data to fit temperatures on and to calibrate auto; by default the reference, or that of sample, "
        "cifar10 and criteo.",
    )
    images: int | None = plan_field(
        None,
        "Use only this many images of each split, the same ones for all orders and seeds; all by default.",
        kind=int,
        min=1,
        max=_MAX_COUNT,
    )
    shifts: tuple[str, ...] = plan_field(
        ("all",),
        "all (clean and every corruption that is defined for such images), standard, extra, clean, a corruption such "
        "as fog, or a shift that changes within a stream: mixed-5 or mixed-all-levels (each image has one of several), "
        "in_turn-standard (one after another), markov-all-0.85 (a Markov chain that stays with probability 0.85). For "
        "rows: all, clean, tokens, columns, marginals.",
        option="shift",
    )
    severities: tuple[int, ...] = plan_field(
        (),
        "1 to 5, or percentages for rows; all that the data has by default.",
        option="severity",
        kind=int,
    )
    orders: tuple[str, ...] = plan_field(
        ("shuffled",),
        "The order of the images: shuffled, official, by_class, dirichlet:0.1 (classes in bursts) or markov:0.95 (the "
        "next image has the same class with probability 0.95); attacked:targeted or attacked:everyone, shuffled, with "
        "some images of each batch optimised to harm the others, which alone are scored. With --reference official by "
        "default: by file name.",
        option="order",
    )
    seeds: tuple[int, ...] = plan_field(
        (0,), "Random seed of corruptions, mixtures and orders.", option="seed", kind=int
    )
    strategies: tuple[str, ...] = plan_field(
        ("train", "batch"),
        "train, batch, auto, auto_stream, prior(N=16), ema, frozen or population, optionally followed by "
        "[eps=0.01, layers=last, robust=True]. With --reference prior, ema, auto, auto_stream and auto(passes=4) too "
        "by default.",
        option="strategy",
    )
    methods: tuple[str, ...] = plan_field(("vanilla",), "vanilla, temperature or ensemble.", option="method")
    batch_sizes: tuple[int | Literal["all"], ...] = plan_field(
        (500,),
        "Images per prediction batch, whose statistics are used, or all for a whole split at once. With --reference 16 "
        "and 100 by default.",
        option="batch_size",
        kind=int,
        min=1,
        max=_MAX_COUNT,
        words=("all",),
    )
    precision: Precision = plan_field(  # noqa: RUF009
        "fp32",
        "Of convolutions and products: fp32 (without TF32), tf32, bf16 or fp16. Statistics stay in fp32.",
        words=PRECISIONS,
    )
    bins: int | None = plan_field(
        None,
        "Bins of the ECE; by default as in the paper: 30 for ImageNet, otherwise 10.",
        kind=int,
        min=1,
        max=_MAX_BINS,
    )
    diagram_bins: int | None = plan_field(
        None,
        "Bins of the reliability diagrams; by default those of the ECE.",
        kind=int,
        min=1,
        max=_MAX_BINS,
    )
    hits: bool = plan_field(
        False,
        "Store which images were classified correctly, one bit each, for intervals over images. On the command line "
        "on by default for images that are not attacked.",
        kind=bool,
    )

    def __post_init__(self) -> None:
        is_list = isinstance(self.models, Sequence) and not isinstance(self.models, str)
        models: Sequence[Any] = self.models if is_list else [self.models]
        self._set("models", tuple(model if isinstance(model, Model) else Model(model) for model in models))
        for name, declared in plan_fields().items():
            self._set(name, declared.check(name, getattr(self, name)))
        if self.reference is not None:
            self._check_reference()
        elif self.severities == ():
            self._set("severities", source_class(self.data).severities)
        for field in fields(self):
            if getattr(self, field.name) == () and not (self.reference and field.name in ("shifts", "severities")):
                raise EvaluationError(f"the plan has no {field.name}: give at least one.")
        settings = {str(setting): setting for setting in map(Setting.parse, self.strategies)}
        self._set("strategies", tuple(settings))
        self._set("settings", settings)
        self._check()

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """The strategies by their canonical string, parsed once. Not a field: it follows from `strategies`."""
        return {text: Setting.parse(text) for text in self.strategies}

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_reference(self) -> None:
        """With a reference the data is the shift. Nothing is corrupted, so there are no corruptions to choose from."""
        problems = (
            (self.shifts not in ((), ("all",)) or self.severities != (), "shifts and severities"),
            (self.clean is not None, "clean images"),
            (self.validation is not None, "validation data"),
            (self.hits, "hits, while every prediction is kept"),
        )
        for is_wrong, what in problems:
            if is_wrong:
                raise EvaluationError(
                    f"the plan has a reference, so its data is the shift, but it names {what} too: leave them out."
                )
        if is_tabular(self.data) or is_tabular(str(self.reference)):
            raise EvaluationError("a reference goes with images, not with rows: leave it out.")
        self._set("shifts", ())

    def _check(self) -> None:
        if self.unlabelled and self.reference is None:
            raise EvaluationError("only data that is compared with a reference can be unlabelled: name one.")
        for method in self.methods:
            if not needs_fit(method):
                find_method(method)
        data_class = source_class(self.data)
        for shift in self.shifts:
            data_class.check_shift(shift)
        for severity in self.severities:
            data_class.check_severity(severity)
        for order in self.orders:
            data_class.check_order(order)
        if self._dataset in IMAGENET_SETS:
            imagenet_folder(self.data)
        for order in filter(attack_of, self.orders):
            self._check_attacked(order)

    def _check_attacked(self, order: str) -> None:
        problems = (
            (self.precision != "fp32", f"needs exact gradients, and precision {self.precision} has none: use fp32"),
            (any(map(is_ensemble, self.methods)), "attacks one model at a time: leave out the method ensemble"),
            (self.hits, "replaces some of the images, which then have no hits: leave out hits"),
            (1 in (*self.batch_sizes, self.images), "needs two images in a batch, one the attacker's: use 2 or more"),
        )
        for is_wrong, why in problems:
            if is_wrong:
                raise EvaluationError(f"order {order!r} {why}.")

    @property
    def _dataset(self) -> str:
        """The name of the data, without its folder."""
        return self.data.partition(":")[0]

    @property
    def ece_bins(self) -> int:
        """The bins of the ECE: by default the paper's."""
        return self.bins or (30 if self._dataset in IMAGENET_SETS else 10)

    @property
    def is_calibrated(self) -> bool:
        """Whether a strategy needs statistics of clean source data first."""
        return any(setting.strategy.calibration == "needed" for setting in self.settings.values())

    @property
    def needs_validation(self) -> bool:
        """Whether anything is fitted or calibrated, so that validation data is needed."""
        return self.is_fitted or self.is_calibrated

    @property
    def is_fitted(self) -> bool:
        """Whether temperatures are fitted, which takes labels."""
        return any(map(needs_fit, self.methods))

    @property
    def keeps_predictions(self) -> bool:
        """Whether the prediction of each image is stored, for paired intervals over images and to see what changes."""
        return self.reference is not None

    @property
    def largest_batch(self) -> int:
        """The largest batch size that the plan gives as a number."""
        return max((size for size in self.batch_sizes if size != "all"), default=500)

    @property
    def validation_data(self) -> str | None:
        """The reference of the validation data: the given one, or the data itself if it has a validation part."""
        if self.validation is not None or self.reference is not None:
            return self.validation or self.reference
        has_part = self._dataset in ("sample", "cifar10", "criteo") and "#" not in self.data
        return self.data if has_part else None


def plan_fields() -> dict[str, PlanField]:
    """The declarations of all fields of `Plan` but the models, by name."""
    return {field.name: field.metadata["plan"] for field in fields(Plan) if "plan" in field.metadata}


def needs_fit(method: str) -> bool:
    """Whether a method's arguments are fitted on validation data: "temperature", but not "temperature(value=2)"."""
    return "(" not in method and method_class(method).needs_fit


def is_ensemble(method: str) -> bool:
    """Whether a method takes all members of a model at once."""
    return method_class(method.partition("(")[0].strip()).takes_members
