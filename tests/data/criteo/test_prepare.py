"""Prepared rows are those of the text and do not depend on blocks, threads and interruptions."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from predbn.common import lock_folder
from predbn.data import DataError
from predbn.data.criteo import criteo, prepare, prepare_synthetic, synthetic_rows
from predbn.data.criteo.columns import token_of
from predbn.data.criteo.shards import Shards, write_shard

from ...chaos.flips import flip_bits
from .examples import header, lines, slow_table

ROWS = lines(200)
TABLE = slow_table("\n".join(ROWS))


def rows_of(folder) -> np.ndarray:
    return np.concatenate([table.numpy() for table in criteo("all", folder).tables])


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_csv(path, rows: list[str], *columns: str):
    path.write_text("\n".join([",".join([header(), *columns]), *(row.replace("\t", ",") for row in rows)]) + "\n")
    return path


def examples_of(shards: Shards) -> list[tuple[int, str]]:
    return [example for shard in shards.done for example in shard.examples]


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
    shards = prepare(plain_or_gzipped, tmp_path / "out", progress=lambda *now: steps.append(now), **options)
    assert np.array_equal(rows_of(tmp_path / "out"), TABLE)
    size = (tmp_path / "train.txt").stat().st_size
    assert steps[-1] == (size, None if plain_or_gzipped.suffix == ".gz" else size)
    assert sum(shard.rows for shard in shards.done) == 200
    before = files(tmp_path / "out")
    prepare(plain_or_gzipped, tmp_path / "out", block=block)
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("fails", ["write_shard", "record", "finish"])
def test_continues_after_a_kill_with_the_same_bytes(plain_or_gzipped, tmp_path, monkeypatch, fails):
    prepare(plain_or_gzipped, tmp_path / "whole", block=3000)
    of_module = fails == "write_shard"
    real, calls = write_shard if of_module else getattr(Shards, fails), []

    def killed(*args):
        calls.append(args)
        if len(calls) == (1 if fails == "finish" else 5):
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setitem(prepare.__globals__, fails, killed) if of_module else patched.setattr(Shards, fails, killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(plain_or_gzipped, tmp_path / "again", block=3000, threads=1)
    with pytest.raises(DataError, match="only partly prepared"):
        criteo("all", tmp_path / "again")
    (tmp_path / "again" / "00009.npy.part").write_bytes(b"half")
    first = tmp_path / "again" / "00000.npy"
    stamp = first.stat().st_mtime_ns
    prepare(plain_or_gzipped, tmp_path / "again", block=3000, threads=2)
    assert files(tmp_path / "again") == files(tmp_path / "whole")
    assert first.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "card", "totals"])
def test_the_same_command_replaces_what_is_damaged(text, tmp_path, damage):
    out = tmp_path / "out"
    prepare(text, out, block=3000)
    before = files(out)
    path = out / {"card": "00004.json", "totals": "criteo.json"}.get(damage, "00004.npy")
    content = bytearray(path.read_bytes())
    content[60] ^= 4
    path.unlink() if damage == "remove" else path.write_bytes(content[:-300] if damage == "cut" else content)
    if damage != "card":
        with pytest.raises(DataError, match=r"(00004.npy|criteo.json) (is damaged|is missing|cannot be read as)"):
            criteo("all", out)
    prepare(text, out, block=3000)
    assert files(out) == before


def test_lines_are_counted_over_blocks_and_headers(tmp_path):
    rows = ROWS[:90]
    rows[1] += "\tmore"
    rows[60] = "0\t1"
    shards = prepare(write_csv(tmp_path / "rows.csv", rows), tmp_path / "out", block=4000)
    wrong = [(3, "the line has 41 columns instead of 40"), (62, "the line has 2 columns instead of 40")]
    assert examples_of(shards) == wrong
    totals = json.loads((tmp_path / "out" / "criteo.json").read_text())
    assert (totals["rows"], totals["lines"], totals["rejected"]) == (88, 90, 2)
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
    rows[120] = rows[120].rsplit("\t", 1)[0] + '\t"a ""quoted"", and closed one"'
    shards = prepare(write_csv(tmp_path / "rows.csv", rows), tmp_path / "out", block=30_000)
    assert examples_of(shards) == [(102, "a quote is not closed"), (152, "a quote is not closed")]
    expected = TABLE.copy()
    expected[:, -1] = [token_of(f"{number:08x}".encode()) for number in range(200)]
    expected[120, -1] = token_of(b'a "quoted", and closed one')
    assert np.array_equal(rows_of(tmp_path / "out"), np.delete(expected, [100, 150], 0))


def test_bytes_that_are_not_utf8(tmp_path):
    rows = [row.encode() for row in ROWS[:5]]
    rows[1] = rows[1].rsplit(b"\t", 1)[0] + b"\t\xff\xfe"
    rows[3] += b"\t\xff"
    path = tmp_path / "train.txt"
    path.write_bytes(b"\n".join(rows))
    (shard,) = prepare(path, tmp_path / "out").done
    assert shard.examples == ((4, "the line has 41 columns instead of 40"),)
    assert rows_of(tmp_path / "out")[1, -1] == token_of(b"\xff\xfe")


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
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(DataError, match="is not empty"):
        prepare(text, tmp_path / "photos")
    with pytest.raises(DataError, match="is a file"):
        prepare(text, text)
    with pytest.raises(DataError, match="threads is 0"):
        prepare(text, tmp_path / "new", threads=0)


def test_the_folder_is_locked_while_it_is_written(text, tmp_path):
    out = tmp_path / "out"

    def start_a_second_writer(done, total):
        with pytest.raises(DataError, match="another process is writing to"):
            prepare(text, out)

    prepare(text, out, block=3000, progress=start_a_second_writer)
    assert np.array_equal(rows_of(out), TABLE)
    with lock_folder(out), pytest.raises(DataError, match="another process is writing to"):
        prepare_synthetic(10, out)


def test_synthetic_rows_without_the_text(tmp_path, monkeypatch):
    monkeypatch.setitem(prepare_synthetic.__globals__, "SYNTHETIC_ROWS", 64)
    prepare_synthetic(150, tmp_path / "out", seed=5)
    assert np.array_equal(rows_of(tmp_path / "out"), synthetic_rows(150, seed=5).table)
    assert criteo("test", tmp_path / "out").name == "criteo-synthetic-test"
    with pytest.raises(DataError, match="at least 1 synthetic row, but got 0"):
        prepare_synthetic(0, tmp_path / "none")


def test_flipped_bits_are_noticed(text, tmp_path):
    prepare(text, tmp_path / "out", block=12_000)
    for name in ("00000.npy", "criteo.json", "source.json"):
        flips = flip_bits(tmp_path / "out" / name, lambda path: criteo("all", path.parent).sums, count=100)
        assert flips.changed == []


def test_only_the_shards_of_a_part_are_read(text, tmp_path):
    out = tmp_path / "out"
    prepare(text, out, block=3000)
    expected = criteo("test", out).sums
    (out / "00000.npy").write_bytes(b"")
    assert criteo("test", out).sums == expected
    with pytest.raises(DataError, match=r"00000.npy"):
        criteo("train", out)
