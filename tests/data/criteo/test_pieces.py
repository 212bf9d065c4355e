"""Pieces are whole lines, one after another, and all of the text."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from predbn.data.criteo.pieces import PAD, pieces


@given(
    lines=st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=12),
    size=st.integers(1, 50),
    ended=st.booleans(),
    more=st.booleans(),
)
def test_pieces_are_whole_lines_and_all_of_them(lines, size, ended, more):
    text = b"\n".join(lines) + b"\n" * ended
    file = io.BytesIO(text + b"of the next block" * more)
    found = [(piece.text, len(piece.buffer) - piece.end) for piece in pieces(file, len(text), size=size)]
    assert b"".join(each for each, _ in found) == text
    assert all(each.endswith(b"\n") for each, _ in found[:-1])
    assert all(after >= PAD for _, after in found)
    longest = max(map(len, lines), default=0) + 1
    assert all(len(each) <= (size if longest <= size else size + longest) for each, _ in found)
