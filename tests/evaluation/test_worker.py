"""Units against a slow, obvious reference that corrupts, predicts and measures a whole split at once."""

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from predbn import metrics
from predbn.data import sample
from predbn.evaluation import EvaluationError, InProcess, Plan, Split
from predbn.evaluation.job import Job
from predbn.evaluation.splits import positions
from predbn.evaluation.units import Cell, Fit, SplitUnit
from predbn.methods import Temperature
from predbn.norm import adapted
from predbn.shifts import corrupt, orders

from . import tiny

COUNT = 70
TEST, VALIDATION = sample("test"), sample("validation")
STRATEGIES = ("train", "prior(N=16)", "frozen", "ema", "population", "batch[eps=0.1, layers=last]")


def job(**given):
    models = {f"t/{k}": tiny.classifier(k) for k in range(2)}
    plan = Plan(**{"models": list(models), "shifts": ("fog",), "images": COUNT, **given})
    return Job(plan, data=TEST, validation=VALIDATION.take(200), models=models)


def logits_of(model, images, size, strategy):
    name, _, options = strategy.partition("[")
    given = {"eps": 0.1, "layers": "last"} if options else {}
    if name == "population":
        given["loader"] = images.split(50)
    with torch.no_grad(), adapted(model, name, **given):
        return torch.cat([model(batch) for batch in images.split(size)])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_equal_the_reference(strategy):
    made = job(strategies=[strategy], batch_sizes=(1, 4, 50, "all"), orders=("dirichlet:0.5",), seeds=(3,))
    (unit,) = made.split_units([], set())[:1]
    unit = SplitUnit(Split("fog", 4), "dirichlet:0.5", 3, unit.cells)
    rows = made.worker.do(unit).rows
    assert len(rows) == 8
    images = TEST
    visited = positions("dirichlet:0.5", images.labels, 3, COUNT)
    shifted = corrupt(images.images[visited], "fog", 4, seed=3, index=images.index[visited])
    labels = images.labels[visited]
    for row in rows:
        model = tiny.classifier(int(row.cell.model[-1]))
        logits = logits_of(model, shifted, row.cell.batch_size, strategy)
        p = logits.softmax(1)
        assert row.metrics["accuracy"] == pytest.approx(float(metrics.accuracy(p, labels)), abs=1e-9)
        assert row.metrics["brier"] == pytest.approx(float(metrics.brier(p, labels)), abs=2e-6)
        assert row.metrics["nll"] == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)
        assert row.metrics["ece"] == pytest.approx(float(metrics.ece(p, labels)), abs=1e-4)
        assert sum(each["count"] for each in row.reliability) == COUNT


def test_models_that_do_not_fit_in_memory_together_give_the_same_rows():
    options = {"strategies": ("train", "batch", "ema", "population"), "batch_sizes": (50,), "images": 60}
    whole = job(**options)
    unit = replace(whole.split_units([], set())[0], split=Split("contrast", 3))
    assert replace(whole, memory_limit=1).worker.do(unit).rows == whole.worker.do(unit).rows


def test_an_ensemble_is_the_mean_of_its_members_probabilities():
    made = job()
    made.worker.members = {"all": ["t/0", "t/1"]}
    cells = (Cell("all", "ensemble", "batch", 50), Cell("t/1", "temperature(value=2.0)", "train", 50))
    rows = made.worker.do(SplitUnit(Split("clean", 0), "official", 0, cells)).rows
    images = TEST
    chosen = positions("official", images.labels, 0, COUNT)
    pictures, labels = images.images[chosen], images.labels[chosen]
    p = sum(logits_of(tiny.classifier(k), pictures, 50, "batch").softmax(1) for k in range(2)) / 2
    assert rows[0].metrics["brier"] == pytest.approx(float(metrics.brier(p, labels)), abs=2e-6)
    p = (logits_of(tiny.classifier(1), pictures, 50, "train") / 2).softmax(1)
    assert rows[1].metrics["brier"] == pytest.approx(float(metrics.brier(p, labels)), abs=2e-6)


def test_a_temperature_is_fitted_on_shuffled_validation_data_under_the_same_strategy_and_batch_size():
    made = job(strategies=("batch", "batch[eps=0.5]"), methods=("temperature",), batch_sizes=(50,))
    made.worker.validation = images = _learnable(VALIDATION.take(200))
    order = torch.from_numpy(orders.shuffled(200, seed=0))
    pictures, labels = images.images[order], images.labels[order]
    units = made.temperature_units()
    assert len(units) == 4
    for unit, eps in ((units[0], None), (units[1], 0.5)):
        (fit,) = made.worker.do(unit).fits
        with torch.no_grad(), adapted(model := tiny.classifier(0), "batch", eps=eps):
            logits = torch.cat([model(batch) for batch in pictures.split(50)])
        assert fit.value == pytest.approx(Temperature.fit(logits, labels).value, rel=1e-4)


def _learnable(images):
    """Labels that the untrained network mostly agrees with, so that a temperature exists."""
    with torch.no_grad(), adapted(model := tiny.classifier(0), "batch"):
        guessed = model(images.images).argmax(1)
    labels = torch.where(torch.arange(len(images)) % 4 == 0, images.labels, guessed)
    return type(images)(images.images, labels, images.index, images.classes, images.name)


def test_a_temperature_is_fitted_on_one_core(monkeypatch):
    cores = []

    def fit(logits, labels):
        cores.append(torch.get_num_threads())
        return Temperature(2.0)

    monkeypatch.setattr(Temperature, "fit", staticmethod(fit))
    made = job(methods=("temperature",), strategies=("batch",), batch_sizes=(50,))
    made.worker.do(made.temperature_units()[0])
    assert cores == [1]


def test_a_fitted_temperature_reaches_the_rows():
    made = job()
    fits = (Fit("t/0", "batch", 50, "temperature", 3.0), Fit("t/0", "train", 50, "temperature", 9.0))
    cells = tuple(Cell("t/0", method, "batch", 50) for method in ("temperature", "temperature(value=3.0)"))
    rows = made.worker.do(SplitUnit(Split("snow", 2), "shuffled", 0, cells, fits)).rows
    assert rows[0].metrics == rows[1].metrics


def test_logits_that_are_not_finite_are_an_error_that_names_the_image():
    made = Job(Plan(models="b", images=20), data=TEST, models={"b": tiny.broken()})
    first = int(TEST.index[positions("official", TEST.labels, 0, 20)].min())
    with pytest.raises(EvaluationError, match=f"not finite on snow at severity 2, .* with index {first}:"):
        made.worker.do(SplitUnit(Split("snow", 2), "official", 0, (Cell("b", "vanilla", "train", 10),)))


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_other_precisions_need_a_gpu(precision):
    with pytest.raises(EvaluationError, match=f"precision {precision} needs a GPU"):
        job(precision=precision)


class EagerPrefetcher:
    """A prefetcher that needs no GPU: it makes the first block immediately, and counts the streams."""

    def __init__(self):
        self.started = 0

    def start(self, blocks):
        self.started += 1
        made = blocks()
        first = next(made, None)
        return iter(()) if first is None else itertools.chain([first], made)


def units_of(made):
    cells = made.split_units([], set())[0].cells
    return [SplitUnit(Split(name, 2), "shuffled", 1, cells) for name in ("fog", "snow", "frost", "contrast")]


def test_an_error_does_not_lose_the_result_before_it(monkeypatch):
    made, alone = job(), job()
    made.worker.__dict__["_prefetcher"] = EagerPrefetcher()
    units, original = units_of(made), made.worker._measure
    monkeypatch.setattr(
        made.worker, "_measure", lambda started: 1 / 0 if started.unit is units[1] else original(started)
    )
    results = InProcess().run(made, units)
    assert next(results).rows == alone.worker.do(units[0]).rows
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_prefetching_the_next_units_changes_nothing():
    made, alone = job(strategies=("batch", "population")), job(strategies=("batch", "population"))
    made.worker.__dict__["_prefetcher"] = prefetcher = EagerPrefetcher()
    units = units_of(made)
    results = InProcess().run(made, units)
    assert next(results).rows == alone.worker.do(units[0]).rows
    assert prefetcher.started > len(units), "all units are started ahead, and population streams on top"
    assert [result.rows for result in results] == [alone.worker.do(unit).rows for unit in units[1:]]
