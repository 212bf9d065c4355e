"""Charts as files."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
import vl_convert
from PIL import Image

from predbn import report
from predbn.report import figures
from predbn.report.save import vega_lite_spec
from predbn.report.style import DARK

HEADS = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF", ".json": b"{", ".html": b"<!DOCTYPE html>"}


@pytest.fixture
def chart(frame):
    return figures.heatmap(frame[frame["method"] == "vanilla"], "accuracy")


@pytest.mark.parametrize("suffix", HEADS)
def test_every_kind_of_file(chart, tmp_path, suffix):
    path = report.save(chart, tmp_path / f"figure{suffix.upper()}")
    assert path.read_bytes().lstrip().startswith(HEADS[suffix])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_compressed_svg_is_the_same_picture(chart, tmp_path):
    full = vl_convert.vegalite_to_svg(vega_lite_spec(chart))
    compressed = report.save(chart, tmp_path / "figure.svg").read_text()
    assert len(compressed) < 0.7 * len(full)
    was, now = (
        np.asarray(Image.open(io.BytesIO(vl_convert.svg_to_png(each))).convert("RGB"), dtype=float)
        for each in (full, compressed)
    )
    assert now.shape == was.shape
    assert np.abs(now - was).mean() < 0.2
    text = [re.findall(r">([^<>]+)<", each) for each in (full, compressed)]
    assert text[0] == text[1]


def test_a_wrong_suffix_raises_and_leaves_no_file(chart, tmp_path):
    with pytest.raises(
        report.ReportError, match=r"cannot be saved as 'figure.gif': end the name with .png, .svg, .pdf"
    ):
        report.save(chart, tmp_path / "figure.gif")
    assert list(tmp_path.iterdir()) == []


def test_themes_and_what_a_chart_sets_itself(chart, tmp_path):
    styled = chart.configure_axis(labelFontSize=20)
    spec = json.loads(report.save(styled, tmp_path / "figure.json", theme=DARK).read_text())
    assert spec["config"]["background"] == DARK.paper
    assert spec["config"]["axis"]["labelFontSize"] == 20
    assert spec["config"]["axis"]["gridColor"] == DARK.line


def test_a_page_of_one_figure_asks_for_nothing(chart, tmp_path):
    text = report.save(chart, tmp_path / "figure.html").read_text()
    assert 'src="http' not in text
    assert "cdn." not in text
