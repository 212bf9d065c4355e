"""Documents say what the results say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import auto_ablation
import auto_borders
import auto_sizes
import auto_stream
import corruptions
import criteo
import doctor
import evaluation
import inference
import onnx_files
import outliers
import peer_attacks
import peer_streams
import ray_engine
import recompute
import segmentation
import serving
import serving_batcher
import serving_soak
from predbn.commands import zoo
from predbn.paper import Runs, headline_table, verify
from predbn.paper.experiments.auto import headline_of_auto
from tests.chaos import __main__ as chaos

ROOT = Path(__file__).resolve().parent.parent


def between(text: str, name: str) -> str:
    return text.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip()


def test_the_measured_costs_are_shown():
    page = (ROOT / "docs" / "performance.md").read_text()
    assert between(page, "inference") == inference.markdown(), "run: python benchmarks/inference.py --markdown"
    for page in ("README.md", "docs/strategies.md"):
        shown = between((ROOT / page).read_text(), "inference")
        assert shown == inference.markdown("cpu", inference.SHORT), "run: python benchmarks/inference.py --short"


@pytest.mark.parametrize(("name", "benchmark"), [("evaluation", evaluation), ("ray", ray_engine)])
def test_the_page_on_evaluation_shows_the_measured_times(name, benchmark):
    shown = between((ROOT / "docs" / "evaluation.md").read_text(), name)
    assert shown == benchmark.markdown(), f"run: python {Path(benchmark.__file__).relative_to(ROOT)} --markdown"


def test_the_readme_shows_the_measured_paper():
    text = (ROOT / "README.md").read_text()
    assert between(text, "paper") == headline_table(Runs(ROOT / "results" / "cifar10")), "run: predbn paper document"
    (findings,) = verify(ROOT / "results" / "imagenet", ["I1"]).values()
    measured = {each.what: each.interval.estimate for finding in findings for each in finding.measurements}
    after = measured["mCE of vanilla, prediction BN, %"]
    before = after + measured["mCE: gain of prediction BN (vanilla), points"]
    assert f"from an mCE of {before:.1f} to {after:.1f}" in text


@pytest.mark.parametrize("benchmark", [recompute, segmentation])
def test_the_pages_on_models_show_the_measured_results(benchmark):
    shown = between((ROOT / "docs" / f"{benchmark.__name__}.md").read_text(), benchmark.__name__)
    assert shown == benchmark.markdown(), f"run: python benchmarks/{benchmark.__name__}.py --markdown"


def test_the_corruptions_page_shows_the_measured_speed():
    shown = between((ROOT / "docs" / "corruptions.md").read_text(), "speed")
    assert shown == corruptions.markdown(), "run: python benchmarks/corruptions.py --markdown"


def test_the_criteo_page_shows_the_measured_preparation():
    shown = between((ROOT / "docs" / "criteo.md").read_text(), "preparation")
    assert shown == criteo.markdown(), "run: python benchmarks/criteo.py --markdown"


@pytest.mark.parametrize(
    ("name", "benchmark"), [("cost", serving), ("soak", serving_soak), ("batcher", serving_batcher)]
)
def test_the_page_on_serving_shows_what_was_measured(name, benchmark):
    shown = between((ROOT / "docs" / "serving.md").read_text(), name)
    assert shown == benchmark.markdown(), f"run: python {Path(benchmark.__file__).relative_to(ROOT)} --markdown"


def test_the_page_on_the_doctor_shows_what_was_measured():
    page = (ROOT / "docs" / "doctor.md").read_text()
    for name, table in doctor.markdown().items():
        assert between(page, name) == table, "run: python benchmarks/doctor.py --markdown"


def test_the_reliability_page_shows_what_was_tried():
    shown = between((ROOT / "docs" / "reliability.md").read_text(), "chaos")
    assert shown == chaos.markdown(), "run: python -m tests.chaos --markdown"
    assert json.loads(chaos.RESULT.read_text())["problems"] == []


def test_the_page_on_onnx_shows_what_adapted_files_cost():
    shown = between((ROOT / "docs" / "onnx.md").read_text(), "cost")
    assert shown == onnx_files.markdown(), "run: python benchmarks/onnx_files.py --markdown"


DISCUSSED = {
    "cifar10/discussion.md": {
        "holds": "C2.3 C4.1 C5.2 C6.3",
        "not clear": "C1.4 C1.5 C4.3 C6.1 C6.2 C8.2 D4.1",
        "does not hold": "C2.2 C5.1 C6.4 C7.1 D1.1 D2.2 D2.3",
    },
    "imagenet/discussion.md": {
        "holds": "I1.1",
        "not clear": "I1.5 I2.3 I3.3 I4.1 I7.3",
        "does not hold": "I7.4 I7.5 I8.1",
    },
    "criteo/discussion.md": {"holds": "K1.2 K1.3 K1.4", "not clear": "K1.5", "does not hold": "K1.6 K1.7 K1.8"},
    "auto.md": {
        "not clear": "auto.4 auto.5 auto.12 auto.15",
        "does not hold": "auto.1 auto.2 auto.7 auto.8 auto.10 auto.11",
    },
}


def test_claims_that_fail_are_discussed_and_what_is_discussed_was_found():
    findings = verify(ROOT / "results" / "cifar10")
    verdicts = {each.claim.id: each.verdict.value for group in findings.values() for each in group}
    discussed = {}
    for path, groups in DISCUSSED.items():
        expected = {id: verdict for verdict, ids in groups.items() for id in ids.split()}
        text = (ROOT / "results" / path).read_text()
        assert set(re.findall(r"^## (\S+)$", text, re.MULTILINE)) == set(expected)
        discussed |= expected
    assert {id: verdicts[id] for id in discussed} == discussed
    assert {id for id, verdict in verdicts.items() if verdict in ("not clear", "does not hold")} <= set(discussed)


def test_the_training_page_shows_the_zoo():
    shown = between((ROOT / "docs" / "training.md").read_text(), "zoo")
    assert shown == zoo.markdown(), "run: predbn zoo --markdown"


@pytest.mark.parametrize(
    ("name", "benchmark"),
    [
        ("passes", auto_sizes),
        ("borders", auto_borders),
        ("ablation", auto_ablation),
        ("peer attacks", peer_attacks),
        ("stream", auto_stream),
        ("outliers", outliers),
    ],
)
def test_the_evidence_on_auto_is_what_was_measured(name, benchmark):
    shown = between((ROOT / "docs" / "auto-evidence.md").read_text(), name)
    assert shown == benchmark.markdown(), f"run: python {Path(benchmark.__file__).relative_to(ROOT)} --markdown"


def test_the_evidence_on_auto_shows_other_methods():
    page = (ROOT / "docs" / "auto-evidence.md").read_text()
    shown = [between(page, f"peers {table}") for table in ("accuracy", "calibration")]
    assert shown == peer_streams.markdown().split("\n\n")[1:], "run: python benchmarks/peer_streams.py --markdown"


def test_the_headline_of_auto_is_that_of_its_results():
    table = headline_of_auto(Runs(ROOT / "results" / "cifar10")).replace("**", "").splitlines()
    rows = [line for line in table if re.match(r"\| \||\|---|.*`(train|batch|auto)`", line)]
    for page in ("README.md", "docs/auto.md"):
        shown = between((ROOT / page).read_text(), "auto headline").splitlines()
        assert shown == rows, "copy the rows of docs/auto-results.md"
