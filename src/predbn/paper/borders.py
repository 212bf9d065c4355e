"""The border study: what the border of the training crops changes, with networks that differ in nothing else.

Each set of networks (`predbn train cifar10 --border-study`) has results of its own in `border-<name>` beside the plans
of the zoo's networks, made by `predbn paper run --plan methods --plan inside --networks …`. The claims on CIFAR-10 are
checked on each set, as far as its plans were run. Sets without results are left out. The zoo's own networks, which have
4 black pixels and another recipe, are shown beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from predbn.common import NotMeasured
from predbn.report import HUES, Chart, SeriesStyle, box_chart

from .claims import Finding, Verdict
from .experiments import EXPERIMENTS
from .experiments.activations import pooled_distances
from .markdown import markdown_table
from .plans.cifar10 import METHODS
from .runs import Runs
from .series import CLEAN, EVERY, PREDICTION, SHIFTED, TRAIN, Series, Severities
from .verify import verify

BORDERS = {"zero-4": "4 pixels, black", "zero-2": "2 pixels, black", "reflect-4": "4 pixels, reflected"}
"""The sets by the name of their folder, and what they are called."""
_ZOO = "the zoo's networks: 4 pixels, black"
HEADING = "The border of training crops"
FIGURE = "border-gain.svg"
_EXPERIMENTS = tuple(id for id in EXPERIMENTS if id[0] in "CD")
"""Those on CIFAR-10."""
_NOT_MEASURED = "–"


def border_runs(runs: Runs) -> dict[str, Runs]:
    """The results of each set that has some."""
    folder = runs.plan_folder(METHODS).parent
    every = {name: Runs(folder / f"border-{name}", seed=runs.seed) for name in BORDERS}
    return {name: each for name, each in every.items() if METHODS in each.measured}


def border_findings(runs: Runs) -> dict[str, Finding]:
    """The claims of the study on one set, by id."""
    findings = verify(runs, _EXPERIMENTS)
    return {finding.claim.id: finding for group in findings.values() for finding in group}


def border_tables(runs: Runs) -> str:
    """What was measured on each set, and the verdict on each claim, as Markdown; empty if no set has results."""
    sets = border_runs(runs)
    if not sets:
        return ""
    columns = {_ZOO: runs} if METHODS in runs.measured else {}
    columns |= {BORDERS[name]: each for name, each in sets.items()}
    found = {head: border_findings(each) for head, each in columns.items()}
    numbers = [
        [what, *(_or_dash(measure, each, found[head]) for head, each in columns.items())] for what, measure in _ROWS
    ]
    verdicts = [
        [f"{id}: {statement}", *(found[head][id].verdict.value for head in columns)]
        for id, statement in _STATEMENTS.items()
        if any(found[BORDERS[name]][id].verdict is not Verdict.UNMEASURED for name in sets)
    ]
    command = (
        "`predbn train cifar10 --recipe cosine --border-study --out borders` trains the sets, `predbn paper run --plan "
        "methods --plan inside --networks borders/zero-2 --results results/cifar10/border-zero-2` measures one, and "
        "the plans of other claims likewise."
    )
    return "\n\n".join(
        [
            f"{command} {_recipe(sets)}",
            markdown_table(["", *columns], numbers),
            markdown_table(["claim", *columns], verdicts, "l" * (1 + len(columns))),
        ]
    )


def border_figure(runs: Runs) -> Chart | None:
    """What prediction-time BN gains in accuracy over train BN, by severity: a box over the networks of each set."""
    sets = border_runs(runs)
    if not sets:
        return None
    parts = []
    for name, each in sets.items():
        train, prediction = (
            series.values(each, "accuracy", EVERY).groupby(["severity", "model"], observed=True)["value"].mean()
            for series in (TRAIN, PREDICTION)
        )
        parts.append((prediction - train).reset_index().assign(series=BORDERS[name]))
    values = pd.concat(parts, ignore_index=True).rename(columns={"model": "what"})
    styles = [SeriesStyle(BORDERS[name], hue, False) for name, hue in zip(sets, HUES, strict=False)]
    title = "Gain of prediction-time BN in accuracy, by the border of the training crops"
    chart: Chart = box_chart(values, "accuracy", styles, over="network").properties(title=title)
    return chart


FIGURE_CAPTION = (
    "*What prediction-time BN gains over train BN, for networks trained with each border.* Boxes over the networks; "
    "the values of a network are means over the corruptions."
)

_STATEMENTS = {claim.id: claim.statement for id in _EXPERIMENTS for claim in EXPERIMENTS[id].claims}
"""The claims of the study with their statements."""


def _recipe(sets: Mapping[str, Runs]) -> str:
    """Which recipe the sets have in common, from the cards of the networks."""
    recipes = [
        model["card"]["recipe"]
        for each in sets.values()
        for model in each.cards[METHODS].get("models", {}).values()
        if model.get("card", {}).get("recipe")
    ]
    if not recipes:
        return ""
    # Cards of earlier versions lack options that did not exist yet.
    stated = set.intersection(*map(set, recipes)) - {"padding", "border"}
    first = recipes[0]
    if any(recipe[name] != first[name] for recipe in recipes for name in stated):
        return "**The recipes of the sets differ in more than the border.**"
    return (
        f"The sets are trained alike: {first['optimiser']}, {first['epochs']} epochs, batches of "
        f"{first['batch_size']}, learning rate {first['learning_rate']:g}."
    )


def _or_dash(measure: Callable[[Runs, Mapping[str, Finding]], str], runs: Runs, found: Mapping[str, Finding]) -> str:
    try:
        return measure(runs, found)
    except NotMeasured:
        return _NOT_MEASURED


_Row = tuple[str, Callable[[Runs, Mapping[str, Finding]], str]]


def _mean(what: str, series: Series, metric: str, severities: Severities) -> _Row:
    percent, digits = (100, 1) if metric == "accuracy" else (1, 3)
    return what, lambda runs, found: f"{percent * series.mean(runs, metric, severities):.{digits}f}"


def _measured(what: str, claim: str, *words: str) -> _Row:
    """A measurement of a claim with its interval: the only one whose name has these words."""

    def measure(runs: Runs, found: Mapping[str, Finding]) -> str:
        named = [each for each in found[claim].measurements if all(word in each.what for word in words)]
        if not named:
            raise NotMeasured(found[claim].why)
        (one,) = named
        return f"{one.value} ({one.bounds})"

    return what, measure


def _pooled(what: str, strategy: str) -> _Row:
    return what, lambda runs, found: f"{pooled_distances(runs)[strategy].mean():.3f}"


_ROWS: tuple[_Row, ...] = (
    ("networks", lambda runs, found: str(TRAIN.values(runs, "accuracy", CLEAN)["model"].nunique())),
    _mean("accuracy on clean images, %, train BN", TRAIN, "accuracy", CLEAN),
    _mean("accuracy on clean images, %, prediction BN", PREDICTION, "accuracy", CLEAN),
    _measured("gain of prediction BN on clean images, points (C2.1)", "C2.1", "accuracy"),
    _measured("gain of prediction BN on clean images, Brier score (C2.1)", "C2.1", "Brier"),
    _mean("accuracy on 95 splits, %, train BN", TRAIN, "accuracy", SHIFTED),
    _mean("accuracy on 95 splits, %, prediction BN", PREDICTION, "accuracy", SHIFTED),
    _measured("gain of prediction BN on 95 splits, points (C1.1)", "C1.1", "accuracy", "vanilla"),
    _mean("ECE on 95 splits, train BN", TRAIN, "ece", SHIFTED),
    _mean("ECE on 95 splits, prediction BN", PREDICTION, "ece", SHIFTED),
    _pooled("distance of activations, shifted images pooled, train BN (D1.1)", "train"),
    _pooled("distance of activations, shifted images pooled, prediction BN (D1.1)", "batch"),
    _measured("divergence of embeddings with prediction BN, % of that with train BN (D2.2)", "D2.2", "mean with"),
    _measured("splits with a divergence near zero, % (D2.2)", "D2.2", "splits on which"),
)
