import pytest
import torch

from predbn.evaluation import EvaluationError, Split
from predbn.evaluation.source import PictureSource
from predbn.evaluation.splits import check_order, mixed_kinds, positions, resolve
from predbn.shifts import ShiftError, names, orders

ALL = names("all")


def test_all_is_the_clean_images_and_95_splits():
    splits = resolve(["all"], (1, 2, 3, 4, 5), ALL)
    assert len(splits) == len(set(splits)) == 96
    assert splits[0] == Split("clean", 0)
    assert {s.corruption for s in splits[1:]} == set(ALL)


def test_names_are_combined_without_repetition():
    splits = resolve(["fog", "clean", "standard", "mixed-5"], (3,), ALL)
    assert splits[:2] == [Split("fog", 3), Split("clean", 0)]
    assert len(splits) == len(set(splits)) == 17
    assert splits[-1] == Split("mixed-5", 3)


def test_published_data_may_have_no_clean_images():
    assert resolve(["all"], (1,), ["fog"], has_clean=False) == [Split("fog", 1)]
    with pytest.raises(EvaluationError, match="no clean images: name them with --clean"):
        resolve(["clean"], (1,), ["fog"], has_clean=False)


def test_a_shift_that_the_data_does_not_have_is_an_error():
    with pytest.raises(EvaluationError, match="'snow' is not in the data, which has fog"):
        resolve(["snow"], (1,), ["fog"])
    with pytest.raises(EvaluationError, match="more corruptions than the 1"):
        resolve(["mixed-5"], (1,), ["fog"])
    with pytest.raises(ShiftError, match="did you mean 'fog'"):
        PictureSource.check_shift("fogg")


def test_a_mixture_draws_its_kinds_from_the_seed():
    kinds = mixed_kinds(Split("mixed-5", 3), ALL, 0)
    assert len(set(kinds)) == 5
    assert kinds == mixed_kinds(Split("mixed-5", 1), list(reversed(ALL)), 0)
    assert kinds != mixed_kinds(Split("mixed-5", 3), ALL, 1)
    assert set(mixed_kinds(Split("mixed-19", 3), ALL, 7)) == set(ALL)
    assert mixed_kinds(Split("fog", 3), ALL, 0) is None


def test_orders_are_those_of_shifts():
    labels = torch.arange(50) % 7
    assert positions("official", labels, 3).tolist() == list(range(50))
    assert positions("shuffled", labels, 3).tolist() == orders.shuffled(50, seed=3).tolist()
    assert positions("by_class", labels, 3).tolist() == orders.by_class(labels.numpy(), seed=3).tolist()
    assert positions("dirichlet:0.1", labels, 3).tolist() == orders.dirichlet(labels.numpy(), 0.1, seed=3).tolist()


def test_a_subset_of_images_is_the_same_for_all_orders_and_seeds():
    labels = torch.arange(100) % 10
    chosen = {tuple(sorted(positions(o, labels, s, 20).tolist())) for o in ("official", "by_class") for s in (0, 1)}
    assert len(chosen) == 1
    with pytest.raises(EvaluationError, match="wants 101 images, but the data has 100"):
        positions("official", labels, 0, 101)


@pytest.mark.parametrize("order", ["sorted", "dirichlet", "dirichlet:0", "dirichlet:x"])
def test_an_unknown_order_is_an_error(order):
    with pytest.raises(EvaluationError):
        check_order(order)
