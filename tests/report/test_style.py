"""Themes and series styles: text has enough contrast (as WCAG 2 defines it), and series can be told apart."""

import pandas as pd
import pytest

from predbn.report.frames import check_results
from predbn.report.style import DARK, GREY, HUES, LIGHT, series_styles


def luminance(colour: str) -> float:
    channels = [value / 255 for value in bytes.fromhex(colour[1:])]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_has_the_contrast_it_needs(theme):
    for paper in (theme.paper, theme.shade):
        assert contrast(theme.ink, paper) > 7
        assert contrast(theme.muted, paper) > 4.5
    assert contrast(theme.ink, theme.neutral) > 7
    for end in (theme.worse, theme.better):
        assert contrast("#ffffff", end) > 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_lines_stand_out_from_the_paper(theme):
    for colour in (GREY, *HUES[:4]):
        assert contrast(colour, theme.paper) > 2.9
    assert theme.css().count("--") == 8


def test_each_method_has_a_hue_if_it_has_one_strategy_to_compare(frame):
    styles = series_styles(check_results(frame))
    assert [style.baseline for style in styles] == [True, False] * 3
    assert len({style.colour for style in styles}) == 3
    assert all(train.colour == batch.colour for train, batch in zip(styles[::2], styles[1::2], strict=True))
    assert len({style.area for style in styles}) == 6


def test_a_single_baseline_is_grey_beside_coloured_strategies(frame):
    one = frame[frame["method"] == "vanilla"]
    more = pd.concat([one, one[one["strategy"] == "batch"].assign(strategy="prior(N=16)")])
    styles = series_styles(check_results(more))
    assert [style.series for style in styles] == ["train", "batch", "prior"]
    assert styles[0].colour == GREY
    assert len({style.colour for style in styles}) == 3


def test_any_number_of_series_is_told_apart(frame):
    one = frame[(frame["method"] == "vanilla") & (frame["strategy"] == "batch")]
    many = pd.concat([one.assign(strategy=f"prior(N={n})") for n in range(20)])
    assert len({style.colour for style in series_styles(check_results(many))}) == 20
