"""Which side of a diagnosis has which look."""

from __future__ import annotations

from predbn.report.sides import look_of, sides


def test_three_sides_or_four(diagnosis):
    three, four = list(sides(diagnosis)), list(sides(diagnosis, settled=True))
    assert [look.series for look, _ in three] == ["reference · train", "shifted · train", "shifted · batch"]
    assert [profile for _, profile in three] == [diagnosis.reference, diagnosis.before, diagnosis.after]
    assert [look.series for look, _ in four][1] == "reference · batch"
    assert len({look.colour for look, _ in four}) == 4


def test_the_reference_is_hollow():
    assert look_of("reference", "train").baseline
    assert not look_of("shifted", "ema").baseline
