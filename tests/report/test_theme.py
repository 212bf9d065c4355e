"""Text can be read in both themes: contrast as WCAG 2 defines it."""

from __future__ import annotations

import pytest

from predbn.report.looks import GREY, HUES
from predbn.report.theme import DARK, LIGHT


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
