"""Both ways of parsing agree with Python's own, and lines that are no rows are named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.data.criteo import careful
from predbn.data.criteo import parse as module
from predbn.data.criteo.columns import COLUMNS, MISSING_NUMBER
from predbn.data.criteo.parse import Parsed, parse
from predbn.data.criteo.pieces import PAD, Piece
from predbn.data.criteo.source import Source

from .examples import lines, slow_table, slow_token

KAGGLE = Source(None, "\t", COLUMNS, 0)  # type: ignore[arg-type]


def parsed_of(text: str, source: Source = KAGGLE, where=None) -> Parsed:
    raw = text.encode()
    return parse(Piece(bytearray(b"7" * PAD + raw + b"7" * PAD), PAD + len(raw)), source, where or {})


@pytest.fixture
def only_fast(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("a regular line went the careful way")

    monkeypatch.setattr(careful, "parse_any", refuse)


@pytest.fixture
def only_careful(monkeypatch):
    monkeypatch.setattr(module, "parse_regular", lambda padded, delimiter: None)


numbers = st.one_of(st.just(""), st.integers(-9_999_999, 99_999_999).map(str), st.integers(-2, 12).map(str))
categories = st.one_of(st.just(""), st.integers(0, 2**32 - 1).map("{:08x}".format))
row = st.tuples(
    st.sampled_from("01"),
    st.lists(numbers, min_size=13, max_size=13),
    st.lists(categories, min_size=26, max_size=26),
).map(lambda parts: "\t".join([parts[0], *parts[1], *parts[2]]))
text = st.lists(row, min_size=1, max_size=8).map(lambda rows: "\n".join(rows) + "\n")


@given(text)
def test_regular_lines_as_python_reads_them(text):
    parsed = parsed_of(text)
    assert np.array_equal(parsed.table, slow_table(text))
    assert parsed.lines == len(parsed.table)
    assert parsed.rejected == []


def test_regular_lines_go_the_fast_way(only_fast):
    text = "\n".join(lines(500)) + "\n"
    assert np.array_equal(parsed_of(text).table, slow_table(text))


def test_the_careful_way_gives_the_same(only_careful):
    text = "\n".join(lines(300)) + "\n"
    assert np.array_equal(parsed_of(text).table, slow_table(text))


def test_what_is_unusual_but_right():
    rows = lines(4)
    cells = [row.split("\t") for row in rows]
    cells[0][1], cells[1][2], cells[2][20], cells[3][39] = "123456789", "7.0", "not hexadecimal", "ABCDEF01"
    unusual = "\r\n".join("\t".join(row) for row in cells)
    table = parsed_of(unusual).table
    cells[1][2] = "7"
    wanted = slow_table("\n".join("\t".join(row) for row in cells))
    assert np.array_equal(table, wanted)
    assert table[2, 20] == slow_token("not hexadecimal")


def test_lines_that_are_no_rows_are_named():
    rows = lines(12)
    good = [rows[number] for number in (0, 2, 4, 6, 9, 11)]
    rows[1] += "\tmore"
    rows[3] = rows[3].rpartition("\t")[0]
    rows[5] = ""
    rows[7] = "2" + rows[7][1:]
    rows[8] = rows[8][1:]
    rows[10] = "\t".join(["1", "2", "many", *rows[10].split("\t")[3:]])
    parsed = parsed_of("\n".join(rows))
    assert np.array_equal(parsed.table, slow_table("\n".join(good)))
    assert parsed.lines == 12
    assert parsed.rejected == [
        (2, "the line has 41 columns where there must be 40"),
        (4, "the line has 39 columns where there must be 40"),
        (6, "the line is empty"),
        (8, "label is '2', neither 0 nor 1"),
        (9, "label is '', neither 0 nor 1"),
        (11, "I2 is 'many', no whole number"),
    ]


@pytest.mark.parametrize("value", ["-", "1-", "--1", "1e5", "2147483648", "-2147483648", "1.5", " 1"])
def test_a_number_that_is_none(value):
    cells = lines(1)[0].split("\t")
    cells[13] = value
    parsed = parsed_of("\t".join(cells) + "\n")
    assert len(parsed.table) == 0
    assert parsed.rejected == [(1, f"I13 is {value!r}, no whole number")]


def test_columns_in_any_order_and_conditions():
    rows = [row.split("\t") for row in lines(6)]
    columns = (*COLUMNS[::-1], "period")
    source = Source(None, ",", columns, 1)  # type: ignore[arg-type]
    periods = ["early", "late", '"late"', "", "later", "late"]
    text = "\n".join(",".join([*row[::-1], period]) for row, period in zip(rows, periods, strict=True))
    everything = parsed_of(text, source)
    assert np.array_equal(everything.table, slow_table("\n".join(lines(6))))
    chosen = parsed_of(text, source, {"period": "late"})
    assert np.array_equal(chosen.table, everything.table[[1, 2, 5]])
    assert (chosen.lines, chosen.rejected) == (6, [])


def test_missing_is_missing():
    text = "\t".join(["1", *[""] * 39]) + "\n"
    assert parsed_of(text).table.tolist() == [[1, *[MISSING_NUMBER] * 13, *[0] * 26]]
