"""The parser agrees with plain Python, and names the lines that are not rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predbn.data.criteo.columns import COLUMNS, MISSING_NUMBER
from predbn.data.criteo.parse import Parsed, parse
from predbn.data.criteo.source import TextSource

from .examples import lines, slow_table, slow_token

KAGGLE = TextSource(None, "\t", COLUMNS, 0)  # type: ignore[arg-type]


def parsed_of(text: str, source: TextSource = KAGGLE, where=None) -> Parsed:
    return parse(text.encode(), source, where or {})


numbers = st.one_of(st.just(""), st.integers(1 - 2**31, 2**31 - 1).map(str), st.integers(-2, 12).map(str))
categories = st.one_of(st.just(""), st.integers(0, 2**32 - 1).map("{:08x}".format), st.text("xyz,", max_size=10))
row = st.tuples(
    st.sampled_from("01"), st.lists(numbers, min_size=13, max_size=13), st.lists(categories, min_size=26, max_size=26)
).map(lambda parts: "\t".join([parts[0], *parts[1], *parts[2]]))
text = st.lists(row, min_size=1, max_size=8).map(lambda rows: "\n".join(rows) + "\n")


@settings(max_examples=20)
@given(text)
def test_rows_as_python_reads_them(text):
    parsed = parsed_of(text)
    assert np.array_equal(parsed.table, slow_table(text))
    assert (parsed.lines, parsed.rejected) == (len(parsed.table), [])


def test_unusual_but_valid_values():
    rows = lines(5)
    cells = [row.split("\t") for row in rows]
    cells[0][1], cells[1][2], cells[2][20], cells[3][39], cells[4][5] = "123456789", "7.0", "spät", "ABCDEF01", "+5"
    table = parsed_of("\r\n".join("\t".join(row) for row in cells)).table
    cells[1][2], cells[4][5] = "7", "5"
    assert np.array_equal(table, slow_table("\n".join("\t".join(row) for row in cells)))
    assert table[2, 20] == slow_token("spät")


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
    named = [reason for reason in parsed.rejected if reason.line != 6]
    assert named == [
        (2, "the line has 41 columns instead of 40"),
        (4, "the line has 39 columns instead of 40"),
        (8, "label is '2', expected 0 or 1"),
        (9, "label is '', expected 0 or 1"),
        (11, "I2 is 'many', expected a 32-bit integer"),
    ]
    assert len(parsed.rejected) == 6


@pytest.mark.parametrize(
    "value", ["-", "1-", "--1", "1e5", "2147483648", "-2147483648", "1.5", " 1", "1 ", "0x10", "0X1f", "1\x0b"]
)
def test_values_that_are_not_integers(value):
    cells = lines(1)[0].split("\t")
    cells[13] = value
    parsed = parsed_of("\t".join(cells) + "\n")
    assert len(parsed.table) == 0
    assert parsed.rejected == [(1, f"I13 is {value!r}, expected a 32-bit integer")]


@pytest.mark.parametrize("late", ["late", '"late"'])
def test_columns_in_any_order_and_conditions(late):
    rows = [row.split("\t") for row in lines(6)]
    source = TextSource(None, ",", (*COLUMNS[::-1], "period"), 1)  # type: ignore[arg-type]
    periods = ["early", "late", late, "", "later", "late"]
    text = "\n".join(",".join([*row[::-1], period]) for row, period in zip(rows, periods, strict=True))
    everything = parsed_of(text, source)
    assert np.array_equal(everything.table, slow_table("\n".join(lines(6))))
    chosen = parsed_of(text, source, {"period": "late"})
    assert np.array_equal(chosen.table, everything.table[[1, 2, 5]])
    assert (chosen.lines, chosen.rejected) == (6, [])


def test_missing_is_missing():
    text = "\t".join(["1", *[""] * 39]) + "\n"
    assert parsed_of(text).table.tolist() == [[1, *[MISSING_NUMBER] * 13, *[0] * 26]]
