import contextlib
import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from predbn.common import files
from predbn.evaluation import EvaluationError, Results, Split, UnitResult, table_files
from predbn.evaluation import store as store_module
from predbn.evaluation.store import Store
from predbn.evaluation.units import Cell, Fit, FitUnit, Row, SplitUnit

BINS = [{"low": 0.0, "high": 0.5, "count": 0, "confidence": None, "accuracy": None},
        {"low": 0.5, "high": 1.0, "count": 4, "confidence": 0.75, "accuracy": 0.5}]  # fmt: skip


def result(corruption, severity=1, models=("a", "b")):
    split = Split(corruption, severity)
    cells = tuple(Cell(model, "vanilla", "batch", 10) for model in models)
    unit = SplitUnit(split, "shuffled", 0, cells)
    metrics = {"accuracy": 0.5 + severity / 100, "nll": float("inf")}
    return UnitResult(unit, rows=tuple(Row(cell, split, "shuffled", 0, metrics, BINS) for cell in cells))


def fit(model):
    return UnitResult(FitUnit(model, "batch", 10), fits=(Fit(model, "batch", 10, "temperature", 1.5),))


RESULTS = [result("fog"), result("snow", 3), result("clean", 0), fit("b"), fit("a")]


def opened(folder, results=()):
    store = Store(folder)
    with store.writing():
        (store.folder / "card.json").write_text("{}")
        for each in results:
            store.add(each)
    return store


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_the_order_of_units_does_not_change_the_tables(tmp_path):
    for name, order in (("one", RESULTS), ("two", RESULTS[::-1])):
        opened(tmp_path / name, order).merge()
    found = [contents(tmp_path / name) for name in ("one", "two")]
    assert set(found[0]) == {"results.parquet", "reliability.parquet", "fits.parquet"}
    assert found[0] == found[1]
    assert not list((tmp_path / "one" / "parts").iterdir())


@pytest.mark.parametrize("killed_after", [0, 1, 3, 4, 7, 10])
def test_a_merge_that_is_killed_anywhere_loses_nothing(tmp_path, monkeypatch, killed_after):
    """The merge is stopped after so many steps; a step gives a table its name or removes a part."""
    whole, steps = opened(tmp_path / "whole", RESULTS), iter(range(killed_after))
    whole.merge()
    store = opened(tmp_path / "killed", RESULTS)

    def counted(real):
        def step(*arguments, **options):
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", counted(os.unlink))
        patched.setattr(files, "finish_partial", counted(files.finish_partial))
        with contextlib.suppress(KeyboardInterrupt):
            store.merge()
    assert store.done() == whole.done()
    assert store.fits() == whole.fits()
    store.merge()
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_unit_that_was_written_in_part_is_not_finished(tmp_path, monkeypatch):
    store, written = opened(tmp_path), []

    def write_and_stop(path, table):
        written.append(path)
        if len(written) == 2:
            raise KeyboardInterrupt
        table_files.write_table(path, table)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(store_module, "write_table", write_and_stop)
        store.add(RESULTS[0])
    assert len(written) == 2
    assert store.done() == set()
    assert len(store.tables()["results"]) == 0
    store.add(RESULTS[0])
    assert len(store.done()) == 2


def test_a_folder_without_results_is_an_error(tmp_path):
    with pytest.raises(EvaluationError, match="has no run in it"):
        Results.load(tmp_path)
    opened(tmp_path)
    with pytest.raises(EvaluationError, match="has no results yet"):
        Results.load(tmp_path)


def test_values_are_read_as_they_were_written(tmp_path):
    opened(tmp_path, RESULTS).merge()
    found = Results.load(tmp_path)
    row = found.filter(model="a", corruption="snow", metric="accuracy").frame.iloc[0]
    assert row["value"] == 0.53
    assert found.filter(metric="nll").frame["value"].eq(float("inf")).all()
    bins = found.filter(model="a", corruption="snow").reliability
    assert bins["count"].tolist() == [0, 4]
    assert bins["confidence"].isna().tolist() == [True, False]
    assert found.fits["value"].tolist() == [1.5, 1.5]
    assert json.dumps(dict(found.card)) == "{}"


def with_hits(result):
    return replace(result, rows=tuple(replace(row, hits=b"\x5a" * 9) for row in result.rows))


@pytest.fixture
def everything(tmp_path):
    """A folder with all tables, a part and a fit that is not merged."""
    store = opened(tmp_path, [with_hits(each) for each in RESULTS])
    store.merge()
    store.add(with_hits(result("frost", 2)))
    store.add(fit("c"))
    return store


def read_all(store):
    return {name: table.to_pylist() for name, table in store.tables().items()}, store.fits(), store.done(hits=True)


@pytest.mark.parametrize("name", ["results", "reliability", "hits"])
def test_a_cell_is_done_if_it_is_in_every_table_that_is_wanted(everything, name):
    whole, path = read_all(everything), everything.folder / f"{name}.parquet"
    path.unlink()
    in_part = {key for key in whole[2] if key[4] == "frost"}
    assert everything.done(hits=True) == in_part
    assert everything.done() == (whole[2] if name == "hits" else in_part)
    for each in RESULTS:
        everything.add(with_hits(each))
    assert read_all(everything) == whole
    everything.merge()
    assert read_all(everything) == whole


@pytest.mark.parametrize("moment", ["before the first file", "after the first file"])
def test_reading_while_a_run_merges_gives_what_is_there_after_it(tmp_path, monkeypatch, moment):
    """A merge that happens just when the reader opens its first file, or has just read it."""
    store, merged = opened(tmp_path, RESULTS), []
    expected = read_all(store)

    def read_and_merge(path, schema):
        def merge():
            if not merged:
                merged.append(path)
                Store(tmp_path).merge()

        if moment == "before the first file":
            merge()
        table = table_files.read_table(path, schema)
        merge()
        return table

    monkeypatch.setattr(store_module, "read_table", read_and_merge)
    for read in (Store.tables, Store.done, Store.fits):
        for path in [*tmp_path.glob("*.parquet"), *tmp_path.glob("parts/*.parquet")]:
            path.unlink()
        for each in RESULTS:
            store.add(each)
        merged.clear()
        found = read(store)
        assert merged
        assert found == read(Store(tmp_path))
    assert read_all(store)[:2] == expected[:2]


def test_a_folder_that_never_comes_to_rest_is_an_error(tmp_path, monkeypatch):
    store = opened(tmp_path, RESULTS)
    (tmp_path / "parts" / "results-gone.parquet").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(store_module, "_PAUSE", 0)
    with pytest.raises(EvaluationError, match="changes while it is read: wait for the run"):
        store.tables()


def test_a_table_that_may_not_be_read_is_not_called_damaged(everything, monkeypatch):
    """As for a file without the permission to read it, which the superuser could read all the same."""
    real = Path.open

    def denied(path, *arguments, **options):
        if path.name == "results.parquet":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(EvaluationError, match=r"results\.parquet cannot be read \(Permission denied\): check its"):
        everything.tables()


@pytest.mark.parametrize("card", ["{", "[]", "3", '{"data": 3}', '{"models": []}', '{"ensembles": "x"}'])
def test_a_card_that_is_no_card_is_an_error_that_names_it(everything, card):
    (everything.folder / "card.json").write_text(card)
    with pytest.raises(EvaluationError, match=r"card\.json (cannot be read|is not a run card).*: restore it, or"):
        Results.load(everything.folder)


@pytest.mark.parametrize("name", ["", "parts"])
def test_a_folder_that_may_not_be_read_is_not_taken_for_an_empty_one(everything, monkeypatch, name):
    closed, real = everything.folder / name, os.listdir

    def listdir(path):
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(EvaluationError, match=r"cannot be read \(Permission denied\): check its permissions"):
        everything.tables()
