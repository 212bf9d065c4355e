"""Strategies in words."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest

import predbn
from predbn import report
from predbn.evaluation import Setting
from predbn.report.strategy_info import strategy_label, strategy_labels, strategy_order, strategy_sentences


def built_in(base: type[predbn.Strategy] = predbn.Strategy) -> Iterator[str]:
    """The strategies of the package, without those that other tests define."""
    for strategy in base.__subclasses__():
        if strategy.__module__.startswith("predbn.") and "name" in vars(strategy):
            yield strategy.name
        yield from built_in(strategy)


@pytest.mark.parametrize("strategy", sorted(built_in()))
def test_every_strategy_has_a_sentence(strategy):
    ((name, sentence),) = strategy_sentences([strategy])
    assert name == strategy
    assert sentence.endswith(".")


def test_the_order_has_every_strategy_once_and_begins_with_the_baseline():
    assert sorted(strategy_order()) == predbn.strategies()
    assert strategy_order()[:2] == ["train", "batch"]


def test_arguments_do_not_matter_and_unknown_strategies_are_left_out():
    names = ["prior(N=16)", "prior(N=4)", "batch[eps=0.1]", "mine"]
    assert [name for name, _ in strategy_sentences(names)] == ["prior", "batch"]


def test_a_report_explains_the_strategies_that_it_has(frame, tmp_path):
    few = frame[(frame["method"] == "vanilla") & (frame["metric"] == "accuracy")]
    batch = few[few["strategy"] == "batch"]
    more = pd.concat([few, *(batch.assign(strategy=name) for name in ("auto_stream(momentum=0.1)", "auto"))])
    text = report.write(tmp_path / "report.html", more, {}).read_text()
    shown = text[text.index('<dl class="note strategies">') :].split("</dl>")[0]
    names = [part.split("</code>")[0] for part in shown.split("<dt><code>")[1:]]
    assert names == ["train", "batch", "auto", "auto_stream"]


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ("auto(calibrated=True, passes=4)", "auto"),
        ("auto(calibrated=True, passes=1)", "auto(passes=1)"),
        ("auto(skewed=False, calibrated=True)", "auto(skewed=False)"),
        ("auto(skewed=False, calibrated=False)", "auto(skewed=False, calibrated=False)"),
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
    specs = ["auto", "auto(calibrated=True, passes=4)", "prior(N=16)"]
    assert strategy_labels(specs) == {specs[0]: "auto", specs[1]: specs[1], specs[2]: "prior"}
