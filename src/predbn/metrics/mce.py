"""The mean corruption error of ImageNet-C."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from predbn.common import MetricError

ALEXNET_ERRORS: Mapping[str, float] = MappingProxyType(
    {
        "gaussian_noise": 0.886428,
        "shot_noise": 0.894468,
        "impulse_noise": 0.922640,
        "defocus_blur": 0.819880,
        "glass_blur": 0.826268,
        "motion_blur": 0.785948,
        "zoom_blur": 0.798360,
        "snow": 0.866816,
        "frost": 0.826572,
        "fog": 0.819324,
        "brightness": 0.564592,
        "contrast": 0.853204,
        "elastic_transform": 0.646056,
        "pixelate": 0.717840,
        "jpeg_compression": 0.606500,
    }
)
"""AlexNet's top-1 error on each corruption of ImageNet-C, mean over the five severities, as published with
the benchmark (Hendrycks and Dietterich 2019, github.com/hendrycks/robustness). Kept by name: as a bare
list they are easily paired with corruptions in another order."""


def corruption_errors(errors: Mapping[str, float | Sequence[float]]) -> dict[str, float]:
    """CE_c = Σ_s E_{s,c} / Σ_s E^AlexNet_{s,c} in per cent, for each given corruption of ImageNet-C.

    Errors are shares between 0 and 1: the mean over the severities, or one for each of the five.
    """
    return {name: 100 * _mean(name, given) / _alexnet(name) for name, given in errors.items()}


def mce(errors: Mapping[str, float | Sequence[float]]) -> float:
    """The mean of `corruption_errors` over the 15 corruptions of ImageNet-C, all of which must be given.
    AlexNet itself has 100. Other data sets have no such normaliser; report their mean error."""
    relative = corruption_errors(errors)
    missing = [name for name in ALEXNET_ERRORS if name not in relative]
    if missing:
        raise MetricError(f"the mCE is a mean over 15 corruptions and {', '.join(missing)} are missing; give them too")
    return sum(relative.values()) / len(relative)


def _alexnet(name: str) -> float:
    if name not in ALEXNET_ERRORS:
        near = difflib.get_close_matches(name, ALEXNET_ERRORS, n=1, cutoff=0.85)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise MetricError(
            f"AlexNet has no published error on '{name}'{hint}; the mCE is over {', '.join(ALEXNET_ERRORS)}"
        )
    return ALEXNET_ERRORS[name]


def _mean(name: str, errors: float | Sequence[float]) -> float:
    each = [errors] if isinstance(errors, int | float) else list(errors)
    if len(each) not in (1, 5):
        raise MetricError(
            f"{len(each)} errors are given for '{name}'; give their mean, or one for each of 5 severities"
        )
    wrong = [error for error in each if not 0 <= error <= 1]
    if wrong:
        raise MetricError(f"the error {wrong[0]} on '{name}' is not between 0 and 1; give shares, not per cent")
    return sum(each) / len(each)
