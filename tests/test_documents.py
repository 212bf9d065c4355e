"""Documents say what the results say."""

import json
import re
from pathlib import Path

import pytest

import averaged_model
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
import serving_fair
import serving_soak
import serving_streams
from predbn.commands import zoo
from predbn.paper import Runs, verify
from tests.chaos import __main__ as chaos

ROOT = Path(__file__).resolve().parent.parent


def between(text: str, name: str) -> str:
    return text.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip()


SHOWN = {
    "performance": {"inference": inference},
    "evaluation": {"evaluation": evaluation, "ray": ray_engine},
    "recompute": {"recompute": recompute},
    "segmentation": {"segmentation": segmentation},
    "corruptions": {"speed": corruptions},
    "criteo": {"preparation": criteo},
    "serving": {
        "cost": serving,
        "fair": serving_fair,
        "soak": serving_soak,
        "batcher": serving_batcher,
        "streams": serving_streams,
    },
    "reliability": {"chaos": chaos},
    "onnx": {"cost": onnx_files},
    "comparison": {"outliers": outliers, "peer attacks": peer_attacks},
}
"""By page: the places in it, and what writes them."""


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, places in SHOWN.items() for name in places])
def test_a_page_shows_what_was_measured(page, name):
    shown = between((ROOT / "docs" / f"{page}.md").read_text(), name)
    assert shown == SHOWN[page][name].markdown(), f"run {SHOWN[page][name].__file__} with --markdown"


def test_the_cost_of_strategies_is_shown_in_short():
    shown = between((ROOT / "docs" / "strategies.md").read_text(), "inference")
    assert shown == inference.markdown("cpu", inference.SHORT), "run: python benchmarks/inference.py --short"


def test_the_page_on_averaged_weights_shows_what_was_measured():
    shown = between((ROOT / "docs" / "guides" / "averaged-weights.md").read_text(), "averaged")
    assert shown == averaged_model.markdown(), "run: python examples/averaged_model.py --write"


def test_the_page_on_the_doctor_shows_what_was_measured():
    page = (ROOT / "docs" / "doctor.md").read_text()
    for name, table in doctor.markdown().items():
        assert between(page, name) == table, "run: python benchmarks/doctor.py --markdown"


def test_nothing_was_lost_in_the_trials_of_reliability():
    assert json.loads(chaos.RESULT.read_text())["problems"] == []


DISCUSSED = {
    "cifar10/discussion.md": {
        "holds": "C4.1 C5.1 C5.3 C6.3 D1.1 D2.2",
        "not clear": "C1.4 C1.6 C2.3 C6.2 C6.4 C8.1",
        "does not hold": "C7.1 D4.1",
    },
    "imagenet/discussion.md": {
        "holds": "I1.1 I4.1",
        "not clear": "I1.5 I2.3 I3.4 I7.3",
        "does not hold": "I7.4 I7.5 I8.1",
    },
    "criteo/discussion.md": {"holds": "K1.2 K1.3 K1.4", "not clear": "K1.5", "does not hold": "K1.6 K1.7 K1.8"},
}


def test_the_border_is_shown_as_in_its_replication():
    measured = {
        cells[0]: cells[1:]
        for line in (ROOT / "docs" / "replication-setup.md").read_text().splitlines()
        if line.startswith("| accuracy on ")
        and len(cells := [cell.strip() for cell in line.strip("| ").split("|")]) == 4
    }
    columns = [
        measured[f"accuracy on {data}, %, {bn} BN"]
        for data in ("clean images", "95 splits")
        for bn in ("train", "prediction")
    ]
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    borders = ("2 pixels, black (10 networks)", "4 pixels, black (10 networks)", "4 pixels, reflected (5 networks)")
    for border, row in zip(borders, zip(*columns, strict=True), strict=True):
        assert f"| {border} | {' | '.join(row)} |" in text


def test_claims_that_fail_are_discussed_and_what_is_discussed_was_found():
    findings = verify(Runs(ROOT / "results" / "cifar10"))
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
    headings, _, *rows = (tuple(cell.strip() for cell in line.strip("|").split("|")) for line in shown.splitlines())
    assert [headings, *rows] == [zoo.HEADINGS, *zoo.rows_by_kind()]


def test_the_comparison_shows_other_methods():
    page = (ROOT / "docs" / "comparison.md").read_text()
    shown = [between(page, f"peers {table}") for table in ("accuracy", "calibration")]
    assert shown == peer_streams.markdown().split("\n\n")[1:], "run: python benchmarks/peer_streams.py --markdown"
