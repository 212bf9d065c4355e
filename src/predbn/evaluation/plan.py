"""A plan: what to compute, as plain data."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from predbn.common import EvaluationError, short_spec
from predbn.data import IMAGENET_SETS, imagenet_folder, is_tabular
from predbn.methods import find_method, method_class
from predbn.models import Preprocessing, expand
from predbn.norm import Population, Strategy, find_strategy

from .precision import PRECISIONS, Precision
from .source import source_class
from .splits import attack_of

BatchSize = int | Literal["all"]
MAX_BINS = 10_000
"""The largest number of bins: each is a row of a table, for every model and split."""
_SETTING = re.compile(r"([^\[\]]+)(?:\[(.*)\])?")


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
        if not isinstance(self.reference, str):
            raise EvaluationError(f"the model {self.reference!r} is no reference: write a text, such as zoo:NAME.")
        if not isinstance(self.weights, str | None):
            raise EvaluationError(f"the weights {self.weights!r} of {self.reference} are no file: write its name.")
        if not isinstance(self.preprocessing, Preprocessing | None):
            raise EvaluationError(f"the preprocessing of {self.reference} is {self.preprocessing!r}, but not a table.")

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
class Setting:
    """A strategy with the other options of `predbn.adapt`, as one text: ``batch[eps=0.01, layers=last]``.

    `eps` is a number, None for the layers' own, or "tuned": chosen on the validation data, for each model separately.
    `layers` is "all", "first", "last" or a pattern of layer names. `robust` bounds the influence of each example;
    None stands for the strategy's own default.
    """

    strategy: Strategy
    eps: float | Literal["tuned"] | None = None
    layers: str = "all"
    robust: bool | None = None

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read ``"batch"``, ``"prior(N=16)"`` or ``"batch[eps=0.01, layers=last]"``."""
        match = _SETTING.fullmatch(text.strip())
        if not match:
            raise EvaluationError(f"strategy {text!r} cannot be read: write it as in batch[eps=0.01, layers=last].")
        options = dict(_parse_option(text, part) for part in (match[2] or "").split(",") if part.strip())
        eps: float | Literal["tuned"] | None = None
        if "eps" in options:
            eps = "tuned" if options["eps"] == "tuned" else _parse_eps(text, options["eps"])
        if options.get("robust", "True") not in ("True", "False"):
            raise EvaluationError(f"strategy {text!r} has robust={options['robust']}: use True or False.")
        strategy = find_strategy(match[1].strip())
        robust = options["robust"] == "True" if "robust" in options else None
        if robust is strategy.robust_by_default:
            robust = None
        if robust is not None and eps == "tuned":
            raise EvaluationError(
                f"strategy {text!r} has robust={robust}, but eps is tuned without that: give eps as a number."
            )
        return cls(strategy, eps, options.get("layers", "all"), robust)

    def __str__(self) -> str:
        """The text that `parse` reads, always written in the same way: it is the name of the setting in results."""
        return self._with_options(str(self.strategy))

    @property
    def short(self) -> str:
        """The same with only those arguments of the strategy that are not its defaults, for people."""
        return self._with_options(short_spec(self.strategy.name, self.strategy))

    @property
    def options(self) -> dict[str, Any]:
        """What `predbn.adapt` needs beside the strategy."""
        given = {"eps": self.eps, "layers": self.layers if self.layers != "all" else None, "robust": self.robust}
        return {name: value for name, value in given.items() if value is not None}

    def _with_options(self, strategy: str) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{strategy}[{options}]" if options else strategy

    @property
    def is_identity(self) -> bool:
        """Whether the model predicts as if it were not adapted; it then needs no batch norm layer."""
        return self.strategy.is_identity and self.eps is None

    @property
    def needs_whole_stream(self) -> bool:
        """Whether it needs all images of a split before it predicts the first."""
        return isinstance(self.strategy, Population)


@dataclass(frozen=True)
class Plan:
    """models × methods × strategies × splits × prediction batch sizes × stream orders × seeds.

    models       references, or `Model`s; a pattern is measured member by member and as an ensemble
    data         "sample" (in the package), "cifar10" or "cifar10:PATH"; "imagenet:PATH", also with -v2, -a, -r, and -c
                 for the published corruptions; a folder: images.npy beside labels.npy, one folder per class, CIFAR-10-C
                 or ImageNet-C; or rows, "criteo" or "criteo:FOLDER" (the test rows; "criteo:FOLDER#all" for a folder
                 that is a test set as a whole)
    clean        the clean images of a published CIFAR-10-C or ImageNet-C, which do not contain them
    reference    pictures that the model knows, if the data is pictures that have really shifted: both are then measured
                 as they come, with or without labels, instead of corruptions of the data
    unlabelled   with a reference: whether to read the data without labels although it has folders
    class_map    a file that says which class is which output of the models (`predbn.data.read_class_map`), if the
                 folders are not all of their classes in sorted order
    validation   data on which temperatures and eps=tuned are fitted and auto is calibrated; by default the reference,
                 or that of "sample", "cifar10" or "criteo", which have some
    methods      "vanilla", "temperature", "ensemble"
    strategies   as `Setting.parse` reads them: "train", "batch", "prior(N=16)", "batch[eps=0.01, layers=last]"
    shifts       "all", "standard", "extra" (each with the clean images), "clean", "fog"; those that change within a
                 stream: "mixed-5", "mixed-all-levels" (each image has one of several, at one level or at any up to the
                 severity), "in_turn-standard" (one after another), "markov-all-0.85" (a Markov chain; `ChangingShift`
                 has the rules); for rows "all", "clean", "tokens", "columns", "marginals"
    batch_sizes  of the prediction batch, whose statistics are used; "all" is a whole split at once
    orders       "shuffled", "official", "by_class", "dirichlet:0.1", "markov:0.95" (the next image has the same class
                 with that probability); "attacked:targeted" and "attacked:everyone" are shuffled, and some images of
                 each batch are replaced by those of an attacker (`predbn.shifts.Attack`) and not scored
    severities   1 to 5, or percentages for rows; by default all that the data has
    seeds        for corruptions, mixtures and orders
    images       how many images of a split; by default all of them, and the same ones for all orders and seeds
    precision    "fp32" (without TF32), "tf32", "bf16" or "fp16" (convolutions and products; statistics stay fp32)
    bins         of the ECE; by default as in the paper: 30 for ImageNet, 10 for other data
    diagram_bins of the reliability diagrams; by default those of the ECE
    hits         whether to keep which images were predicted correctly, one bit each: for intervals over images

    Orders are shuffled by default because many data sets are stored class by class, and the statistics of a batch of
    one class are those of that class.
    """

    models: tuple[Model, ...]
    data: str = "sample"
    clean: str | None = None
    reference: str | None = None
    unlabelled: bool = False
    class_map: str | None = None
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
        self._set("models", tuple(model if isinstance(model, Model) else Model(model) for model in models))
        for field in fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            if kind.startswith("str") and not (isinstance(value, str) or (value is None and "None" in kind)):
                raise EvaluationError(f"the plan's {field.name} is {value!r}, but it must be a text.")
            if kind.startswith("tuple"):
                self._set(field.name, _values(field.name, value, str if "str" in kind else str | int | float | Model))
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
        """The strategies, parsed once when the plan is made, by the text that names them in results.

        Not a field: it follows from `strategies`, which is what is written to files.
        """
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
            raise EvaluationError("a reference goes with pictures, not with rows: leave it out.")
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
        for seed in self.seeds:
            if not _is_whole(seed):
                raise EvaluationError(f"seed {seed!r} is not a whole number of 64 bits.")
        for size in self.batch_sizes:
            if size != "all" and not (_is_whole(size) and size >= 1):
                raise EvaluationError(f"batch size {size!r} is neither a whole number, 1 or more, nor 'all'.")
        for name in ("hits", "unlabelled"):
            if not isinstance(getattr(self, name), bool):
                raise EvaluationError(f"the plan's {name} is {getattr(self, name)!r}, but it must be true or false.")
        if self._dataset in IMAGENET_SETS:
            imagenet_folder(self.data)
        for name in ("images", "bins", "diagram_bins"):
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and value >= 1):
                raise EvaluationError(f"the plan's {name} is {value!r}, but it must be a whole number, 1 or more.")
            if value is not None and name != "images" and value > MAX_BINS:
                raise EvaluationError(f"the plan's {name} is {value}, but it must be {MAX_BINS:,} at most.")
        if not isinstance(self.precision, str) or self.precision not in PRECISIONS:
            raise EvaluationError(f"precision {self.precision!r} is not known: use {', '.join(PRECISIONS)}.")
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
        return any(setting.strategy.uses_calibration for setting in self.settings.values())

    @property
    def needs_validation(self) -> bool:
        """Whether anything is fitted or calibrated, so that validation data is needed."""
        is_fitted = any(map(needs_fit, self.methods)) or any(s.eps == "tuned" for s in self.settings.values())
        return is_fitted or self.is_calibrated

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


def needs_fit(method: str) -> bool:
    """Whether a method's arguments are fitted on validation data: "temperature", but not "temperature(value=2)"."""
    return "(" not in method and method_class(method).needs_fit


def is_ensemble(method: str) -> bool:
    """Whether a method takes all members of a model at once."""
    return method_class(method.partition("(")[0].strip()).takes_members


def _values(name: str, given: Any, kind: Any) -> tuple[Any, ...]:
    """The values of a field without repetition; one value may be given alone."""
    values = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for value in values:
        if not isinstance(value, kind):
            kinds = "texts" if kind is str else "texts or numbers"
            raise EvaluationError(f"the plan's {name} cannot be {value!r}: give {kinds}.")
    return tuple(dict.fromkeys(values))


def _is_whole(value: object) -> bool:
    """Whether it is a whole number that a table can store."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _parse_option(text: str, part: str) -> tuple[str, str]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if name not in ("eps", "layers", "robust") or not equals or not value:
        raise EvaluationError(f"strategy {text!r} has the option {part.strip()!r}: use eps=…, layers=… or robust=True.")
    return name, value


def _parse_eps(text: str, value: str) -> float:
    try:
        eps = float(value)
    except ValueError:
        eps = -1.0
    if not 0 <= eps < float("inf"):
        raise EvaluationError(f"strategy {text!r} has eps={value}: use a number, 0 or more, or the word tuned.")
    return eps
