"""The experiments by id, in the order of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from predbn.common import PaperError

from ..experiment import Experiment, experiment
from .activations import COVARIANCE_SPECTRA, DIMENSION_DISTRIBUTIONS, LAYER_DISTRIBUTIONS
from .batch_size import CIFAR10_BATCH_SIZE, IMAGENET_BATCH_SIZE
from .cifar10_clean import CLEAN_TEST_SET
from .cifar10_normalisations import NORMALISATION_SCHEMES
from .cifar10_single_layer import LAST_LAYER, ONE_BATCH_NORM_LAYER
from .criteo_randomised_features import CRITEO
from .embedding_divergence import EMBEDDING_DIVERGENCE
from .eps_at_prediction import CIFAR10_EPS, IMAGENET_EPS
from .frozen_and_mixed import CIFAR10_FROZEN_AND_MIXED, IMAGENET_FROZEN_AND_MIXED
from .imagenet_confidence import IMAGENET_CONFIDENCE
from .imagenet_efficientnet import IMAGENET_EFFICIENTNET
from .methods import CIFAR10_METHODS, IMAGENET_METHODS

__all__ = ["EXPERIMENTS", "choose", "plans_of"]

EXPERIMENTS: dict[str, Experiment] = {
    item.id: item
    for item in (
        CIFAR10_METHODS,
        CLEAN_TEST_SET,
        CIFAR10_BATCH_SIZE,
        CIFAR10_FROZEN_AND_MIXED,
        CIFAR10_EPS,
        NORMALISATION_SCHEMES,
        LAST_LAYER,
        ONE_BATCH_NORM_LAYER,
        LAYER_DISTRIBUTIONS,
        EMBEDDING_DIVERGENCE,
        COVARIANCE_SPECTRA,
        DIMENSION_DISTRIBUTIONS,
        IMAGENET_METHODS,
        IMAGENET_BATCH_SIZE,
        IMAGENET_FROZEN_AND_MIXED,
        IMAGENET_CONFIDENCE,
        experiment("I5"),  # the natural shifts: we do not have the data sets, so nothing is measured
        experiment("I6"),
        IMAGENET_EFFICIENTNET,
        IMAGENET_EPS,
        CRITEO,
    )
}


def choose(ids: Sequence[str]) -> list[Experiment]:
    """The experiments with these ids, in any case; all of them for `all` or an empty list."""
    names = [id.upper() for id in ids]
    if not names or "ALL" in names:
        return list(EXPERIMENTS.values())
    for name in names:
        if name not in EXPERIMENTS:
            raise PaperError(f"there is no experiment {name!r}: there are {', '.join(EXPERIMENTS)}, and all.")
    return [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def plans_of(experiments: Sequence[Experiment]) -> list[str]:
    """The names of the plans that experiments need, each once."""
    return list(dict.fromkeys(plan for experiment in experiments for plan in experiment.plans))
