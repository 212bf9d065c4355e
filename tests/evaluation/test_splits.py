import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from predbn.data import DataError
from predbn.evaluation import EvaluationError, Split
from predbn.evaluation.source import PictureSource
from predbn.evaluation.splits import check_order, make_stream, positions, resolve
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
    with pytest.raises(EvaluationError, match="'in_turn-extra' needs saturate, but the data has only speckle"):
        resolve(["in_turn-extra"], (1,), ["speckle_noise", "gaussian_blur", "spatter"])
    with pytest.raises(ShiftError, match="did you mean 'fog'"):
        PictureSource.check_shift("fogg")


CHANGES = ["mixed-5", "mixed-all-levels", "in_turn-4", "in_turn-extra-levels", "markov-5-0", "markov-all-levels-.95"]
ORDERS = ["official", "shuffled", "by_class", "dirichlet:0.1", "dirichlet:1", "markov:0.9"]


@given(
    st.sampled_from(CHANGES),
    st.sampled_from(ORDERS),
    st.integers(1, 5),
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(0, 99),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_a_stream_has_every_pair_at_most_once_and_all_images_equally_often(name, order, severity, labels, seed, data):
    images = data.draw(st.integers(1, len(labels)))
    split, index = Split(name, severity), torch.arange(len(labels)) + 1000

    def stream_of(order, seed):
        return make_stream(split, positions(order, torch.tensor(labels), seed, images), index, ALL, seed)

    stream, again = stream_of(order, seed), stream_of(order, seed)
    assert stream.splits == again.splits
    assert torch.equal(stream.numbers, again.numbers)
    assert torch.equal(stream.positions, again.positions)
    pairs = list(zip(stream.numbers.tolist(), stream.positions.tolist(), strict=True))
    visits_per_image = len(stream.splits) if name.startswith("in_turn") else 1
    assert len(set(pairs)) == len(pairs) == images * visits_per_image
    assert {number for number, _ in pairs} <= set(range(len(stream.splits)))
    visits = torch.bincount(stream.positions, minlength=len(labels))
    assert set(visits.tolist()) <= {0, visits_per_image}
    assert torch.equal(visits, torch.bincount(stream_of("official", seed + 1).positions, minlength=len(labels)))


def test_shifts_in_turn_visit_all_images_of_one_before_the_next():
    visited = positions("shuffled", torch.arange(6) % 3, 0)
    stream = make_stream(Split("in_turn-extra", 4), visited, torch.arange(6), ALL, 0)
    assert stream.splits == [Split(name, 4) for name in names("extra")]
    assert stream.numbers.tolist() == [number for number in range(4) for _ in range(6)]
    assert stream.positions.tolist() == visited.tolist() * 4


@pytest.mark.parametrize(("name", "count", "stay"), [("19", 19, 0.85), ("5", 5, 0), ("extra-levels", 12, 0.5)])
def test_a_markov_chain_of_shifts_stays_with_its_probability_and_gives_all_the_same_share(name, count, stay):
    length = 1000 * count
    stream = make_stream(Split(f"markov-{name}-{stay}", 3), torch.arange(length), torch.arange(length), ALL, 0)
    assert len(stream.splits) == count
    assert torch.bincount(stream.numbers).tolist() == [1000] * count
    stays = (stream.numbers[1:] == stream.numbers[:-1]).double()
    assert stays.mean().item() == pytest.approx(stay, abs=4 * (stay * (1 - stay) / length) ** 0.5)


def test_shifts_and_classes_of_markov_chains_are_independent():
    """The chain of classes and that of shifts move at different times, although they have the same seed."""
    labels = torch.arange(5000) % 5
    visited = positions("markov:0.8", labels, 0)
    numbers = make_stream(Split("markov-5-0.8", 3), visited, torch.arange(5000), ALL, 0).numbers
    moves = [each[1:] != each[:-1] for each in (labels[visited], numbers)]
    both = (moves[0] & moves[1]).double().mean().item()
    assert both == pytest.approx(0.2 * 0.2, abs=4 * (0.04 * 0.96 / 5000) ** 0.5)
    table = torch.zeros(5, 5).index_put_((labels[visited], numbers), torch.ones(5000), accumulate=True)
    assert table.min() > 100


def test_orders_are_those_of_shifts():
    labels = torch.arange(50) % 7
    assert positions("official", labels, 3).tolist() == list(range(50))
    assert positions("shuffled", labels, 3).tolist() == orders.shuffled(50, seed=3).tolist()
    assert positions("by_class", labels, 3).tolist() == orders.by_class(labels.numpy(), seed=3).tolist()
    assert positions("dirichlet:0.1", labels, 3).tolist() == orders.dirichlet(labels.numpy(), 0.1, seed=3).tolist()
    assert positions("markov:0.9", labels, 3).tolist() == orders.markov(labels.numpy(), 0.9, seed=3).tolist()


def test_a_subset_of_images_is_the_same_for_all_orders_and_seeds():
    labels = torch.arange(100) % 10
    chosen = {tuple(sorted(positions(o, labels, s, 20).tolist())) for o in ("official", "by_class") for s in (0, 1)}
    assert len(chosen) == 1
    with pytest.raises(DataError, match="Expected at most 100 images, as many as the data has, but got 101"):
        positions("official", labels, 0, 101)


@pytest.mark.parametrize(
    "order", ["sorted", "dirichlet", "dirichlet:0", "dirichlet:x", "markov", "markov:1", "markov:nan", "markov:-1"]
)
def test_an_unknown_order_is_an_error(order):
    with pytest.raises(EvaluationError):
        check_order(order)
