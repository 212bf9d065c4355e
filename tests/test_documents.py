"""Documents say what the results say."""

from __future__ import annotations

from pathlib import Path

import pytest

import corruptions
import criteo
import inference
import training
from predbn.commands import zoo
from predbn.paper import Runs, auto_tables, verify
from predbn.paper.experiments import k1

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


@pytest.mark.parametrize(("name", "plan"), [("k1", "criteo"), ("k1 eps", "criteo-eps")])
def test_the_criteo_page_shows_the_measured_scores(name, plan):
    shown = between((ROOT / "docs" / "criteo.md").read_text(), name)
    assert shown == k1.table(Runs(ROOT / "results" / "criteo"), plan), "print it as the page says"


def test_what_is_said_of_criteo_is_what_results_say():
    (findings,) = verify(ROOT / "results" / "criteo", ["K1"]).values()
    verdicts = {finding.claim.id: finding.verdict for finding in findings}
    assert {id: verdicts[id].value for id in ("K1.1", "K1.2", "K1.5", "K1.6", "K1.7")} == {
        "K1.1": "holds",
        "K1.2": "holds",
        "K1.5": "not clear",
        "K1.6": "does not hold",
        "K1.7": "does not hold",
    }


def test_the_training_page_shows_the_zoo():
    shown = between((ROOT / "docs" / "training.md").read_text(), "zoo")
    assert shown == zoo.markdown(), "run: predbn zoo --markdown"


def test_the_page_on_auto_shows_what_was_measured():
    text = (ROOT / "docs" / "auto.md").read_text()
    runs = Runs(ROOT / "results" / "cifar10")
    for name, table in auto_tables(runs).items():
        assert between(text, f"auto {name}") == table.replace(f"{ROOT}/", ""), (
            "run: predbn paper document --auto docs/auto.md"
        )
