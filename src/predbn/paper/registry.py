"""The experiments by id, in the order of the paper; what is our own comes last."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import PaperError
from .experiment import Experiment
from .experiments import auto, c1, c2, c3, c4, c5, c6, c7, c8, d1, d2, d3, d4, elsewhere, i1, i2, i3, i4, i7, k1

__all__ = ["EXPERIMENTS", "choose", "plans_of"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment
    for experiment in (
        *(module.EXPERIMENT for module in (c1, c2, c3, c4, c5, c6, c7, c8, d1, d2, d3, d4)),
        *(module.EXPERIMENT for module in (i1, i2, i3, i4)),
        *elsewhere.EXPERIMENTS,
        i7.EXPERIMENT,
        k1.EXPERIMENT,
        auto.EXPERIMENT,
    )
}


def choose(ids: Sequence[str]) -> list[Experiment]:
    """The experiments of these ids, `all` being every one of them."""
    wanted = [id.upper() for id in ids]
    if not wanted or "ALL" in wanted:
        return list(EXPERIMENTS.values())
    known = {id.upper(): experiment for id, experiment in EXPERIMENTS.items()}
    for id in wanted:
        if id not in known:
            raise PaperError(f"there is no experiment {id!r}: there are {', '.join(EXPERIMENTS)}, and all.")
    return [known[id] for id in dict.fromkeys(wanted)]


def plans_of(experiments: Sequence[Experiment]) -> list[str]:
    """The plans that experiments need, each once."""
    return list(dict.fromkeys(plan for experiment in experiments for plan in experiment.plans))
