"""The mean corruption error of ImageNet-C."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from predbn.common import MetricError, did_you_mean

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
"""AlexNet's top-1 error on each corruption of ImageNet-C, averaged over the five severities, as published with the
benchmark (Hendrycks and Dietterich 2019, github.com/hendrycks/robustness). By name, because a bare list is easily
paired with corruptions in another order."""


def mce(errors: Mapping[str, float]) -> float:
    """The mean over the 15 corruptions of ImageNet-C of Σ_s E_{s,c} / Σ_s E^AlexNet_{s,c}, in per cent.

    `errors` are shares between 0 and 1, the mean over the severities, for all 15 corruptions. AlexNet itself has 100.
    There is no such normaliser for other data sets; report their mean error.
    """
    for name, error in errors.items():
        if name not in ALEXNET_ERRORS:
            # Corruptions have similar names (gaussian_blur is not gaussian_noise), so only a near match is a hint.
            hint = did_you_mean(name, ALEXNET_ERRORS, cutoff=0.85)
            raise MetricError(
                f"AlexNet has no published error on '{name}'{hint}; the mCE is over {', '.join(ALEXNET_ERRORS)}"
            )
        if not 0 <= error <= 1:
            raise MetricError(f"the error {error} on '{name}' is not between 0 and 1; give shares, not per cent")
    missing = [name for name in ALEXNET_ERRORS if name not in errors]
    if missing:
        raise MetricError(f"the mCE is a mean over 15 corruptions and {', '.join(missing)} are missing; give them too")
    return sum(100 * error / ALEXNET_ERRORS[name] for name, error in errors.items()) / len(errors)
