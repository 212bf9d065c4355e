"""The tuned eps against a loop over the grid, and the model left alone."""

import io

import pytest
import torch

import predbn
from predbn.methods import MethodError, fit_temperature, tune_eps
from predbn.metrics import accuracy, ece

from .models import STRATEGIES, labelled, models, snapshot

GRID = (1e-5, 1e-2, 1.0, 30.0)


def looped(model, batches, strategy, eps):
    """(accuracy, ECE) with one eps, computed directly."""
    options = {"loader": batches} if strategy == "population" else {}
    with predbn.adapted(model, strategy, eps=eps, **options), torch.no_grad():
        p = torch.cat([model(images).softmax(1) for images, _, _ in batches])
    labels = torch.cat([labels for _, labels, _ in batches])
    return accuracy(p, labels).item(), ece(p, labels).item()


def stream_state(model):
    """The state of a model's stream as bytes; empty if the model is not adapted."""
    buffer = io.BytesIO()
    if "_predbn" in model.bn1.__dict__:
        torch.save(predbn.state_dict(model), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_equals_a_loop_over_the_grid(strategy):
    model = models(1)[0]
    batches = labelled(model)
    rows = {eps: looped(model, batches, strategy, eps) for eps in (None, *GRID)}
    for loss in (0.0, 1.0) if strategy == "batch" else (0.1,):
        calls = []
        choice = tune_eps(
            model,
            batches,
            strategy=strategy,
            grid=GRID,
            max_accuracy_loss=loss,
            progress=lambda *done, calls=calls: calls.append(done),
        )
        assert calls == [(count, 5) for count in range(1, 6)]
        assert [row.eps for row in choice.table] == list(rows)
        for row in choice.table:
            assert (row.accuracy, row.ece) == pytest.approx(rows[row.eps], abs=1e-6)
        allowed = [eps for eps, (right, _) in rows.items() if right >= rows[None][0] - loss - 1e-12]
        assert choice.eps == min(allowed, key=lambda eps: rows[eps][1])


@pytest.mark.parametrize("before", [None, "ema", "frozen", "train"])
def test_the_model_is_left_as_it_was(before):
    model = models(1)[0]
    batches = labelled(model)
    if before is not None:
        predbn.adapt(model, before, eps=0.5)
        model(batches[0].images)
    model.train()
    model.bn1.eval()
    was, described, stream = snapshot(model), str(predbn.describe(model)), stream_state(model)
    tune_eps(model, batches, grid=(0.1,))
    assert (snapshot(model), str(predbn.describe(model)), stream_state(model)) == (was, described, stream)
    with pytest.raises(MethodError, match="but got Tensor"):
        tune_eps(model, [*batches, batches[0].images], grid=(0.1,))
    assert (snapshot(model), str(predbn.describe(model)), stream_state(model)) == (was, described, stream)


def test_an_ensemble_is_tuned_as_one():
    members = models(3)
    batches = labelled(members[0])
    choice = tune_eps(members, batches, grid=(0.1,))
    wanted = []
    for eps in (None, 0.1):
        for member in members:
            predbn.adapt(member, eps=eps)
        with torch.no_grad():
            p = torch.cat([sum(m(b.images).softmax(1) for m in members) / 3 for b in batches])
        wanted.append(ece(p, torch.cat([b.labels for b in batches])).item())
    assert [row.ece for row in choice.table] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("fit", [tune_eps, fit_temperature])
def test_all_options_of_adapt_are_passed_on(fit):
    model = models(1)[0]
    batches = labelled(model)
    halves = [(part_x, part_y) for x, y, _ in batches for part_x, part_y in zip(x.split(4), y.split(4), strict=True)]
    assert all(len(x) == 4 for x, _ in halves)
    grouped = fit(model, batches, group=4, sync=False, process_group=None, layers="all")
    one_by_one = fit(model, halves)
    if fit is tune_eps:
        assert [row.nll for row in grouped.table] == pytest.approx([row.nll for row in one_by_one.table], rel=1e-5)
    else:
        assert grouped.value == pytest.approx(one_by_one.value, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": iter([])}, "but got an iterator"),
        ({"batches": []}, "at least one batch"),
        ({"grid": ()}, "one or more values of eps"),
        ({"eps": 0.1}, "give the values to try as grid"),
        ({"max_accuracy_loss": -0.1}, "at least 0, but got -0.1"),
        ({"models": []}, "one or several models"),
        ({"grid": (-1.0,)}, "eps must be a finite number, 0 or more, got -1.0"),
        ({"strategy": "bach"}, "did you mean 'batch'"),
    ],
)
def test_wrong_arguments_are_an_error(change, message):
    model = models(1)[0]
    arguments = {"models": model, "batches": labelled(model), **change}
    with pytest.raises(ValueError, match=message):
        tune_eps(**arguments)
