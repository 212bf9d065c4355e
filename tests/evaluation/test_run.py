"""Whole runs: the same values however they are computed, interrupted or added to."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from predbn.data import sample
from predbn.evaluation import EvaluationError, Plan, Results, Setting, evaluate, read_plan
from predbn.evaluation.job import Job
from predbn.evaluation.splits import Split
from predbn.methods import Temperature
from predbn.norm import adapt, calibrate

from . import tiny

ROOT = Path(__file__).resolve().parents[2]
DATA = sample("test").take(120)
MODELS = {f"t/{k}": tiny.classifier(k) for k in range(2)}
PLAN = Plan(
    models=list(MODELS),
    strategies=("train", "batch", "ema"),
    shifts=("clean", "fog", "mixed-5"),
    severities=5,
    batch_sizes=(50, 32),
    seeds=(0, 1),
)


def tables(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.parquet"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    evaluate(PLAN, out, data=DATA, models=MODELS)
    return out


class Backwards:
    """Another engine: units in another order, each computed by a new worker from a pickled job."""

    device = "cpu"

    def run(self, job, units):
        import pickle

        shuffled = list(units)
        random.Random(0).shuffle(shuffled)
        for unit in shuffled:
            yield pickle.loads(pickle.dumps(job)).worker.do(pickle.loads(pickle.dumps(unit)))


def test_a_plan_gives_every_row_exactly_once(whole):
    results = Results.load(whole)
    keys = [column for column in results.frame.columns if column != "value"]
    assert not results.frame.duplicated(keys).any()
    splits = 3
    assert len(results.frame) == splits * 2 * 2 * 3 * 2 * 6
    assert len(results.reliability) == splits * 2 * 2 * 3 * 2 * 10
    assert read_plan(whole / "plan.toml") == PLAN
    card = json.loads((whole / "card.json").read_text())
    assert card["data"]["images"] == 120
    assert card["models"]["t/0"]["preprocessing"]["size"] == [32, 32]
    assert card["batches"]["last"] == "kept, though it may be smaller"


def test_every_model_is_loaded_once_and_every_strategy_parsed_once(tmp_path, monkeypatch):
    loads, parses = [], []
    parse = Setting.parse.__func__
    monkeypatch.setattr("predbn.models.open_model", lambda name, **_: loads.append(name) or tiny.classifier(int(name)))
    monkeypatch.setattr(Setting, "parse", classmethod(lambda cls, text: parses.append(text) or parse(cls, text)))
    plan = Plan(
        models=("0", "1"),
        methods=("vanilla", "temperature"),
        strategies=("train", "batch", "auto"),
        shifts=("clean", "fog"),
        severities=3,
        batch_sizes=60,
        images=60,
    )
    monkeypatch.setattr(Temperature, "fit", staticmethod(lambda logits, labels: Temperature(2.0)))
    evaluate(plan, tmp_path)
    assert sorted(loads) == ["0", "1"]
    assert sorted(parses) == ["auto", "batch", "train"]


def test_engine_order_and_number_of_cores_do_not_change_the_tables(whole, tmp_path):
    torch.set_num_threads(2)
    evaluate(PLAN, tmp_path, data=DATA, models=MODELS, engine=Backwards())
    assert tables(tmp_path) == tables(whole)


def test_the_block_size_does_not_change_values(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("predbn.evaluation.worker._VALUES_PER_BLOCK", {"cpu": 1, "cuda": 1})
    plan = replace(PLAN, shifts="fog")
    evaluate(plan, tmp_path, data=DATA, models=MODELS)
    small, large = Results.load(tmp_path), Results.load(whole).filter(corruption="fog")
    assert small.frame.equals(large.frame)


def test_extending_a_plan_gives_the_tables_of_the_larger_plan(whole, tmp_path):
    few = replace(PLAN, strategies=("batch",), models=("t/1",), seeds=(1,))
    evaluate(few, tmp_path, data=DATA, models=MODELS)
    done = []
    evaluate(PLAN, tmp_path, data=DATA, models=MODELS, progress=lambda *told: done.append(told))
    assert tables(tmp_path) == tables(whole)
    again = []
    evaluate(PLAN, tmp_path, data=DATA, models=MODELS, progress=lambda *told: again.append(told))
    assert again == [(0, 0, "")]
    assert tables(tmp_path) == tables(whole)
    assert done[-1][0] == done[-1][1] == 6


@pytest.mark.parametrize(
    ("given", "other", "message"),
    [
        ({"images": 60}, {}, "number of images: 120 before, 60 now"),
        ({"bins": 15}, {}, "bins: 10 before, 15 now"),
        ({}, {"models": {**MODELS, "t/1": tiny.classifier(5)}}, "t/1 has other weights"),
        ({}, {"data": sample("test").take(range(120, 240))}, "the data has changed"),
    ],
)
def test_results_of_another_context_are_not_added_to_a_folder(whole, given, other, message):
    plan, before = replace(PLAN, **given), tables(whole)
    with pytest.raises(EvaluationError) as error:
        evaluate(plan, whole, **{"data": DATA, "models": MODELS, **other})
    assert message in str(error.value)
    assert "choose another folder with --out" in str(error.value)
    assert tables(whole) == before


SMALL = replace(PLAN, models=("t/0",), strategies=("batch",), shifts=("clean", "fog"), seeds=(0,), hits=True)


def run_small(out, **changes):
    """Evaluate, and return how many units were computed."""
    told = []
    evaluate(replace(SMALL, **changes), out, data=DATA, models=MODELS, progress=lambda *report: told.append(report))
    return told[-1][1]


@pytest.mark.parametrize("name", ["results", "reliability", "hits"])
def test_a_damaged_table_is_restored_as_its_message_advises(tmp_path, name):
    assert run_small(tmp_path) == 2
    before, path = tables(tmp_path), tmp_path / f"{name}.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    with pytest.raises(EvaluationError, match=f"{name}.parquet is damaged .*: remove it, and run the same command"):
        run_small(tmp_path)
    path.unlink()
    assert run_small(tmp_path) == 2
    assert tables(tmp_path) == before
    assert run_small(tmp_path) == 0


def test_hits_are_computed_for_a_run_that_was_finished_without_them(tmp_path):
    run_small(tmp_path / "without", hits=False)
    assert "hits.parquet" not in tables(tmp_path / "without")
    assert run_small(tmp_path / "without") == 2
    run_small(tmp_path / "with")
    assert tables(tmp_path / "without") == tables(tmp_path / "with")


def without(*path):
    def remove(card):
        *parents, last = path
        for name in parents:
            card = card[name]
        del card[last]

    return remove


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, r"has results, but no card\.json that says what was measured: restore it, or choose another --out"),
        (dict.clear, "does not state data: restore it, or choose another --out"),
        (without("data", "images"), r"does not state data\.images"),
        (without("data", "sha256"), r"does not state data\.sha256"),
        (without("models", "t/0", "sha256"), r"does not state models\.t/0\.sha256"),
        (without("bins"), "does not state bins"),
    ],
)
def test_rows_are_not_adopted_under_a_new_card(tmp_path, change, message):
    """Without the card nobody knows what was measured."""
    run_small(tmp_path)
    path, before = tmp_path / "card.json", tables(tmp_path)
    card = json.loads(path.read_text())
    path.unlink()
    if change is not None:
        change(card)
        card.pop("checksum", None)
        path.write_text(json.dumps(card))
    with pytest.raises(EvaluationError, match=message):
        run_small(tmp_path)
    assert tables(tmp_path) == before
    assert path.exists() == (change is not None)


def test_a_temperature_is_fitted_once_and_kept(tmp_path):
    with torch.no_grad():
        labels = MODELS["t/0"](DATA.images).argmax(1)
    labels = torch.where(torch.arange(120) % 3 == 0, DATA.labels, labels)
    validation = type(DATA)(DATA.images, labels, DATA.index, DATA.classes, "made-validation")
    plan = Plan(models="t/0", methods=("vanilla", "temperature"), strategies="train", shifts="clean", batch_sizes=60)
    given = {"data": DATA, "models": MODELS, "validation": validation}
    results = evaluate(plan, tmp_path, **given)
    assert results.fits[["model", "what"]].to_numpy().tolist() == [["t/0", "temperature"]]
    assert results.card["fits"][0]["value"] == results.fits["value"][0]
    units = []
    more = replace(plan, shifts=("clean", "fog"), severities=(1,))
    evaluate(more, tmp_path, progress=lambda *told: units.append(told[2]), **given)
    assert units == ["", "fog at severity 1"]


def test_fitting_needs_validation_data(tmp_path):
    plan = Plan(models="t/0", methods="temperature", data=str(tmp_path))
    with pytest.raises(EvaluationError, match="names no validation data"):
        evaluate(plan, tmp_path / "out", data=DATA, models=MODELS)


def test_auto_is_calibrated_on_the_validation_data(tmp_path):
    validation = sample("validation").take(90)
    data, strategy = DATA.take(60), "auto"
    plan = Plan(models="t/0", strategies=strategy, shifts="fog", severities=5, batch_sizes=(6, 30))
    results = evaluate(plan, tmp_path, data=data, models=MODELS, validation=validation)
    assert "clean validation data" in results.card["calibration"]
    assert results.card["validation"]["images"] == 90
    model = calibrate(tiny.classifier(0), [validation.images])
    job = Job(plan, data=data, models=MODELS, validation=validation)
    images = torch.cat([batch.images for batch in job.source.stream(Split("fog", 5), "shuffled", 0, 60)])
    labels = torch.cat([batch.labels for batch in job.source.stream(Split("fog", 5), "shuffled", 0, 60)])
    with torch.no_grad():
        for size, found in results.filter(metric="accuracy").frame.set_index("batch_size")["value"].items():
            logits = torch.cat([adapt(model, strategy)(part) for part in images.split(size)])
            assert abs((logits.argmax(1) == labels).double().mean() - found) < 0.02
    with pytest.raises(EvaluationError, match=r"or calibrates.*use auto\(calibrated=False\)"):
        evaluate(Plan(models="t/0", strategies="auto", data=str(tmp_path)), tmp_path / "b", data=data, models=MODELS)
    plain = Plan(models="t/0", strategies="auto(calibrated=False)", shifts="clean", data=str(tmp_path))
    assert "calibration" not in evaluate(plain, tmp_path / "c", data=data.take(9), models=MODELS).card


def test_an_ensemble_needs_several_models(tmp_path):
    with pytest.raises(EvaluationError, match="method ensemble needs several models, and t/0 is one"):
        evaluate(Plan(models="t/0", methods="ensemble"), tmp_path, data=DATA, models=MODELS)
