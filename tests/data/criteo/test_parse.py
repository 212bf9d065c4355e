"""Both parsers agree with one in plain Python, and lines that are not rows are named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.data.criteo import parse as module
from predbn.data.criteo.columns import COLUMNS, MISSING_NUMBER
from predbn.data.criteo.parse import Parsed, parse
from predbn.data.criteo.source import PADDING, Piece, TextSource

from .examples import lines, slow_table, slow_token

KAGGLE = TextSource(None, "\t", COLUMNS, 0)  # type: ignore[arg-type]


def piece_of(text: str) -> Piece:
    raw = text.encode()
    return Piece(bytearray(b"7" * PADDING + raw + b"7" * PADDING), PADDING + len(raw))


def parsed_of(text: str, source: TextSource = KAGGLE, where=None) -> Parsed:
    return parse(piece_of(text), source, where or {})


@pytest.fixture
def only_fast(monkeypatch):
    def fail(*args):
        raise AssertionError("regular lines went to the slow parser")

    monkeypatch.setattr(module, "_parse_any", fail)


@pytest.fixture
def only_slow(monkeypatch):
    monkeypatch.setattr(module, "parse_regular", lambda *args: None)


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


def test_regular_lines_go_to_the_fast_parser(only_fast):
    text = "\n".join(lines(500)) + "\n"
    assert np.array_equal(parsed_of(text).table, slow_table(text))


def test_the_slow_parser_gives_the_same(only_slow):
    text = "\n".join(lines(300)) + "\n"
    assert np.array_equal(parsed_of(text).table, slow_table(text))


def test_unusual_but_valid_values():
    rows = lines(4)
    cells = [row.split("\t") for row in rows]
    cells[0][1], cells[1][2], cells[2][20], cells[3][39] = "123456789", "7.0", "not hexadecimal", "ABCDEF01"
    unusual = "\r\n".join("\t".join(row) for row in cells)
    table = parsed_of(unusual).table
    cells[1][2] = "7"
    expected = slow_table("\n".join("\t".join(row) for row in cells))
    assert np.array_equal(table, expected)
    assert table[2, 20] == slow_token("not hexadecimal")


def test_lines_that_are_not_rows_are_named():
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
        (2, "the line has 41 columns instead of 40"),
        (4, "the line has 39 columns instead of 40"),
        (6, "the line is empty"),
        (8, "label is '2', neither 0 nor 1"),
        (9, "label is '', neither 0 nor 1"),
        (11, "I2 is 'many', which is not a whole number"),
    ]


@pytest.mark.parametrize(
    "value", ["-", "1-", "--1", "1e5", "2147483648", "-2147483648", "1.5", " 1", "1 ", "0x10", "0X1f", "1\x0b"]
)
def test_values_that_are_not_whole_numbers(value):
    cells = lines(1)[0].split("\t")
    cells[13] = value
    parsed = parsed_of("\t".join(cells) + "\n")
    assert len(parsed.table) == 0
    assert parsed.rejected == [(1, f"I13 is {value!r}, which is not a whole number")]


def test_columns_in_any_order_and_conditions():
    rows = [row.split("\t") for row in lines(6)]
    columns = (*COLUMNS[::-1], "period")
    source = TextSource(None, ",", columns, 1)  # type: ignore[arg-type]
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


odd_numbers = st.text("0123456789+-.xXeE \x0b\xa0a", max_size=5)


@given(st.lists(st.tuples(odd_numbers, st.integers(1, 13)), min_size=1, max_size=4))
def test_both_parsers_accept_the_same_numbers(values):
    rows = [row.split("\t") for row in lines(4)]
    for row, (value, column) in zip(rows, values, strict=False):
        row[column] = value
    text = "".join("\t".join(row) + "\n" for row in rows)
    parsed, slowly = parsed_of(text), module._parse_any(text.encode(), KAGGLE, {})
    assert np.array_equal(parsed.table, slowly.table)
    assert parsed[1:] == slowly[1:]


def test_conditions_on_the_columns_of_a_row():
    rows = lines(6)
    rows[2] = "\t".join(["1", *rows[2].split("\t")[1:]])
    rows[3] = "\t".join(["0", *rows[3].split("\t")[1:]])
    parsed = parsed_of("\n".join(rows) + "\n", where={"label": "1"})
    assert np.array_equal(parsed.table, slow_table("\n".join(row for row in rows if row[0] == "1")))
