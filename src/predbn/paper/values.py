"""What the templates of the documents can ask of results: verdicts, measurements of claims, and means of series.

A measurement is named by its claim and by words that occur in its name, as in `value("C1.1", "accuracy", "vanilla")`.
Everything is text, so that documents and results cannot differ; what is not measured is the text "not measured". The
texts beside results, which may be those of somebody else, can reach nothing but these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from predbn.common import NotMeasured, PaperError
from predbn.report import metric_info

from .claims import Finding, Measurement
from .experiments.activations import pooled_distances
from .networks import WITH_BATCH_NORM
from .plans import PLANS
from .plans.cifar10 import METHODS, SINGLE_PRECISION
from .plans.criteo import NETWORK
from .plans.imagenet import LITE0, RESNET50
from .runs import Runs
from .series import CLEAN, EVERY, SHIFTED, TRAIN, Series, Severities

NOT_MEASURED = "not measured"

_WHERE: Mapping[str, Severities] = {"clean": CLEAN, "shifted": SHIFTED, **{str(n): (n,) for n in range(1, 6)}}


class Values:
    """Quantities of the results of some runs as text. `findings` has the findings on their claims by id."""

    def __init__(self, runs: Runs, findings: Mapping[str, Finding]) -> None:
        self._runs = runs
        self._findings = findings

    def verdict(self, claim: str) -> str:
        return self._finding(claim).verdict.value

    def value(self, claim: str, *words: str) -> str:
        """The mean of the only measurement of a claim whose name has these words."""
        return self._text(claim, words, lambda measurement: measurement.value)

    def size(self, claim: str, *words: str) -> str:
        """The same without its sign."""
        return self._text(claim, words, lambda measurement: measurement.value.lstrip("+\N{MINUS SIGN}"))

    def bounds(self, claim: str, *words: str) -> str:
        """Its interval."""
        return self._text(claim, words, lambda measurement: measurement.bounds)

    def with_bounds(self, claim: str, *words: str) -> str:
        """The mean and its interval."""
        return self._text(claim, words, lambda measurement: f"{measurement.value} ({measurement.bounds})")

    def mean(self, plan: str, strategy: str, metric: str, where: str | int, **options: Any) -> str:
        """The mean of a series, such as `mean("methods", "train", "accuracy", "clean")`.

        where    clean, shifted (all severities), or a severity from 1 to 5
        options  those of `Series`; networks of CIFAR-10 by their kind: `network="layer"`
        """
        severities = str(where)
        if plan not in PLANS or severities not in _WHERE:
            raise PaperError(f"Expected a plan, and clean, shifted or 1 to 5, but got {plan} and {where}.")
        network = options.get("network")
        if network is not None and network not in (LITE0, RESNET50, NETWORK):
            options["network"] = f"{WITH_BATCH_NORM.rpartition('/')[0]}/{network}"
        series = Series(f"{strategy} of {plan}", plan, strategy, **options)
        return _measured(lambda: metric_info(metric).number(series.mean(self._runs, metric, _WHERE[severities])))

    def images(self, plan: str) -> str:
        """How many images or rows the plan was run on."""
        return self._runs.size(plan)

    def networks(self) -> str:
        """How many networks with batch norm were measured."""
        return _measured(lambda: str(TRAIN.values(self._runs, "accuracy", CLEAN)["model"].nunique()))

    def pooled_distance(self, strategy: str, reference: str = "crops") -> str:
        """The distance of activations from a training distribution with all shifted images pooled (D1.1)."""
        return _measured(lambda: f"{pooled_distances(self._runs, reference)[strategy].mean():.3f}")

    def layers_nearer(self, reference: str = "crops") -> str:
        """In how many layers prediction-time BN is nearer to it, on average over the networks: `21 of 21`."""

        def count() -> str:
            layers = pooled_distances(self._runs, reference).groupby("place").mean()
            return f"{(layers['batch'] < layers['train']).sum()} of {len(layers)}"

        return _measured(count)

    def networks_inside(self) -> str:
        """The number of networks with batch norm whose activations were measured."""
        return _measured(lambda: str(pooled_distances(self._runs).index.unique("model").size))

    def half_precision(self, metric: str) -> str:
        """The largest difference between a split in half precision, as in the other plans, and in single precision."""

        def largest() -> str:
            keys = ["corruption", "severity"]
            differences = []
            for strategy in ("train", "batch"):
                single, half = (
                    Series(strategy, plan, strategy).values(self._runs, metric, EVERY)
                    for plan in (SINGLE_PRECISION, METHODS)
                )
                half = half[half["model"].isin(single["model"].unique())]
                both = single.set_index(keys)["value"] - half.set_index(keys)["value"]
                differences.append(float(both.abs().max()))
            difference = max(differences)
            return f"{100 * difference:.2f}" if metric_info(metric).percent else f"{difference:.5f}"

        return _measured(largest)

    def _finding(self, claim: str) -> Finding:
        if claim not in self._findings:
            raise PaperError(f"There is no claim {claim!r}: name one that predbn paper verify lists.")
        return self._findings[claim]

    def _text(self, claim: str, words: tuple[str, ...], text_of: Callable[[Measurement], str]) -> str:
        measurements = self._finding(claim).measurements
        if not measurements:
            return NOT_MEASURED
        # A claim may test the same mean against a bound from above and from below.
        matches = list(
            {
                measurement.what: measurement
                for measurement in measurements
                if all(word in measurement.what for word in words)
            }.values()
        )
        if len(matches) != 1:
            names = "; ".join(measurement.what for measurement in measurements)
            raise PaperError(f"{claim} has {len(matches)} measurements with {words}; expected one of: {names}.")
        return text_of(matches[0])


def _measured(text_of: Callable[[], str]) -> str:
    try:
        return text_of()
    except NotMeasured:
        return NOT_MEASURED
