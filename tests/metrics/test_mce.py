"""The mean corruption error against what was published by severity."""

from __future__ import annotations

import pytest

from predbn.metrics import ALEXNET_ERRORS, MetricError, corruption_errors, mce

BY_SEVERITY = {
    "gaussian_noise": (0.69528, 0.82542, 0.93554, 0.98138, 0.99452),
    "shot_noise": (0.71224, 0.85108, 0.93574, 0.98182, 0.99146),
    "impulse_noise": (0.78374, 0.89808, 0.94870, 0.98720, 0.99548),
    "defocus_blur": (0.65624, 0.73202, 0.85036, 0.91364, 0.94714),
    "glass_blur": (0.64308, 0.75054, 0.88806, 0.91622, 0.93344),
    "motion_blur": (0.58430, 0.70048, 0.82108, 0.89750, 0.92638),
    "zoom_blur": (0.70008, 0.76992, 0.80784, 0.84198, 0.87198),
    "snow": (0.71726, 0.88392, 0.86468, 0.91870, 0.94952),
    "frost": (0.61390, 0.79734, 0.88790, 0.89942, 0.93430),
    "fog": (0.67474, 0.76050, 0.84378, 0.87260, 0.94500),
    "brightness": (0.45140, 0.48502, 0.54048, 0.62166, 0.72440),
    "contrast": (0.64548, 0.76150, 0.88874, 0.97760, 0.99270),
    "elastic_transform": (0.52596, 0.70116, 0.55686, 0.64076, 0.80554),
    "pixelate": (0.52218, 0.54620, 0.73728, 0.87092, 0.91262),
    "jpeg_compression": (0.51002, 0.54718, 0.57294, 0.65458, 0.74778),
}
"""AlexNet's errors at each of the five severities, as released by the authors of the benchmark."""


def test_the_normalisers_are_the_means_over_severities():
    assert {name: pytest.approx(sum(errors) / 5, abs=1e-6) for name, errors in BY_SEVERITY.items()} == ALEXNET_ERRORS


def test_alexnet_has_an_mce_of_100():
    assert mce(ALEXNET_ERRORS) == pytest.approx(100)


def test_it_is_the_mean_of_ratios_whatever_the_order():
    errors = {name: 0.01 * (place + 1) for place, name in enumerate(reversed(ALEXNET_ERRORS))}
    expected = sum(100 * errors[name] / ALEXNET_ERRORS[name] for name in ALEXNET_ERRORS) / 15
    assert mce(errors) == pytest.approx(expected)
    assert corruption_errors({"fog": 0.4})["fog"] == pytest.approx(100 * 0.4 / 0.819324)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ({"gausian_noise": 0.5}, r"no published error on 'gausian_noise' \(did you mean 'gaussian_noise'\?\)"),
        ({"gaussian_blur": 0.5}, "no published error on 'gaussian_blur'; the mCE is over gaussian_noise, shot_noise"),
        ({"fog": 0.5}, "snow, frost, brightness"),
        ({"fog": 50.0}, "not between 0 and 1; give shares, not per cent"),
    ],
)
def test_says_what_is_wrong(errors, message):
    with pytest.raises(MetricError, match=message):
        mce(errors)
