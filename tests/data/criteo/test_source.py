"""Both layouts are recognised and divided into blocks of whole lines; other files are errors."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.data import DataError
from predbn.data.criteo.columns import COLUMNS
from predbn.data.criteo.source import TextSource, open_source

from .examples import header, lines


def test_layouts(tmp_path):
    kaggle = tmp_path / "train.txt"
    kaggle.write_text("\n".join(lines(3)) + "\n")
    assert open_source(kaggle) == open_source(tmp_path) == TextSource(kaggle, "\t", COLUMNS, 0)
    named = tmp_path / "rows.csv"
    named.write_text("src," + header().upper() + "\r\n")
    assert open_source(named) == TextSource(named, ",", ("src", *COLUMNS), len(header()) + 6)
    gzipped = tmp_path / "rows"
    gzipped.write_bytes(gzip.compress(kaggle.read_bytes()))
    assert open_source(gzipped).is_gzipped
    assert b"".join(block.text for block in open_source(gzipped).blocks(1000)) == kaggle.read_bytes()


@given(
    content=st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), min_size=1, max_size=12),
    size=st.integers(1, 60),
    ended=st.booleans(),
    gzipped=st.booleans(),
)
def test_blocks_are_whole_lines_and_all_of_them(tmp_path_factory, content, size, ended, gzipped):
    path = tmp_path_factory.mktemp("blocks") / "text"
    text = b"\n".join(content) + b"\n" * ended
    path.write_bytes(gzip.compress(b" " + text) if gzipped else b" " + text)
    source = TextSource(path, "\t", COLUMNS, 1)
    blocks = list(source.blocks(size))
    assert b"".join(block.text for block in blocks) == text
    assert [block.begins for block in blocks] == [1, *(block.ends for block in blocks)][:-1] or not blocks
    assert all(block.text.endswith(b"\n") for block in blocks[:-1])
    assert all(b"\n" not in block.text[size:-1] for block in blocks)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (("\t".join(["1"] * 39)).encode(), "has 39 columns: it seems to be test.txt"),
        (b"a,b,c\n1,2,3\n", "has 3 columns: expected 40"),
        (("label," + ",".join(COLUMNS[2:])).encode(), "has no column I1"),
        (b"\xff\xfe\x00", "is not text"),
        ((",".join([*COLUMNS, "C3"])).encode(), "two columns 'C3'"),
        (b"1," * 70_000, "no line end in its first 65,536 bytes"),
        (gzip.compress(b"1\t2" * 99, mtime=0)[:20], "cannot be read"),
    ],
)
def test_other_files_are_errors(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_source(path)


def test_missing_and_incomplete_files_are_errors(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        open_source(tmp_path / "train.txt")
    with pytest.raises(DataError, match="holds neither"):
        open_source(tmp_path)
    path = tmp_path / "train.txt.gz"
    whole = gzip.compress("\n".join(lines(2000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot be read to its end"):
        list(open_source(path).blocks(1 << 20))
    for content in (b"1" * (3 << 20), gzip.compress(b"1" * (3 << 20))):
        path.write_bytes(content)
        with pytest.raises(DataError, match="no line end"):
            list(TextSource(path, "\t", COLUMNS, 0).blocks(1 << 20))
