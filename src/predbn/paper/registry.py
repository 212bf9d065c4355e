"""The experiments by id, in the order of the paper; what is our own comes last."""

from __future__ import annotations

from collections.abc import Sequence

from predbn.common import PaperError

from .experiment import Experiment
from .experiments import activation_distributions as d1
from .experiments import auto
from .experiments import cifar10_batch_size as c3
from .experiments import cifar10_clean as c2
from .experiments import cifar10_eps as c5
from .experiments import cifar10_frozen_and_mixed as c4
from .experiments import cifar10_last_layer as c7
from .experiments import cifar10_methods as c1
from .experiments import cifar10_normalisations as c6
from .experiments import cifar10_one_layer as c8
from .experiments import covariance_spectra as d3
from .experiments import criteo_randomised_features as k1
from .experiments import dimension_distributions as d4
from .experiments import embedding_divergence as d2
from .experiments import imagenet_batch_size as i2
from .experiments import imagenet_confidence as i4
from .experiments import imagenet_efficientnet as i7
from .experiments import imagenet_frozen_and_mixed as i3
from .experiments import imagenet_methods as i1
from .experiments import not_measured as elsewhere

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
