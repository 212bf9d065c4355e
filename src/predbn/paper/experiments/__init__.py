"""The experiments by id, in the order of the paper; `auto`, which is not in the paper, comes last."""

from __future__ import annotations

from collections.abc import Sequence

from predbn.common import PaperError

from ..experiment import Experiment
from . import (
    activations,
    auto,
    batch_size,
    cifar10_clean,
    cifar10_normalisations,
    cifar10_single_layer,
    criteo_randomised_features,
    embedding_divergence,
    eps_at_prediction,
    frozen_and_mixed,
    imagenet_confidence,
    imagenet_efficientnet,
    imagenet_natural_shifts,
    methods,
)

__all__ = ["EXPERIMENTS", "choose", "plans_of"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment
    for experiment in (
        methods.CIFAR10_METHODS,
        cifar10_clean.EXPERIMENT,
        batch_size.CIFAR10_BATCH_SIZE,
        frozen_and_mixed.CIFAR10_FROZEN_AND_MIXED,
        eps_at_prediction.CIFAR10_EPS,
        cifar10_normalisations.EXPERIMENT,
        cifar10_single_layer.LAST_LAYER,
        cifar10_single_layer.ONE_BATCH_NORM_LAYER,
        activations.LAYER_DISTRIBUTIONS,
        embedding_divergence.EXPERIMENT,
        activations.COVARIANCE_SPECTRA,
        activations.DIMENSION_DISTRIBUTIONS,
        methods.IMAGENET_METHODS,
        batch_size.IMAGENET_BATCH_SIZE,
        frozen_and_mixed.IMAGENET_FROZEN_AND_MIXED,
        imagenet_confidence.EXPERIMENT,
        imagenet_natural_shifts.IMAGENET_V2,
        imagenet_natural_shifts.IMAGENET_A,
        imagenet_efficientnet.EXPERIMENT,
        eps_at_prediction.IMAGENET_EPS,
        criteo_randomised_features.EXPERIMENT,
        auto.EXPERIMENT,
    )
}


def choose(ids: Sequence[str]) -> list[Experiment]:
    """The experiments with these ids, in any case; all of them for `all` or an empty list."""
    names = [id.upper() for id in ids]
    if not names or "ALL" in names:
        return list(EXPERIMENTS.values())
    experiments = {id.upper(): experiment for id, experiment in EXPERIMENTS.items()}
    for name in names:
        if name not in experiments:
            raise PaperError(f"there is no experiment {name!r}: there are {', '.join(EXPERIMENTS)}, and all.")
    return [experiments[name] for name in dict.fromkeys(names)]


def plans_of(experiments: Sequence[Experiment]) -> list[str]:
    """The names of the plans that experiments need, each once."""
    return list(dict.fromkeys(plan for experiment in experiments for plan in experiment.plans))
