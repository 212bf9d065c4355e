"""`auto`, which is not in the paper: statistics that follow the batch as far as chance does not explain it.

The claims are the goals that it was developed for. They are checked like those of the paper, and a missed goal is
reported as such. docs/auto.md describes the method, docs/auto-results.md the results.

What is run: the full grid, every network × split × batch size × strategy on all images, would cost many times as much
and tell no more. So there are several plans: many images where a loss of half a point has to be seen, fewer where means
over 95 splits are compared.

| plan | networks | images per split | purpose |
|---|---|---|---|
| `auto-methods` | ten | all | one pass in batches of 500, with temperature and ensembles too; compared with `methods` |
| `auto-sizes` | ten | 5,000 | one pass, `train` and `batch` in smaller batches |
| `auto-compared` | three | 1,000 | `auto` with and without calibration, `prior` with several N, any batch size |
| `auto-streams` | three | 2,000 | streams with few classes at a time; `ema` is one of the strategies |
| `auto-mixtures` | three | all | 19 corruptions in one batch |

Most plans have `auto` in one pass (`ONE_PASS`): four passes would take four times as long. On ImageNet each network has
similar plans, and `auto` is calibrated on the images that a plan does not evaluate. EfficientNet-Lite1 and Lite2 were
held out: their plans were run once, when everything else was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from types import MappingProxyType
from typing import Any

import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import Model, Plan, Split
from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, XAxis, curves, display_name, metric_info
from predbn.shifts import names

from ..claims import Measure, Measurement
from ..drawing import boxes_of, means_by
from ..experiment import Charts, FigureSpec, experiment
from ..image_measurements import accuracy_gain_by_image
from ..markdown import bold_best, markdown_table
from ..measurements import all_of, gain, mean
from ..networks import WITH_BATCH_NORM, seeds_of
from ..plans import PaperPlan, add_plans, cifar10_plan, imagenet_plan
from ..plans.imagenet import LITE0, LITE1, LITE2, METHODS_PLAN, RESNET50
from ..runs import Runs
from ..series import CLEAN, EVERY, METRICS, SHIFTED, STRATEGY_LABELS, Over, Series, Severities

AUTO, ONE_PASS, UNCALIBRATED = "auto", "auto(passes=1)[robust=False]", "auto(calibrated=False)[robust=False]"
"""`auto` by default, and in one pass without bounded influence."""
PRIORS = ("prior(N=4)", "prior(N=16)", "prior(N=64)")
IMAGENET_PRIORS = PRIORS[1:]
"""Without N = 4, which is far behind in batches as small as those of the ImageNet plans."""
LARGEST, SMALLER, STREAM_BATCH = 500, (1, 2, 5, 20, 100), 100
"""Batch sizes: in the plans with the most images, in the others, and of streams and mixtures."""
ORDERS = ("by_class", "dirichlet:0.1")
"""Streams with few classes at a time: one class after another, and classes in bursts."""


@dataclass(frozen=True)
class Network:
    """A network and its plans.

    label   how documents call the network
    prefix  what the names of its plans begin with
    """

    label: str
    reference: str
    prefix: str

    def plan(self, kind: str) -> str:
        """The name of its plan for a purpose.

        baseline  `train` and `batch` in batches of 500; methods: one pass in batches of 500
        sizes     smaller batches; compared: all strategies on the same images
        default   `auto` by default in batches that hold all classes; streams, mixtures: see above
        """
        if self.prefix == "auto":
            kind = {"default": "streams"}.get(kind, kind)
            return "methods" if kind == "baseline" else f"auto-{kind}"
        kind = {"baseline": "methods", "compared": "sizes"}.get(kind, kind)
        return f"{self.prefix}-{kind}"

    def series(self, kind: str, strategy: str, label: str = "", **options: Any) -> Series:
        """A strategy in a plan; `label` follows that of the strategy."""
        return Series(f"{_label(strategy)}{label}", self.plan(kind), strategy, network=self.reference, **options)


RESNET20 = Network("ResNet-20", WITH_BATCH_NORM, "auto")
IMAGENET_NETWORKS = (
    Network("ResNet-50", RESNET50, "auto-resnet50"),
    Network("EfficientNet-Lite0", LITE0, "auto-lite0"),
)
NETWORKS = (RESNET20, *IMAGENET_NETWORKS)
HELD_OUT = {
    "EfficientNet-Lite1": (LITE1, "auto-lite1-held-out"),
    "EfficientNet-Lite2": (LITE2, "auto-lite2-held-out"),
}
"""By label: the network and the plan."""

# What is run


def _cifar10_plans() -> Iterable[PaperPlan]:
    three_seeds = tuple(Model(reference) for reference in seeds_of(WITH_BATCH_NORM, 3))
    every_seed = Plan(
        models=(Model(f"{WITH_BATCH_NORM}/*"),), data="cifar10", strategies=(ONE_PASS,), batch_sizes=(LARGEST,)
    )

    def plan(name: str, what: str, quick: Mapping[str, Any] = MappingProxyType({}), **changes: Any) -> PaperPlan:
        """A plan with three networks by default, and a quick version with one network and few images."""
        full = replace(every_seed, **{"models": three_seeds, **changes})
        smaller = {"models": three_seeds[:1], "batch_sizes": (20,), "severities": (5,), "images": 40}
        return cifar10_plan(name, what, full, **{**smaller, **quick})

    quick_seeds = (Model(f"{WITH_BATCH_NORM}/[0-2]"),)
    methods = replace(every_seed, methods=("vanilla", "temperature", "ensemble"))
    yield cifar10_plan(RESNET20.plan("methods"), "three methods with auto on every split", methods, models=quick_seeds)
    yield plan(
        RESNET20.plan("sizes"),
        "auto, train and prediction-time BN with batches from one image to 100",
        {"models": quick_seeds},
        models=every_seed.models,
        strategies=("train", "batch", ONE_PASS),
        batch_sizes=SMALLER,
        images=5000,
    )
    yield plan(
        RESNET20.plan("compared"),
        "auto with and without calibration, and prior with several N, with batches from one image to 500 (three "
        "networks)",
        strategies=("train", "batch", ONE_PASS, UNCALIBRATED, *PRIORS),
        batch_sizes=(1, 5, 20, 100, LARGEST),
        images=1000,
    )
    yield plan(
        RESNET20.plan("streams"),
        "batches of 100 with sorted classes, with classes in bursts, and shuffled",
        strategies=("train", "batch", ONE_PASS, "prior(N=16)", "ema", AUTO),
        severities=(1, 3, 5),
        batch_sizes=(STREAM_BATCH,),
        orders=("shuffled", *ORDERS),
        images=2000,
    )
    yield plan(
        RESNET20.plan("mixtures"),
        "batches of 100 that mix 19 corruptions, drawn five times",
        {"batch_sizes": (100,), "severities": (1, 5), "seeds": (0, 1, 2)},
        strategies=("train", "batch", ONE_PASS, AUTO),
        shifts=("mixed-19",),
        batch_sizes=(STREAM_BATCH,),
        seeds=tuple(range(5)),
    )


def _imagenet_plans(network: Network) -> Iterable[PaperPlan]:
    def plan(name: str, what: str, *strategies: str, **changes: Any) -> PaperPlan:
        """A plan on 2,000 images by default."""
        options: dict[str, Any] = {"methods": ("vanilla",), "images": 2000, "diagram_bins": None, **changes}
        options |= {"models": (Model(f"{network.reference}/0"),), "strategies": strategies}
        return imagenet_plan(name, what.format(network.label), replace(METHODS_PLAN, **options))

    baselines = ("train", "batch", ONE_PASS)
    yield plan(
        network.plan("methods"),
        "vanilla and temperature-scaled {} with auto on every split",
        *baselines,
        methods=("vanilla", "temperature"),
        batch_sizes=(LARGEST,),
    )
    yield plan(
        network.plan("sizes"),
        "{} with auto and the strategies it is compared with, in batches from one image to 100",
        *baselines,
        UNCALIBRATED,
        *IMAGENET_PRIORS,
        batch_sizes=SMALLER,
        images=500,
    )
    yield plan(
        network.plan("default"),
        "{} with auto in four passes, in batches of 5, 20 and 100 under the standard corruptions at severity 3",
        AUTO,
        shifts=("standard",),
        severities=(3,),
        batch_sizes=(5, 20, 100),
        images=500,
        hits=False,
    )
    yield plan(
        network.plan("streams"),
        "{} in batches of 100 with sorted classes and with classes in bursts",
        *baselines,
        "ema",
        AUTO,
        shifts=("clean", "gaussian_noise", "motion_blur", "fog", "contrast", "jpeg_compression"),
        severities=(3,),
        batch_sizes=(STREAM_BATCH,),
        orders=ORDERS,
        images=4000,
        hits=False,
    )
    yield plan(
        network.plan("mixtures"),
        "{} in batches of 100 that mix 19 corruptions, drawn three times",
        *baselines,
        AUTO,
        shifts=("mixed-19",),
        batch_sizes=(STREAM_BATCH,),
        seeds=(0, 1, 2),
        hits=False,
    )


def _held_out_plan(label: str, network: str, name: str) -> PaperPlan:
    """A network on which nothing was chosen, in batches of 100 that hold all classes."""
    plan = replace(
        METHODS_PLAN,
        models=(Model(f"{network}/0"),),
        methods=("vanilla",),
        strategies=("train", "batch", *IMAGENET_PRIORS, ONE_PASS, AUTO),
        severities=(3, 5),
        batch_sizes=(STREAM_BATCH,),
        images=500,
        diagram_bins=None,
        hits=False,
    )
    return imagenet_plan(name, f"{label}, held out until the end, in batches of 100", plan)


CIFAR10_AUTO_PLANS = add_plans(*_cifar10_plans())
IMAGENET_AUTO_PLANS = add_plans(
    *(plan for network in IMAGENET_NETWORKS for plan in _imagenet_plans(network)),
    *(_held_out_plan(label, *held_out) for label, held_out in HELD_OUT.items()),
)
AUTO_PLANS = ("methods", *(plan.name for plan in (*CIFAR10_AUTO_PLANS, *IMAGENET_AUTO_PLANS)))
"""The names of all plans that `auto` needs; `methods` has `train` and `batch` for ResNet-20."""

# What is compared

_LABELS = {**dict(STRATEGY_LABELS), ONE_PASS: "auto, one pass", UNCALIBRATED: "auto, not calibrated"}


def _label(strategy: str) -> str:
    return _LABELS.get(strategy, strategy)


def with_batch_size(network: Network, strategy: str, size: int) -> Series:
    """A strategy in shuffled batches of one size, from the plan with the most images for that size."""
    kind = "sizes" if size != LARGEST else "methods" if strategy == ONE_PASS else "baseline"
    return network.series(kind, strategy, f", batches of {size}", batch_size=None if size == LARGEST else size)


def on_same_images(network: Network, strategy: str, size: int) -> Series:
    """A strategy in batches of one size, on the images on which all strategies were measured."""
    return network.series("compared", strategy, f", batches of {size}", batch_size=size)


def with_all_classes(network: Network, strategy: str) -> Series:
    """A strategy in batches of 100 that hold all classes, on the images on which `auto` was measured by default."""
    kind = "default" if strategy == AUTO or network is RESNET20 else "compared"
    return network.series(kind, strategy, ", shuffled", batch_size=STREAM_BATCH, order="shuffled")


def in_order(network: Network, strategy: str, order: str) -> Series:
    """A strategy on a stream with few classes at a time."""
    return network.series("streams", strategy, f", {order}", order=order)


def on_mixtures(network: Network, strategy: str) -> Series:
    """A strategy on batches that mix 19 corruptions."""
    return network.series("mixtures", strategy, mixture="mixed-19")


def with_method(network: Network, method: str, strategy: str = ONE_PASS) -> Series:
    """A method such as an ensemble, with a strategy, in batches of 500."""
    plan = network.plan("methods" if strategy == ONE_PASS else "baseline")
    return Series(f"{method}, {_label(strategy)}", plan, strategy, method, network.reference)


def held_out(label: str, strategy: str) -> Series:
    """A strategy on a network on which nothing was chosen."""
    network, plan = HELD_OUT[label]
    return Series(_label(strategy), plan, strategy, network=network)


@lru_cache(maxsize=8)
def gains_over_better(runs: Runs, network: Network) -> pd.DataFrame:
    """The accuracy of one pass minus that of the better of train and batch, for each network, split and batch size.

    Columns model, corruption, severity, batch_size, train, batch, auto, gain. Cached, because claims, tables and
    figures of the same results all need it.
    """
    smaller = sorted(int(size) for size in runs.frame(network.plan("sizes"))["batch_size"].unique())
    keys = ["model", "corruption", "severity"]
    parts = []
    for size in (*smaller, LARGEST):
        accuracy = {
            strategy: with_batch_size(network, strategy, size).values(runs, "accuracy", EVERY).set_index(keys)["value"]
            for strategy in ("train", "batch", ONE_PASS)
        }
        parts.append(pd.DataFrame(accuracy).dropna().reset_index().assign(batch_size=size))
    cells = pd.concat(parts, ignore_index=True)
    with_gain: pd.DataFrame = cells.assign(gain=cells[ONE_PASS] - cells[["train", "batch"]].max(axis=1))
    return with_gain


def _mean_gains(cells: pd.DataFrame) -> pd.DataFrame:
    """The gains averaged over the networks: columns corruption, severity, batch_size and gain."""
    keys = ["corruption", "severity", "batch_size"]
    means: pd.DataFrame = cells.groupby(keys, observed=True)["gain"].mean().reset_index()
    return means


def _smallest_gain(cells: pd.DataFrame) -> pd.Series:
    row: pd.Series = cells.sort_values("gain").iloc[0]
    return row


# What is claimed

MAX_MEAN_LOSS, MAX_LOSS = 0.005, 0.01
"""The largest loss on average over the networks, and for one network."""
LEADS = {LARGEST: 0.02, 20: 0.05}
"""By how much `auto` has to be ahead of prediction-time BN on CIFAR-10-C, by batch size."""

Comparison = tuple[Network, Series, Series, float]
"""The network, the two series that are compared, and the bound of the gain."""


def _never_worse(runs: Runs) -> list[Measurement]:
    """For ten networks: the loss where they lose most on average, and the largest loss of each network."""
    cells = gains_over_better(runs, RESNET20)
    keys = ["corruption", "severity", "batch_size"]
    worst = _smallest_gain(_mean_gains(cells))[keys]
    worst_cells = cells[(cells[keys] == worst).all(axis=1)]
    split = str(Split(str(worst["corruption"]), int(worst["severity"]))).replace("_", " ")
    smallest = cells.groupby("model", observed=True)["gain"].min()
    what = "accuracy: auto over the better of train and prediction BN, where it is lowest"
    average = f"{what} on average ({split}, batches of {worst['batch_size']})"
    return [
        mean(average, worst_cells["gain"], "accuracy", over="model", bound=-MAX_MEAN_LOSS),
        mean(f"{what} for a network", smallest, "accuracy", over="model", bound=-MAX_LOSS),
    ]


def _never_worse_on_imagenet(runs: Runs) -> list[Measurement]:
    """For single networks: the largest loss, with an interval over images."""
    measurements = []
    for network in IMAGENET_NETWORKS:
        worst = _smallest_gain(gains_over_better(runs, network))
        size, split = int(worst["batch_size"]), (str(worst["corruption"]), int(worst["severity"]))
        better = "batch" if worst["batch"] > worst["train"] else "train"
        pair = with_batch_size(network, ONE_PASS, size), with_batch_size(network, better, size)
        measurements.append(_of(network.label, accuracy_gain_by_image(runs, *pair, split, "above", -MAX_LOSS)))
    return measurements


def _of(label: str, measurement: Measurement) -> Measurement:
    return replace(measurement, what=f"{label}: {measurement.what}")


def _gains(comparisons: Iterable[Comparison], metrics: Sequence[str] = ("accuracy",), **options: Any) -> Measure:
    fixed = list(comparisons)
    return lambda runs: [
        _of(network.label, gain(runs, first, second, metric, bound=bound, **options))
        for network, first, second, bound in fixed
        for metric in metrics
    ]


def _over_batch(
    networks: Sequence[Network],
    sizes: Iterable[int],
    metrics: Sequence[str] = ("accuracy",),
    leads: Mapping[int, float] = MappingProxyType({}),
) -> Measure:
    comparisons = (
        (network, with_batch_size(network, ONE_PASS, size), with_batch_size(network, "batch", size), leads.get(size, 0))
        for network, size in product(networks, sizes)
    )
    return _gains(comparisons, metrics)


def _over_prior() -> Measure:
    return _gains(
        (network, on_same_images(network, ONE_PASS, size), on_same_images(network, prior, size), 0.0)
        for network, size, prior in product(IMAGENET_NETWORKS, (20, 5, 1), IMAGENET_PRIORS)
    )


def _in_streams(strategy: str) -> Measure:
    comparisons = (
        (network, in_order(network, strategy, order), in_order(network, "train", order), -MAX_LOSS)
        for network, order in product(NETWORKS, ORDERS)
    )
    return _gains(comparisons, severities=EVERY)


def _in_mixtures(strategy: str, bound: float) -> Measure:
    comparisons = (
        (network, on_mixtures(network, strategy), on_mixtures(network, other), bound)
        for network, other in product(NETWORKS, ("train", "batch"))
    )
    return _gains(comparisons, over="seed")


def _over_vanilla(network: Network, method: str) -> Comparison:
    return network, with_method(network, method), with_method(network, "vanilla"), 0.0


def _four_passes_over_one(network: Network) -> Measure:
    severities = (1, 3, 5) if network is RESNET20 else (3,)
    pair = with_all_classes(network, AUTO), with_all_classes(network, ONE_PASS)
    return _gains([(network, *pair, -MAX_MEAN_LOSS)], severities=severities)


def _on_held_out_networks(runs: Runs) -> list[Measurement]:
    return [
        _of(label, gain(runs, held_out(label, AUTO), held_out(label, other), "accuracy"))
        for label, other in product(HELD_OUT, ("train", "batch", *IMAGENET_PRIORS))
    ]


# How it is drawn

_COLOURS = {
    "train": GREY,
    "batch": HUES[0],
    "prior(N=16)": HUES[2],
    AUTO: HUES[1],
    ONE_PASS: HUES[3],
    UNCALIBRATED: HUES[4],
    "ema": HUES[4],
}
"""The strategies that are drawn, and their colours. The last two are not in the same figure."""


def _means(
    runs: Runs, network: Network, kind: str, metric: str, severities: Severities, by: str, over: Over
) -> tuple[list[pd.DataFrame], list[SeriesStyle]]:
    """The means (see `means_by`) and the looks of every measured strategy of a plan."""
    runs.frame(network.plan(kind))  # raises NotMeasured if the plan has no results
    parts, looks = [], []
    for strategy, colour in _COLOURS.items():
        series = network.series(kind, strategy)
        if series.is_measured(runs):
            parts.append(means_by(series, series.values(runs, metric, severities), by, over))
            looks.append(SeriesStyle(series.label, colour, strategy == "train"))
    return parts, looks


def _draw_sizes(network: Network, metric: str, runs: Runs) -> FigureVariant:
    means, looks = _means(runs, network, "compared", metric, SHIFTED, "batch_size", "model")
    values = pd.concat(means, ignore_index=True)
    return FigureVariant(curves(values, metric, looks, by="batch_size", title="images in a batch"), looks)


def _draw_gains(network: Network, runs: Runs) -> FigureVariant:
    values = _mean_gains(gains_over_better(runs, network)).rename(columns={"gain": "value"})
    look = SeriesStyle("auto in one pass over the better of train and prediction BN", HUES[1], False)
    what = (values["corruption"].astype(str) + " " + values["severity"].astype(str)).map(display_name)
    order = [str(size) for size in sorted(values["batch_size"].unique())]
    values = values.assign(series=look.series, what=what, batch_size=values["batch_size"].astype(str))
    x_axis = XAxis("batch_size", "images in a batch", order, shared=False)
    return boxes_of([values], "accuracy", [look], x_axis=x_axis)


def _draw_streams(network: Network, metric: str, runs: Runs) -> FigureVariant:
    means, looks = _means(runs, network, "streams", metric, EVERY, "order", "corruption")
    x_axis = XAxis("order", "order of the stream", ["shuffled", "dirichlet:0.1", "by_class"])
    return boxes_of(means, metric, looks, x_axis=x_axis)


def _by_metric(draw: Callable[[Network, str, Runs], FigureVariant]) -> Charts:
    return {
        (network.label, metric_info(metric).label): partial(draw, network, metric)
        for network, metric in product(NETWORKS, METRICS)
    }


AUTO_EXPERIMENT = experiment(
    "auto",
    plans=AUTO_PLANS,
    measures={
        1: _never_worse,
        2: _never_worse_on_imagenet,
        3: _over_batch((RESNET20,), (LARGEST, 20), leads=LEADS),
        4: _over_batch(IMAGENET_NETWORKS, (LARGEST, STREAM_BATCH)),
        5: _over_prior(),
        6: _over_batch((RESNET20,), (LARGEST, STREAM_BATCH, 20, 5), ("brier", "ece")),
        7: _over_batch(IMAGENET_NETWORKS, (LARGEST, STREAM_BATCH, 20, 5), ("brier", "ece")),
        8: _in_streams(ONE_PASS),
        10: _in_mixtures(ONE_PASS, 0.0),
        11: all_of(
            _gains([_over_vanilla(RESNET20, "ensemble")], ("accuracy", "brier")),
            _gains((_over_vanilla(network, "temperature") for network in NETWORKS), ("ece",)),
        ),
        12: all_of(*map(_four_passes_over_one, NETWORKS)),
        13: _in_streams(AUTO),
        15: _in_mixtures(AUTO, -MAX_MEAN_LOSS),
        16: _on_held_out_networks,
    },
    figures=[
        FigureSpec(
            "sizes",
            "Accuracy by batch size",
            "Means over the shifted splits; bands reach from the lowest to the highest network. Classes are drawn "
            "independently of each other.",
            ("network", "metric"),
            _by_metric(_draw_sizes),
        ),
        FigureSpec(
            "lost",
            "What auto gains, and where it loses",
            "Accuracy of auto minus that of the better of train and prediction BN, which is known only afterwards; "
            "boxes over clean images and all splits, each a mean over the networks.",
            ("network",),
            {(network.label,): partial(_draw_gains, network) for network in NETWORKS},
        ),
        FigureSpec(
            "streams",
            "Streams with few classes at a time",
            "Batches of 100 images in which classes are shuffled, come in bursts, or are sorted; boxes over the "
            "corruptions and the clean images.",
            ("network", "metric"),
            _by_metric(_draw_streams),
        ),
    ],
)

# The tables of docs/auto-results.md, as Markdown


def headline_of_auto(runs: Runs) -> str:
    """Mean accuracy in batches of 100, on clean images and under the corruptions that were not used in development."""
    heads = ["", *(f"{name}, {part}" for name in ("mixed", "bursts", "sorted") for part in ("clean", "shifted"))]
    strategies = ("train", "batch", "prior(N=16)", ONE_PASS, AUTO)
    rows: list[Sequence[str]] = []
    for network in NETWORKS:
        streams: list[Callable[[str], Series]] = [
            partial(with_all_classes, network),
            *(partial(in_order, network, order=order) for order in reversed(ORDERS)),
        ]
        columns = []
        for stream, is_shifted in product(streams, (False, True)):
            severities = CLEAN if not is_shifted else (1, 3, 5) if network is RESNET20 else (3,)
            means = [_mean_of_unseen(runs, stream(strategy), severities) for strategy in strategies]
            best = max((value for value in means if value is not None), default=None)
            if best is None:
                raise NotMeasured(f"there are no results of the streams of {network.label}")
            columns.append(["–" if v is None else f"**{_percent(v)}**" if v == best else _percent(v) for v in means])
        rows += zip([f"{network.label}, {_as_code(strategy)}" for strategy in strategies], *columns, strict=True)
    return markdown_table(heads, rows)


def _mean_of_unseen(runs: Runs, series: Series, severities: Severities) -> float | None:
    """The mean over the corruptions not used in development, None if it was not measured."""
    if not series.is_measured(runs):
        return None
    values = series.values(runs, "accuracy", severities)
    return float(values[values["corruption"].isin({"clean", *names("standard")})]["value"].mean())


def table_of_gains(runs: Runs, network: Network) -> str:
    """By batch size: the mean accuracies, and how far one pass is behind the better of train and batch at worst."""
    cells = gains_over_better(runs, network)
    by_split = _mean_gains(cells)
    heads = [
        "batch",
        "clean: train",
        "batch",
        "auto",
        "shifted: train",
        "batch",
        "auto",
        "lost by over ½ point",
        "worst",
    ]
    rows = []
    for size, of_size in cells.groupby("batch_size"):
        means = [
            _percent(part[strategy].mean())
            for part in (of_size[of_size["severity"] == 0], of_size[of_size["severity"] > 0])
            for strategy in ("train", "batch", ONE_PASS)
        ]
        gains = by_split[by_split["batch_size"] == size]
        worst = _smallest_gain(gains)
        split = f"{worst['corruption']} {worst['severity']}".replace("_", " ").replace("clean 0", "clean")
        lost = f"{(gains['gain'] < -MAX_MEAN_LOSS).sum()} of {len(gains)}"
        rows.append([str(size), *means, lost, f"{metric_info('accuracy').change(worst['gain'])} ({split})"])
    return markdown_table(heads, rows)


def table_of_sizes(runs: Runs, network: Network) -> str:
    """Accuracy, Brier score and ECE of every strategy by batch size, on the same images; the best is bold."""
    sizes = sorted(int(size) for size in runs.frame(network.plan("compared"))["batch_size"].unique())
    strategies = [
        strategy
        for strategy in ("train", "batch", *PRIORS, ONE_PASS, UNCALIBRATED)
        if network.series("compared", strategy).is_measured(runs)
    ]
    columns = [
        bold_best(metric, [on_same_images(network, strategy, size).mean(runs, metric) for strategy in strategies])
        for metric, size in product(METRICS, sizes)
    ]
    heads = [
        f"{metric_info(metric).label}: {size}" if size == sizes[0] else str(size)
        for metric, size in product(METRICS, sizes)
    ]
    return markdown_table(["", *heads], zip(map(_as_code, strategies), *columns, strict=True))


def table_of_streams(runs: Runs, network: Network) -> str:
    """Accuracy on clean images and under shift in each order, and on mixed corruptions."""
    orders = [order for order in ("shuffled", *ORDERS) if order in set(runs.frame(network.plan("streams"))["order"])]
    heads = ["", *(f"{part}, {order}" for order in orders for part in ("clean", "shifted")), "19 shifts mixed"]
    rows = []
    for strategy in ("train", "batch", "prior(N=16)", "ema", ONE_PASS, AUTO):
        if in_order(network, strategy, orders[0]).is_measured(runs):
            means = [
                _percent(in_order(network, strategy, order).mean(runs, "accuracy", severities))
                for order, severities in product(orders, (CLEAN, SHIFTED))
            ]
            mixed = on_mixtures(network, strategy)
            last = _percent(mixed.mean(runs, "accuracy", EVERY)) if mixed.is_measured(runs) else "–"
            rows.append([_as_code(strategy), *means, last])
    return markdown_table(heads, rows)


def table_of_methods(runs: Runs, network: Network) -> str:
    """The methods with three strategies in batches of 500, means over the shifted splits."""
    with_batch_size(network, ONE_PASS, LARGEST).values(runs, "accuracy", SHIFTED)  # raises NotMeasured without auto
    combinations = product(("vanilla", "temperature", "ensemble"), ("train", "batch", ONE_PASS))
    rows = [
        [series.label, *(metric_info(metric).number(series.mean(runs, metric)) for metric in METRICS)]
        for series in (with_method(network, *combination) for combination in combinations)
        if series.is_measured(runs)
    ]
    return markdown_table(["", *(metric_info(metric).label for metric in METRICS)], rows)


def table_of_held_out(runs: Runs) -> str:
    """Accuracy of the held-out networks on clean images and under shift."""
    strategies = ("train", "batch", *IMAGENET_PRIORS, ONE_PASS, AUTO)
    columns = [
        bold_best("accuracy", [held_out(label, strategy).mean(runs, "accuracy", part) for strategy in strategies])
        for label, part in product(HELD_OUT, (CLEAN, SHIFTED))
    ]
    heads = ["", *(f"{label}, {part}" for label in HELD_OUT for part in ("clean", "shifted"))]
    return markdown_table(heads, zip(map(_as_code, strategies), *columns, strict=True))


def _as_code(strategy: str) -> str:
    """The strategy without `robust`, which the page states once."""
    return f"`{strategy.removesuffix('[robust=False]')}`"


def _percent(value: float) -> str:
    return metric_info("accuracy").number(value)
