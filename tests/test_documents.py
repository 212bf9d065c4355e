"""Documents say what the results say."""

from __future__ import annotations

from pathlib import Path

import corruptions
import criteo
import inference
import training

ROOT = Path(__file__).resolve().parent.parent


def between(text: str, name: str) -> str:
    return text.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip()


def test_the_readme_shows_the_measured_costs():
    shown = between((ROOT / "README.md").read_text(), "inference")
    assert shown == inference.markdown(), "run: python benchmarks/inference.py --markdown"


def test_the_corruptions_page_shows_the_measured_speed():
    shown = between((ROOT / "docs" / "corruptions.md").read_text(), "speed")
    assert shown == corruptions.markdown(), "run: python benchmarks/corruptions.py --markdown"


def test_the_training_page_shows_the_measured_speed():
    shown = between((ROOT / "docs" / "training.md").read_text(), "speed")
    assert shown == training.markdown(), "run: python benchmarks/training.py --markdown"


def test_the_criteo_page_shows_the_measured_preparation():
    shown = between((ROOT / "docs" / "criteo.md").read_text(), "preparation")
    assert shown == criteo.markdown(), "run: python benchmarks/criteo.py --markdown"
