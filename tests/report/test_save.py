"""Charts as files."""

import io
import re

import numpy as np
import pytest
import vl_convert
from PIL import Image

from predbn import report
from predbn.evaluation import Results
from predbn.report import figures
from predbn.report.results_page import results_figures
from predbn.report.save import vega_lite_spec

HEADS = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF", ".json": b"{", ".html": b"<!DOCTYPE html>"}


@pytest.fixture
def chart(frame):
    return figures.heatmap(frame[(frame["method"] == "vanilla") & (frame["corruption"] == "fog")], "accuracy")


def test_every_kind_of_file(chart, tmp_path):
    for suffix, head in HEADS.items():
        path = report.save(chart, tmp_path / f"figure{suffix.upper()}")
        assert path.read_bytes().lstrip().startswith(head)
    assert len(list(tmp_path.iterdir())) == len(HEADS)
    page = (tmp_path / "figure.HTML").read_text()
    assert 'src="http' not in page
    assert "cdn." not in page


def test_a_compressed_svg_is_the_same_picture(chart, tmp_path):
    full = vl_convert.vegalite_to_svg(vega_lite_spec(chart))
    compressed = report.save(chart, tmp_path / "figure.svg").read_text()
    assert len(compressed) < 0.7 * len(full)
    before, after = (
        np.asarray(Image.open(io.BytesIO(vl_convert.svg_to_png(svg))).convert("RGB"), dtype=float)
        for svg in (full, compressed)
    )
    assert after.shape == before.shape
    assert np.abs(after - before).mean() < 0.2
    texts = [re.findall(r">([^<>]+)<", svg) for svg in (full, compressed)]
    assert texts[0] == texts[1]


def test_every_variant_is_saved_by_name(frame, rel, tmp_path):
    few = frame[(frame["method"] == "vanilla") & (frame["metric"] == "ece") & (frame["corruption"] == "fog")]
    charts = results_figures(Results(few, rel[(rel["method"] == "vanilla") & (rel["corruption"] == "fog")]))
    saved = report.save_variants(tmp_path, charts, suffix=".json")
    assert [path.name for path in saved] == ["ece.json", "gain-ECE-batch-over-train.json", "reliability.json"]
    with pytest.raises(report.ReportError, match="ends with"):
        report.save_variants(tmp_path, charts, suffix=".bmp")
    assert sorted(tmp_path.iterdir()) == sorted(saved)
