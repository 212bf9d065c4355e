"""The ImageNet experiments: their claims in made-up worlds, their plans on a few images."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from predbn import cli
from predbn.common import PaperError
from predbn.data import wnids
from predbn.paper import EXPERIMENTS, PLANS, Runs, run_plan, verify
from predbn.paper.claims import Verdict
from predbn.paper.document import documents
from predbn.paper.experiments.methods import IMAGENET_PREDICTION
from predbn.paper.image_measurements import mce
from predbn.paper.plans import imagenet

from .imagenet_world import IMAGES, MCE, ImageNetWorld

IDS = ("I1", "I2", "I3", "I4", "I7", "I8")
ELSEWHERE = {"I1.6", "I5.1", "I6.1", "I7.1", "I8.2"}
WITHOUT_INTERVAL = {"I1.5"}
"""One of its measurements has a single value, so that it cannot be clear."""
TRUE_OF_NOTHING = {"I3.5", "I4.3"}


@pytest.fixture(scope="module")
def as_the_paper(tmp_path_factory):
    return Runs(ImageNetWorld(1.0).write(tmp_path_factory.mktemp("imagenet") / "imagenet"))


@pytest.fixture(scope="module")
def without_effect(tmp_path_factory):
    return Runs(ImageNetWorld(0.0).write(tmp_path_factory.mktemp("null") / "imagenet"))


@pytest.mark.parametrize("id", IDS)
def test_every_claim_holds_if_the_results_are_as_the_paper_says(id, as_the_paper):
    (findings,) = verify(as_the_paper, [id]).values()
    special = dict.fromkeys(ELSEWHERE, Verdict.UNMEASURED) | dict.fromkeys(WITHOUT_INTERVAL, Verdict.UNCLEAR)
    wanted = {finding.claim.id: special.get(finding.claim.id, Verdict.HOLDS) for finding in findings}
    assert {finding.claim.id: finding.verdict for finding in findings} == wanted


def test_no_claim_of_an_effect_holds_without_an_effect(without_effect):
    found = verify(without_effect, IDS)
    held = {f.claim.id for findings in found.values() for f in findings if f.verdict is Verdict.HOLDS}
    assert held <= TRUE_OF_NOTHING


def test_the_mce_is_over_images_and_needs_their_hits(as_the_paper, tmp_path):
    measured = mce(as_the_paper, IMAGENET_PREDICTION, "below", 63)
    table = as_the_paper[imagenet.METHODS].mce()
    row = table[(table["strategy"] == "batch") & (table["method"] == "vanilla")].iloc[0]
    assert (measured.count, measured.over) == (IMAGES, "images")
    assert measured.interval.estimate == pytest.approx(row["mce"]) == pytest.approx(MCE, abs=0.6)
    assert (measured.interval.low, measured.interval.high) == pytest.approx((row["low"], row["high"]), abs=0.03)
    assert not measured.value.startswith("+")
    skip = tuple(plan.name for plan in imagenet.IMAGENET_PLANS[1:])
    bare = Runs(ImageNetWorld(1.0).write(tmp_path / "imagenet", hits=False, skip=skip))
    verdicts = {finding.claim.id: finding.verdict for finding in verify(bare, ["I1"])[EXPERIMENTS["I1"]]}
    assert {id for id, verdict in verdicts.items() if verdict is Verdict.HOLDS} == {"I1.3", "I1.4", "I1.7"}
    assert {verdicts[id] for id in ("I1.1", "I1.2", "I1.5")} == {Verdict.UNMEASURED}


def test_claims_without_data_name_the_command(as_the_paper):
    for findings in verify(as_the_paper, ["I5", "I6", "I7"]).values():
        assert findings[0].verdict is Verdict.UNMEASURED
        assert "predbn evaluate --data imagenet" in findings[0].why


def test_figures_are_drawn_and_linked(as_the_paper, tmp_path):
    assert all(EXPERIMENTS[id].figures(as_the_paper, only_first=True) for id in IDS)
    (tmp_path / "replication").mkdir()
    (tmp_path / "replication" / "I4-confidence-shifted.svg").touch()
    pages = documents(as_the_paper, tmp_path)
    assert "](replication/I4-confidence-shifted.svg)" in pages["replication-claims.md"]
    assert f"{IMAGES:,} images" in pages["replication-setup.md"]


def test_a_plan_runs_with_the_named_images_and_weights(small_network, pictures, tmp_path, monkeypatch):
    plan = PLANS[imagenet.METHODS]
    few = replace(plan, full=replace(plan.full, shifts=("clean", "fog"), severities=(5,)))
    monkeypatch.setitem(PLANS, imagenet.METHODS, few)
    small = {"images": 8, "weights": "w.safetensors"}
    assert run_plan(imagenet.METHODS, tmp_path / "imagenet", root=pictures, **small) is None
    runs = Runs(tmp_path / "imagenet")
    assert not runs.is_quick
    assert runs.reduced == {imagenet.METHODS: f"8 of {len(wnids()):,} images"}
    frame = runs[imagenet.METHODS].frame
    assert set(frame["model"]) == {"resnet50-v1/0"}
    assert set(frame["corruption"]) == {"clean", "fog"}
    card = json.loads((tmp_path / "imagenet" / imagenet.METHODS / "card.json").read_text())
    assert str(pictures) not in json.dumps(card)
    assert card["plan"]["precision"] == "fp32"
    with pytest.raises(PaperError, match="has full --images 8 results, but this is a full run"):
        run_plan(imagenet.METHODS, tmp_path / "imagenet", root=pictures, weights="w.safetensors")
    monkeypatch.setenv("PREDBN_IMAGENET", str(pictures))
    monkeypatch.setenv("PREDBN_RESNET50", "w.safetensors")
    assert run_plan(imagenet.EPS_AT_PREDICTION, tmp_path / "imagenet", images=4) is None
    strategies = Runs(tmp_path / "imagenet")[imagenet.EPS_AT_PREDICTION].frame["strategy"]
    assert set(strategies) == {f"batch[eps={eps}]" for eps in imagenet.EPS}


def test_missing_images_and_weights_are_named(tmp_path, monkeypatch, small_network):
    for name in ("PREDBN_IMAGENET", "PREDBN_RESNET50"):
        monkeypatch.delenv(name, raising=False)
    assert "no ImageNet images come with the package" in run_plan(imagenet.METHODS, tmp_path, quick=True)
    assert "use --weights FILE" in run_plan(imagenet.METHODS, tmp_path, root=tmp_path)
    assert "use --root DIR" in run_plan(imagenet.METHODS, tmp_path, weights="w.safetensors")
    assert "nowhere" in run_plan(imagenet.METHODS, tmp_path, root=tmp_path / "nowhere", weights="w.safetensors")
    shown = CliRunner().invoke(cli.app, ["paper", "run", "I1", "I5", "--results", str(tmp_path), "--device", "cpu"])
    assert shown.exit_code == 0
    assert "resnet50-methods: not measured: the weights of ResNet-50 v1 are not named" in shown.output
    assert "I5: nothing to run here" in shown.output
    assert Runs(tmp_path).measured == []
