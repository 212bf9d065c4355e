"""Shifts that change within a stream: their names, and what strategies make of them."""

import pytest
import torch

from predbn.data import sample
from predbn.evaluation import EvaluationError, Plan, Results, evaluate, unpack_hits
from predbn.evaluation.changing_shift import ChangingShift
from predbn.evaluation.source import PictureSource
from predbn.evaluation.splits import positions
from predbn.norm import adapted, find_strategy
from predbn.shifts import corrupt, names

from . import tiny

ALL = names("all")
DATA = sample("test").take(120)
MODELS = {"t": tiny.classifier(0)}
PLAN = Plan(
    models="t",
    strategies=("train", "batch", "ema", "population"),
    shifts=("in_turn-extra", "mixed-3-levels", "markov-3-0.85", *names("extra")),
    severities=2,
    orders=("dirichlet:0.1", "markov:0.9"),
    batch_sizes=20,
    images=40,
    hits=True,
)


def splits_of(name, severity, available, seed):
    return ChangingShift.parse(name).splits(severity, available, seed)


def test_a_mixture_draws_its_kinds_from_the_seed():
    kinds = splits_of("mixed-5", 3, ALL, 0)
    # As in results that were measured before.
    assert kinds == [(name, 3) for name in ("fog", "glass_blur", "impulse_noise", "saturate", "speckle_noise")]
    assert [name for name, _ in kinds] == [name for name, _ in splits_of("mixed-5", 1, list(reversed(ALL)), 0)]
    assert kinds != splits_of("mixed-5", 3, ALL, 1)
    assert {name for name, _ in splits_of("mixed-19", 3, ALL, 7)} == set(ALL)
    assert ChangingShift.parse("fog") is None


def test_shifts_in_turn_are_drawn_in_an_order_or_come_in_the_published_one():
    assert splits_of("in_turn-standard", 5, ALL, 3) == [(name, 5) for name in names("standard")]
    drawn = [splits_of("in_turn-19", 5, ALL, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0]) == sorted(drawn[2]) == sorted((name, 5) for name in ALL)


def test_levels_go_up_to_the_severity():
    assert splits_of("mixed-extra-levels", 3, ALL, 0) == [(name, s) for name in names("extra") for s in (1, 2, 3)]
    assert len(splits_of("markov-all-levels-0.9", 5, ALL, 0)) == 95
    for name in ("mixed-7", "in_turn-7", "markov-standard"):
        stay = "-0.5" if name.startswith("markov") else ""
        assert splits_of(f"{name}-levels{stay}", 1, ALL, 4) == splits_of(f"{name}{stay}", 1, ALL, 4)


MALFORMED = """
mixed-0 mixed- mixed-few mixed-5-0.5 mixed-5-level in_turn-5-0.5 in_turn-05
markov-5 markov-5-1 markov-5-1.5 markov-5-x markov-5-0.5-levels markov-5:0.5
"""


@pytest.mark.parametrize("name", MALFORMED.split())
def test_a_changing_shift_that_cannot_be_read_is_an_error(name):
    with pytest.raises(EvaluationError, match="cannot be read: write it as in mixed-5") as error:
        PictureSource.check_shift(name)
    assert name in str(error.value)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    evaluate(PLAN, folder, data=DATA, models=MODELS)
    return folder


def accuracy(results, strategy, **selection):
    name = str(find_strategy(strategy))
    return results.filter(strategy=name, metric="accuracy", **selection).frame["value"].mean()


@pytest.mark.parametrize("order", PLAN.orders)
def test_without_state_shifts_in_turn_are_the_mean_of_their_splits(run, order):
    results = Results.load(run)
    for strategy in ("train", "batch"):
        in_turn = accuracy(results, strategy, corruption="in_turn-extra", order=order)
        assert in_turn == pytest.approx(accuracy(results, strategy, corruption=names("extra"), order=order), abs=1e-12)


@pytest.mark.parametrize("order", PLAN.orders)
@pytest.mark.parametrize("strategy", ["ema", "population"])
def test_the_state_of_a_strategy_is_kept_from_shift_to_shift(run, strategy, order):
    visited = positions(order, DATA.labels, 0, 40)
    images, index, labels = DATA.images[visited], DATA.index[visited], DATA.labels[visited]
    inputs = torch.cat([corrupt(images, name, 2, seed=0, index=index) for name in names("extra")])
    options = {"loader": inputs.split(20)} if strategy == "population" else {}
    model = tiny.classifier(0)
    with torch.no_grad(), adapted(model, strategy, **options):
        predicted = torch.cat([model(batch).argmax(1) for batch in inputs.split(20)])
    correct = predicted == labels.repeat(4)
    results = Results.load(run).filter(strategy=str(find_strategy(strategy)), corruption="in_turn-extra", order=order)
    assert accuracy(results, strategy) == pytest.approx(correct.double().mean().item(), abs=1e-12)
    assert accuracy(results, strategy) != accuracy(Results.load(run), strategy, corruption=names("extra"), order=order)
    (packed,) = results.hits["hits"]
    # By image, and for each image in the order of the shifts.
    by_image = correct.view(4, 40).T[torch.argsort(index)]
    assert unpack_hits(packed, 4 * 40).tolist() == by_image.reshape(-1).tolist()
