"""What CONTRIBUTING tells people to write works as it stands there."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import predbn
from predbn import shifts
from predbn.evaluation import Plan, evaluate
from predbn.metrics import own, own_metrics
from predbn.norm.strategies.base import Strategy
from predbn.shifts import registry

from .evaluation import tiny

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.fixture
def snippets(monkeypatch, tmp_path):
    """All Python of the document, run as pasted into one file; what it registers is forgotten afterwards."""
    monkeypatch.setattr(Strategy, "_by_name", dict(Strategy._by_name))
    monkeypatch.setattr(registry, "_CORRUPTIONS", dict(registry._CORRUPTIONS))
    monkeypatch.setattr(own, "_METRICS", {})
    found = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "pasted_from_contributing.py").write_text("\n".join(found))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("pasted_from_contributing")
    sys.modules.pop("pasted_from_contributing")


def test_the_strategy_adapts(snippets):
    layer = nn.BatchNorm1d(3).eval()
    x = torch.randn(8, 3)
    predbn.adapt(layer, "half")
    mean, var = x.mean(0) / 2, (x.var(0, unbiased=False) + 1) / 2
    torch.testing.assert_close(layer(x), (x - mean) / (var + layer.eps).sqrt())


def test_the_corruption_is_found_and_depends_on_the_image_alone(snippets):
    images = np.full((4, 8, 8, 3), 200, np.uint8)
    dimmed = shifts.corrupt(images, "dimmed", 3)
    assert 90 <= dimmed.min() <= dimmed.max() <= 106
    np.testing.assert_array_equal(shifts.corrupt(images[2:], "dimmed", 3, seed=0, index=[2, 3]), dimmed[2:])
    assert "dimmed" in shifts.names("own")
    assert "dimmed" not in shifts.names("all")


def test_an_evaluation_knows_all_of_them(snippets, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    np.save(folder / "images.npy", np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.arange(20) % 10)
    plan = Plan(["tiny"], data=str(folder), strategies=["train", "half"], shifts=["dimmed"], severities=[5])
    results = evaluate(plan, tmp_path / "run", models={"tiny": tiny.classifier()})
    frame = results.frame
    assert set(frame["corruption"]) == {"dimmed"}
    assert set(frame["strategy"]) == {"train", "half"}
    assert frame.loc[frame["metric"] == "label_probability", "value"].between(0, 1).all()
    assert list(own_metrics()) == ["label_probability"]


def test_the_files_that_it_names_exist():
    files = [path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"`([\w./]+\.py)`", TEXT)) - {"src/predbn/norm/strategies/yours.py"}
    assert [name for name in sorted(named) if not any(path.match(name) for path in files)] == []
