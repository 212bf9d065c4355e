"""Numbers that texts about the results quote besides the measurements of claims (see `prose`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from predbn.common import NotMeasured, PaperError
from predbn.report import metric_info

from .claims import Finding, Verdict
from .experiments.activations import pooled_distances
from .networks import WITH_BATCH_NORM
from .plans import PLANS
from .plans.cifar10 import METHODS, SINGLE_PRECISION
from .plans.criteo import NETWORK
from .plans.imagenet import LITE0, RESNET50
from .runs import Runs
from .series import CLEAN, EVERY, SHIFTED, Series, Severities

NOT_MEASURED = "not measured"

_WHERE: Mapping[str, Severities] = {"clean": CLEAN, "shifted": SHIFTED, **{str(n): (n,) for n in range(1, 6)}}


def mean_of(runs: Runs, plan: str, strategy: str, metric: str, where: str, *options: str) -> str:
    """The mean of a series, such as `methods | train | accuracy | clean`.

    where    clean, shifted (all severities), or a severity from 1 to 5
    options  method=ensemble, network=layer (by default the networks with batch norm), batch_size=100
    """
    if plan not in PLANS or where not in _WHERE:
        raise PaperError(f"mean | {plan} | {strategy} | {metric} | {where}: there is no such plan or severity.")
    given: dict[str, Any] = dict(option.split("=", 1) for option in options)
    if "network" in given:
        given["network"] = _network(given["network"])
    if "batch_size" in given:
        given["batch_size"] = int(given["batch_size"])
    series = Series(f"{strategy} of {plan}", plan, strategy, **given)
    return _or_not_measured(lambda: metric_info(metric).number(series.mean(runs, metric, _WHERE[where])))


def _network(name: str) -> str:
    return name if name in (LITE0, RESNET50, NETWORK) else f"{WITH_BATCH_NORM.rpartition('/')[0]}/{name}"


def named_quantities(runs: Runs, findings: Iterable[Finding]) -> dict[str, str]:
    """The other quantities by name."""
    counts = Counter(finding.verdict for finding in findings if finding.claim.is_of_paper)
    return {
        "claims of the paper": str(sum(counts.values())),
        **{f"claims of the paper: {verdict.value}": str(counts[verdict]) for verdict in Verdict},
        **{
            f"pooled distance, {label}": _or_not_measured(
                lambda strategy=strategy: f"{pooled_distances(runs)[strategy].mean():.3f}"  # type: ignore[misc]
            )
            for strategy, label in (("train", "train BN"), ("batch", "prediction BN"))
        },
        **{
            f"half precision, {metric}": _or_not_measured(
                lambda metric=metric: _small(_largest_difference(runs, metric), metric)  # type: ignore[misc]
            )
            for metric in ("accuracy", "brier", "ece")
        },
        **{f"images of {name}": runs.size(name) for name in PLANS},
    }


def _small(value: float, metric: str) -> str:
    """A small difference: two digits of a percentage, five of other metrics."""
    return f"{100 * value:.2f}" if metric_info(metric).percent else f"{value:.5f}"


def _largest_difference(runs: Runs, metric: str) -> float:
    """The largest difference between a split in half precision, as in the other plans, and in single precision."""
    keys = ["corruption", "severity"]
    differences = []
    for strategy in ("train", "batch"):
        single, half = (
            Series(strategy, plan, strategy).values(runs, metric, EVERY) for plan in (SINGLE_PRECISION, METHODS)
        )
        half = half[half["model"].isin(single["model"].unique())]
        both = single.set_index(keys)["value"] - half.set_index(keys)["value"]
        differences.append(float(both.abs().max()))
    return max(differences)


def _or_not_measured(number: Callable[[], str]) -> str:
    try:
        return number()
    except NotMeasured:
        return NOT_MEASURED
