"""Old camera, new camera: in Python, with and without labels, against what is computed by hand."""

import json

import numpy as np
import pytest
import torch

import predbn
from predbn.common import DataError, EvaluationError
from predbn.data import ReferenceAndData, open_in_order
from predbn.diagnostics import Examination, Finding
from predbn.recommendation import evaluate_shift, real_shifts, recommendation_sentences, shift_run

from . import colours

OPTIONS = {"strategies": ["batch", "ema"], "batch_sizes": [20], "progress": False, "device": "cpu"}


@pytest.fixture(scope="module")
def cameras(tmp_path_factory):
    root = tmp_path_factory.mktemp("cameras")
    colours.write_folder(root / "old", *colours.pictures(120))
    colours.write_folder(root / "new", *colours.pictures(200, shifted=True))
    colours.write_folder(root / "flat", *colours.pictures(200, shifted=True), flat=True)
    return root


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def predictions(strategy: str | None) -> np.ndarray:
    """What the network predicts in batches of 20, the pictures in the order of their numbers."""
    images, _ = colours.pictures(200, shifted=True)
    model = colours.classifier()
    if strategy:
        predbn.adapt(model, strategy)
    batches = torch.from_numpy(images).permute(0, 3, 1, 2).split(20)
    with torch.no_grad():
        return torch.cat([model(batch.contiguous()).argmax(1) for batch in batches]).numpy()


def test_with_labels_it_recommends_what_helps_and_says_by_how_much(cameras, tmp_path):
    found = evaluate_shift(colours.classifier(), cameras / "old", cameras / "new", out=tmp_path / "run", **OPTIONS)
    labels = colours.pictures(200, shifted=True)[1]
    before, after = ((predictions(strategy) == labels).mean() for strategy in (None, "batch"))
    assert after > before + 0.2
    recommendation = found.shift.recommendation
    assert (recommendation.strategy, recommendation.batch_size) == ("batch", 20)
    gain = recommendation.chosen.gains["accuracy"]
    assert gain.estimate == pytest.approx(after - before)
    first = found.sentences()[0]
    assert first.startswith("Use batch in batches of 20: the accuracy on the new data rises from ")
    for value in (100 * before, 100 * after, 100 * gain.estimate, 100 * gain.low, 100 * gain.high):
        assert f"{value:.1f}" in first
    assert found.python() == 'import predbn  # model: your network\npredbn.adapt(model, "batch")'
    assert "The data has shifted" in " ".join(found.findings)
    by_name = {each.short: each for each in found.shift.strategies}
    assert by_name["batch"].agreement == pytest.approx((predictions(None) == predictions("batch")).mean())
    changes = found.changes()
    assert len(changes) == (predictions(None) != predictions("batch")).sum()
    assert changes["file"].iloc[0].endswith(f"picture{changes['index'].iloc[0]}.png")
    assert set(changes["train"]) <= set(colours.CLASSES)
    assert json.loads((tmp_path / "run" / "examination.json").read_text())["sentences"] == found.findings


@pytest.mark.parametrize("strategy", ["auto", "auto(passes=4)"])
def test_the_python_of_a_calibrated_strategy_runs(cameras, strategy):
    found = evaluate_shift(
        colours.classifier(), cameras / "old", cameras / "new", **{**OPTIONS, "strategies": [strategy]}
    )
    assert "# loader: batches of old, as the model takes them" in found.python()
    loader = torch.from_numpy(colours.pictures(120)[0]).permute(0, 3, 1, 2).split(20)
    variables = {"model": colours.classifier(), "loader": loader}
    exec(found.python(), variables)
    assert variables["model"](loader[0]).shape == (20, 3)


def test_started_again_it_computes_nothing_and_says_the_same(cameras, tmp_path, monkeypatch):
    first = evaluate_shift(colours.classifier(), cameras / "old", cameras / "new", out=tmp_path, **OPTIONS)
    monkeypatch.setattr("predbn.evaluation.worker.Worker._start", None)
    monkeypatch.setattr("predbn.recommendation.shift_run.examine", None)
    again = evaluate_shift(colours.classifier(), cameras / "old", cameras / "new", out=tmp_path, **OPTIONS)
    assert again.sentences() == first.sentences()


def test_without_labels_it_says_what_would_change_and_recommends_nothing(cameras):
    found = evaluate_shift(colours.classifier(), cameras / "old", cameras / "flat", **OPTIONS)
    assert found.shift.recommendation is None
    assert found.sentences()[0].startswith("Leave the model alone for now: the new data has no labels")
    assert found.python() == ""
    changed = (predictions(None) != predictions("batch")).mean()
    assert f"batch in batches of 20 would predict {100 * changed:.1f} % of the 200 images" in str(found)
    assert set(found.results.frame["metric"][found.results.frame["corruption"] == "data"]) == {"confidence"}


@pytest.mark.parametrize(("is_labelled", "said"), [(True, "It has shifted."), (False, "It has shifted. No harm seen.")])
def test_what_predictions_seem_to_show_is_said_only_without_labels(is_labelled, said):
    examination = Examination(1, [Finding("shifted", "note", (), "It has shifted.", "No harm seen.")])
    assert shift_run._sentences(examination, is_labelled=is_labelled) == [said]


def test_if_nothing_has_shifted_the_model_is_left_alone(cameras):
    pair = ReferenceAndData(*(open_in_order(str(cameras / "old"), "test") for _ in range(2)))
    found = evaluate_shift(colours.classifier(), pair, **OPTIONS)
    assert found.shift.recommendation.strategy == "train"
    assert found.sentences()[0].startswith("Leave the model alone: ")


def test_pictures_come_by_file_name_whatever_their_class(cameras):
    images = open_in_order(str(cameras / "new"), "test")
    assert images.labels.tolist() == colours.pictures(200, shifted=True)[1].tolist()
    assert [name.rpartition("/")[2] for name in images.files[:12:11]] == ["picture0.png", "picture11.png"]
    assert open_in_order(str(cameras / "new"), "test", images=7).labels.tolist() == images.labels[:7].tolist()


def test_classes_are_found_by_name(tmp_path):
    images, labels = colours.pictures(60, shifted=True)
    colours.write_folder(tmp_path / "old", *colours.pictures(60))
    colours.write_folder(tmp_path / "new", images[labels > 0], labels[labels > 0])
    found = evaluate_shift(colours.classifier(), tmp_path / "old", tmp_path / "new", **OPTIONS)
    row = found.results.predictions.query("corruption == 'data'").iloc[0]
    assert row["label"].tolist() == labels[labels > 0].tolist()


def test_a_class_that_the_model_does_not_know_is_an_error_that_names_it(tmp_path):
    colours.write_folder(tmp_path / "old", *colours.pictures(60))
    colours.write_folder(tmp_path / "new", *colours.pictures(20))
    (tmp_path / "new" / "green").rename(tmp_path / "new" / "gren")
    with pytest.raises(DataError, match=r"'gren', which the model does not know \(did you mean 'green'\?\)"):
        evaluate_shift(colours.classifier(), tmp_path / "old", tmp_path / "new", **OPTIONS)
    found = evaluate_shift(colours.classifier(), tmp_path / "old", tmp_path / "new", unlabelled=True, **OPTIONS)
    assert not found.shift.is_labelled
    (tmp_path / "new" / "gren").rename(tmp_path / "new" / "green")
    (tmp_path / "classes.txt").write_text("blue\ngreen\nred\n")
    options = {**OPTIONS, "class_map": str(tmp_path / "classes.txt")}
    assert evaluate_shift(colours.classifier(), tmp_path / "old", tmp_path / "new", **options).shift.is_labelled


def test_sorted_pictures_are_noticed(tmp_path):
    images, labels = colours.pictures(90)
    order = np.argsort(labels, kind="stable")
    for name in ("old", "new"):
        colours.write_folder(tmp_path / name, images[order], labels[order])
    found = evaluate_shift(colours.classifier(), tmp_path / "old", tmp_path / "new", **OPTIONS)
    assert "add --order shuffled" in str(found)


@pytest.mark.parametrize(("options", "message"), [
    ({"shifts": ["fog"]}, "its data is the shift, but it names shifts and severities too"),
    ({"validation": "sample"}, "validation data too"),
    ({"methods": ["temperature"]}, "fitted with labels"),
    ({"orders": ["by_class"]}, "needs labels"),
])  # fmt: skip
def test_what_cannot_be_done_is_refused(cameras, options, message):
    with pytest.raises(EvaluationError, match=message):
        evaluate_shift(colours.classifier(), cameras / "flat", cameras / "flat", **{**OPTIONS, **options})


def test_results_are_read_back(cameras, tmp_path):
    found = evaluate_shift(colours.classifier(), cameras / "old", cameras / "new", out=tmp_path, **OPTIONS)
    assert recommendation_sentences(found.results)[0] == found.sentences()[0]
    assert len(real_shifts(found.results)) == 1
    assert found.results.filter(strategy="batch").predictions["strategy"].unique().tolist() == ["batch"]
