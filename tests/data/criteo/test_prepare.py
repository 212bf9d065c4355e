"""Prepared rows are those of the text and do not depend on blocks, processes and interruptions."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from predbn.common import lock_folder
from predbn.data import DataError
from predbn.data.criteo import criteo, prepare, prepare_synthetic, synthetic_rows
from predbn.data.criteo.columns import token_of
from predbn.data.criteo.shards import Shards, write_shard

from ...chaos.flips import flip_bits
from .examples import header, lines, slow_table


def rows_of(folder) -> np.ndarray:
    return np.concatenate([table.numpy() for table in criteo("all", folder).tables])


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines(200)) + "\n")
    return path


@pytest.mark.parametrize("block", [1000, 7000, 1 << 24])
@pytest.mark.parametrize("processes", [1, 3])
def test_rows_of_the_text(text, tmp_path, block, processes):
    steps = []
    shards = prepare(text, tmp_path / "out", block=block, processes=processes, progress=lambda *now: steps.append(now))
    assert np.array_equal(rows_of(tmp_path / "out"), slow_table(text.read_text()))
    assert steps[-1] == (text.stat().st_size, text.stat().st_size)
    assert sum(shard.rows for shard in shards.done) == 200
    before = files(tmp_path / "out")
    prepare(text, tmp_path / "out", block=block)
    assert files(tmp_path / "out") == before


def test_gzipped_and_with_a_header(text, tmp_path):
    gzipped = tmp_path / "train.txt.gz"
    gzipped.write_bytes(gzip.compress(text.read_bytes()))
    prepare(gzipped, tmp_path / "gzipped", block=9000)
    named = tmp_path / "rows.csv"
    named.write_text(header() + "\n" + text.read_text().replace("\t", ","))
    prepare(named, tmp_path / "named", block=9000)
    for folder in ("gzipped", "named"):
        assert np.array_equal(rows_of(tmp_path / folder), slow_table(text.read_text()))


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("fails", ["write_shard", "record", "finish"])
def test_continues_after_a_kill_with_the_same_bytes(text, tmp_path, monkeypatch, fails, gzipped):
    if gzipped:
        packed = tmp_path / "train.gz"
        packed.write_bytes(gzip.compress(text.read_bytes()))
        text = packed
    prepare(text, tmp_path / "whole", block=3000, processes=1)
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
            prepare(text, tmp_path / "again", block=3000, processes=1)
    with pytest.raises(DataError, match="only partly prepared"):
        criteo("all", tmp_path / "again")
    (tmp_path / "again" / "00009.npy.part").write_bytes(b"half")
    first = tmp_path / "again" / "00000.npy"
    stamp = first.stat().st_mtime_ns
    prepare(text, tmp_path / "again", block=3000, processes=2)
    assert files(tmp_path / "again") == files(tmp_path / "whole")
    assert first.stat().st_mtime_ns == stamp


def test_lines_are_counted_over_blocks_and_headers(tmp_path):
    rows = [row.replace("\t", ",") for row in lines(90)]
    rows[1] += ",more"
    rows[60] = "0,1"
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([header(), *rows]) + "\n")
    shards = prepare(path, tmp_path / "out", block=4000)
    wrong = [example for shard in shards.done for example in shard.examples]
    assert wrong == [
        (3, "the line has 41 columns instead of 40"),
        (62, "the line has 2 columns instead of 40"),
    ]
    totals = json.loads((tmp_path / "out" / "criteo.json").read_text())
    assert (totals["rows"], totals["lines"], totals["rejected"]) == (88, 90, 2)


def test_conditions(tmp_path):
    rows = [row.replace("\t", ",") + f",{'late' if number % 3 else 'early'}" for number, row in enumerate(lines(30))]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([header() + ",period", *rows]) + "\n")
    prepare(path, tmp_path / "early", where={"period": "early"}, block=3000)
    assert np.array_equal(rows_of(tmp_path / "early"), slow_table("\n".join(lines(30)[::3])))
    with pytest.raises(DataError, match="no column 'time'"):
        prepare(path, tmp_path / "none", where={"time": "early"})
    with pytest.raises(DataError, match="has no row with period 'never'"):
        prepare(path, tmp_path / "never", where={"period": "never"})


def test_other_folders_are_not_touched(text, tmp_path):
    prepare(text, tmp_path / "out")
    text.write_text(text.read_text() + lines(1)[0] + "\n")
    with pytest.raises(DataError, match="begun with other data or options"):
        prepare(text, tmp_path / "out")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(DataError, match="is not empty"):
        prepare(text, tmp_path / "photos")
    with pytest.raises(DataError, match="is a file"):
        prepare(text, text)
    with pytest.raises(DataError, match="processes is 0"):
        prepare(text, tmp_path / "new", processes=0)


def test_the_folder_is_locked_while_it_is_written(text, tmp_path):
    out = tmp_path / "out"

    def start_a_second_writer(done, total):
        with pytest.raises(DataError, match="another process is writing to"):
            prepare(text, out, processes=1)

    prepare(text, out, processes=2, block=3000, progress=start_a_second_writer)
    assert np.array_equal(rows_of(out), slow_table(text.read_text()))
    with lock_folder(out), pytest.raises(DataError, match="another process is writing to"):
        prepare_synthetic(10, out)


def test_a_killed_preparation_leaves_no_worker_that_keeps_the_lock(text, tmp_path):
    out = tmp_path / "out"
    kill = "lambda done, total: done and os.kill(os.getpid(), signal.SIGKILL)"
    call = f"prepare({str(text)!r}, {str(out)!r}, processes=2, block=3000, progress={kill})"
    code = f"import os, signal\nfrom predbn.data.criteo import prepare\n{call}"
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    with lock_folder(out, wait=True):
        assert not (out / "criteo.json").exists()
    prepare(text, out, block=3000)
    assert np.array_equal(rows_of(out), slow_table(text.read_text()))


def test_a_file_without_rows_is_an_error(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(lines(1)[0] + "\n" + "word\n" * 9000)
    with pytest.raises(DataError, match="has no row in the"):
        prepare(path, tmp_path / "out", block=3000)


def test_synthetic_rows_without_the_text(tmp_path, monkeypatch):
    monkeypatch.setitem(prepare_synthetic.__globals__, "SYNTHETIC_ROWS", 64)
    prepare_synthetic(150, tmp_path / "out", seed=5)
    assert np.array_equal(rows_of(tmp_path / "out"), synthetic_rows(150, seed=5).table)
    assert criteo("test", tmp_path / "out").name == "criteo-synthetic-test"
    with pytest.raises(DataError, match="0 synthetic rows"):
        prepare_synthetic(0, tmp_path / "none")


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "card", "totals"])
def test_the_same_command_replaces_what_is_damaged(text, tmp_path, damage, gzipped):
    if gzipped:
        packed = tmp_path / "train.gz"
        packed.write_bytes(gzip.compress(text.read_bytes()))
        text = packed
    out = tmp_path / "out"
    prepare(text, out, block=3000, processes=1)
    before = files(out)
    path = out / {"card": "00004.json", "totals": "criteo.json"}.get(damage, "00004.npy")
    content = bytearray(path.read_bytes())
    content[60] ^= 4
    path.unlink() if damage == "remove" else path.write_bytes(content[:-300] if damage == "cut" else content)
    if damage != "card":
        with pytest.raises(DataError, match=r"(00004.npy|criteo.json) (is damaged|is missing|cannot be read as)"):
            criteo("all", out)
    prepare(text, out, block=3000, processes=1)
    assert files(out) == before


def test_flipped_bits_are_noticed(text, tmp_path):
    prepare(text, tmp_path / "out", block=12_000, processes=1)
    for name in ("00000.npy", "criteo.json", "source.json"):
        flips = flip_bits(tmp_path / "out" / name, lambda path: criteo("all", path.parent).sums, count=300)
        assert flips.changed == []


def test_rows_without_a_checksum_are_read(text, tmp_path):
    out = tmp_path / "out"
    prepare(text, out, block=3000)
    expected = rows_of(out)
    for path in out.glob("*.npy"):
        np.save(path, np.load(path))
    for path in out.glob("*.json"):
        content = json.loads(path.read_text())
        content.pop("checksum")
        path.write_text(json.dumps(content, indent=1) + "\n")
    assert np.array_equal(rows_of(out), expected)
    before = files(out)
    prepare(text, out, block=3000)
    assert {name: content for name, content in files(out).items() if name != "source.json"} == {
        name: content for name, content in before.items() if name != "source.json"
    }


def test_only_the_shards_of_a_part_are_read(text, tmp_path):
    out = tmp_path / "out"
    prepare(text, out, block=3000)
    expected = criteo("test", out).sums
    (out / "00000.npy").write_bytes(b"")
    assert criteo("test", out).sums == expected
    with pytest.raises(DataError, match=r"00000.npy"):
        criteo("train", out)


def test_an_open_quote_takes_no_other_line_along(tmp_path):
    rows = [row.replace("\t", ",") for row in lines(400)]
    for number in (100, 300):
        rows[number] = rows[number].rsplit(",", 1)[0] + ',"abc'
    rows[200] = rows[200].rsplit(",", 1)[0] + ',"a ""quoted"", and closed one"'
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([header(), *rows]) + "\n")
    shards = prepare(path, tmp_path / "out", block=30_000)
    wrong = [example for shard in shards.done for example in shard.examples]
    assert wrong == [(102, "a quote is not closed"), (302, "a quote is not closed")]
    assert sum(shard.rows for shard in shards.done) == 398
    expected = slow_table("\n".join(line for number, line in enumerate(lines(400)) if number not in (100, 300)))
    expected[199, -1] = token_of(b'a "quoted", and closed one')
    assert np.array_equal(rows_of(tmp_path / "out"), expected)


@pytest.mark.parametrize("named", [False, True])
def test_a_condition_on_the_label(tmp_path, named):
    path = tmp_path / "rows.csv"
    rows = [*lines(50), "word"]
    path.write_text("\n".join([header(), *(row.replace("\t", ",") for row in rows)] if named else rows) + "\n")
    prepare(path, tmp_path / "out", where={"label": "1"})
    table = slow_table("\n".join(lines(50)))
    assert np.array_equal(rows_of(tmp_path / "out"), table[table[:, 0] == 1])


def test_bytes_that_are_not_utf8(tmp_path):
    rows = [row.replace("\t", ",").encode() for row in lines(5)]
    rows[1] = rows[1].rsplit(b",", 1)[0] + b",\xff\xfe"
    rows[3] += b",\xff"
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\n".join([header().encode(), *rows]))
    (shard,) = prepare(path, tmp_path / "out").done
    assert shard.examples == ((5, "the line has 41 columns instead of 40"),)
    assert rows_of(tmp_path / "out")[1, -1] == token_of(b"\xff\xfe")
