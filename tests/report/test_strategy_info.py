"""Strategies in words."""

import pytest

import predbn
from predbn.evaluation import Setting
from predbn.report.strategy_info import strategy_label, strategy_labels, strategy_order, strategy_sentences

BUILT_IN = ("train", "batch", "prior", "ema", "frozen", "population", "auto", "auto_stream")


def test_every_built_in_strategy_has_a_sentence_and_a_place():
    assert [name for name, sentence in strategy_sentences(BUILT_IN) if sentence.endswith(".")] == list(BUILT_IN)
    assert sorted(strategy_order()) == predbn.strategies()
    assert strategy_order()[:2] == ["train", "batch"]
    with_arguments = ["prior(N=16)", "prior(N=4)", "batch[eps=0.1]", "mine"]
    assert [name for name, _ in strategy_sentences(with_arguments)] == ["prior", "batch"]


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ("auto(calibrated=True, passes=4)", "auto(passes=4)"),
        ("auto(calibrated=True, passes=1)", "auto"),
        ("auto_stream(calibrated=True, momentum=0.1)", "auto_stream"),
        ("prior(N=16)", "prior"),
        ("prior(N=4)", "prior(N=4)"),
        ("ema(momentum=0.1, start='source')[layers=last]", "ema[layers=last]"),
        ("batch[eps=0.01]", "batch[eps=0.01]"),
    ],
)
def test_a_label_is_short_and_stands_for_the_same_strategy(spec, label):
    assert strategy_label(spec) == label
    assert Setting.parse(label) == Setting.parse(spec)


def test_what_is_not_a_strategy_is_its_own_label():
    assert strategy_label("mine(x=1)") == "mine(x=1)"
    assert strategy_label("auto(of_old=1)") == "auto(of_old=1)"


def test_two_specs_of_one_strategy_are_told_apart():
    specs = ["auto", "auto(calibrated=True, passes=1)", "prior(N=16)"]
    assert strategy_labels(specs) == {specs[0]: "auto", specs[1]: specs[1], specs[2]: "prior"}
