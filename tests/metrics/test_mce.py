"""The mean corruption error against its formula."""

import pytest

from predbn.metrics import ALEXNET_ERRORS, MetricError, mce


def test_alexnet_has_an_mce_of_100():
    assert mce(ALEXNET_ERRORS) == pytest.approx(100)


def test_it_is_the_mean_of_ratios_whatever_the_order():
    errors = {name: 0.01 * (place + 1) for place, name in enumerate(reversed(ALEXNET_ERRORS))}
    expected = sum(100 * errors[name] / ALEXNET_ERRORS[name] for name in ALEXNET_ERRORS) / 15
    assert mce(errors) == pytest.approx(expected)


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
