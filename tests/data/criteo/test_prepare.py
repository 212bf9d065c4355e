"""Prepared rows are those of the text and do not depend on blocks, threads and interruptions."""

import gzip

import numpy as np
import pytest

from predbn.common import lock_folder
from predbn.data import DataError
from predbn.data.criteo import criteo, prepare, prepare_synthetic
from predbn.data.criteo.columns import token_of
from predbn.data.criteo.files import Prepared

from .examples import header, lines, slow_table

ROWS = lines(200)
TABLE = slow_table("\n".join(ROWS))


def rows_of(folder) -> np.ndarray:
    return criteo("all", folder).data.numpy()


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_csv(path, rows: list[str], *columns: str):
    path.write_text("\n".join([",".join([header(), *columns]), *(row.replace("\t", ",") for row in rows)]) + "\n")
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("\n".join(ROWS) + "\n")
    return path


@pytest.fixture(params=["plain", "gzipped"])
def plain_or_gzipped(request, text):
    if request.param == "plain":
        return text
    path = text.with_suffix(".gz")
    path.write_bytes(gzip.compress(text.read_bytes()))
    return path


@pytest.mark.parametrize(("block", "threads"), [(1000, 1), (7000, 3), (1 << 24, None)])
def test_rows_of_the_text(plain_or_gzipped, tmp_path, block, threads):
    steps = []
    options = {"block": block, "threads": threads}
    prepared = prepare(plain_or_gzipped, tmp_path / "out", progress=lambda *now: steps.append(now), **options)
    assert np.array_equal(rows_of(tmp_path / "out"), TABLE)
    size = (tmp_path / "train.txt").stat().st_size
    assert steps[-1] == (size, None if plain_or_gzipped.suffix == ".gz" else size)
    assert prepared.rows == 200
    before = files(tmp_path / "out")
    prepare(plain_or_gzipped, tmp_path / "out", block=block)
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["rows.npy", "criteo.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_the_same_command_replaces_what_is_damaged(text, tmp_path, name, damage):
    out = tmp_path / "out"
    prepare(text, out)
    before, path = files(out), out / name
    content = bytearray(path.read_bytes())
    content[60] ^= 4
    path.unlink() if damage == "remove" else path.write_bytes(content[:-300] if damage == "cut" else content)
    with pytest.raises(DataError, match=f"{name} (is damaged|is missing|cannot be read as)|only partly prepared"):
        criteo("all", out)
    prepare(text, out)
    assert files(out) == before


def test_lines_are_counted_over_blocks_and_headers(tmp_path):
    rows = ROWS[:90]
    rows[1] += "\tmore"
    rows[60] = "0\t1"
    prepared = prepare(write_csv(tmp_path / "rows.csv", rows), tmp_path / "out", block=4000)
    wrong = ((3, "the line has 41 columns instead of 40"), (62, "the line has 2 columns instead of 40"))
    assert prepared == Prepared(False, rows=88, lines=90, rejected=2, examples=wrong)
    assert np.array_equal(rows_of(tmp_path / "out"), np.delete(TABLE[:90], [1, 60], 0))


def test_conditions(tmp_path):
    rows = [row + f"\t{'late' if number % 3 else 'early'}" for number, row in enumerate(ROWS[:30])]
    path = write_csv(tmp_path / "rows.csv", rows, "period")
    prepare(path, tmp_path / "early", where={"period": "early"}, block=3000)
    assert np.array_equal(rows_of(tmp_path / "early"), TABLE[:30:3])
    prepare(path, tmp_path / "clicks", where={"label": "1"})
    assert np.array_equal(rows_of(tmp_path / "clicks"), TABLE[:30][TABLE[:30, 0] == 1])
    with pytest.raises(DataError, match="no column 'time'"):
        prepare(path, tmp_path / "none", where={"time": "early"})
    with pytest.raises(DataError, match="has no row with period 'never'"):
        prepare(path, tmp_path / "never", where={"period": "never"})


def test_an_open_quote_takes_no_other_line_along(tmp_path):
    rows = [row.rsplit("\t", 1)[0] for row in ROWS]
    rows = [f'{row}\t"{number:08x}"' for number, row in enumerate(rows)]
    for number in (100, 150):
        rows[number] = rows[number].rsplit("\t", 1)[0] + '\t"abc'
    rows[130] = rows[130].rsplit("\t", 2)[0] + '\ta"b\t"c'  # an even number of quotes, the last of them open
    rows[120] = rows[120].rsplit("\t", 1)[0] + '\t"a ""quoted"", and closed one"'
    prepared = prepare(write_csv(tmp_path / "rows.csv", rows), tmp_path / "out", block=30_000)
    assert prepared.examples == tuple((line, "a quote is not closed") for line in (102, 132, 152))
    expected = TABLE.copy()
    expected[:, -1] = [token_of(f"{number:08x}".encode()) for number in range(200)]
    expected[120, -1] = token_of(b'a "quoted", and closed one')
    assert np.array_equal(rows_of(tmp_path / "out"), np.delete(expected, [100, 130, 150], 0))


def test_bytes_that_are_not_utf8(tmp_path):
    rows = [row.encode() for row in ROWS[:5]]
    rows[1] = rows[1].rsplit(b"\t", 1)[0] + b"\t\xff\xfe"
    rows[3] += b"\t\xff"
    path = tmp_path / "train.txt"
    path.write_bytes(b"\n".join(rows))
    assert prepare(path, tmp_path / "out").examples == ((4, "the line has 41 columns instead of 40"),)
    assert rows_of(tmp_path / "out")[1, -1] == token_of("\ufffd\ufffd".encode())


def test_a_file_without_rows_is_an_error(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(ROWS[0] + "\n" + "word\n" * 9000)
    with pytest.raises(DataError, match="has no row in the"):
        prepare(path, tmp_path / "out", block=3000)


def test_other_folders_are_not_touched(text, tmp_path):
    prepare(text, tmp_path / "out")
    text.write_text(text.read_text() + ROWS[0] + "\n")
    with pytest.raises(DataError, match="begun with other data or options"):
        prepare(text, tmp_path / "out")
    with pytest.raises(DataError, match="threads is 0"):
        prepare(text, tmp_path / "new", threads=0)
    with lock_folder(tmp_path / "new"), pytest.raises(DataError, match="another process is writing to"):
        prepare_synthetic(10, tmp_path / "new")
