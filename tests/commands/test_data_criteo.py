"""`predbn data criteo` on the command line."""

import pytest
from typer.testing import CliRunner

from predbn import cli
from predbn.data.criteo import criteo

from ..data.criteo.examples import lines

runner = CliRunner()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def invoke(*arguments: object):
    result = runner.invoke(cli.app, ["data", *map(str, arguments)])
    return result, " ".join(result.output.split())


def test_prepares_into_the_cache_and_names_lines_that_are_not_valid_rows(tmp_path):
    rows = lines(30)
    rows[4] = "1\t2"
    (tmp_path / "train.txt").write_text("\n".join(rows) + "\n")
    result, words = invoke("criteo", "--root", tmp_path)
    assert result.exit_code == 0
    assert "line 5: the line has 2 columns instead of 40" in words
    assert "1 of 30 lines are not valid rows and were left out." in words
    assert "Criteo: 29 rows (23 to train, 3 to validate, 3 to test)" in words
    assert len(criteo("train")) == 23
    _, listed = invoke("list")
    assert "Criteo: 29 rows" in listed
    assert "Criteo, synthetic rows: not in" in listed


def test_many_wrong_lines_are_counted(tmp_path):
    rows = [*lines(5), *["word"] * 12]
    (tmp_path / "train.txt").write_text("\n".join(rows))
    _, words = invoke("criteo", "--root", tmp_path / "train.txt", "--out", tmp_path / "out")
    assert words.count("the line has 1 columns") == 10
    assert "12 of 17 lines are not valid rows and were left out; " in words
    assert "criteo.json has the first 100" in words


def test_synthetic_rows_are_called_so(cache):
    result, words = invoke("criteo", "--synthetic", 100, "--seed", 3)
    assert result.exit_code == 0
    assert "Criteo, synthetic rows: 100 rows" in words
    assert (cache / "criteo-synthetic" / "criteo.json").exists()
    result, words = invoke("criteo", "--synthetic", 100, "--seed", 3, "--quiet")
    assert result.output == ""
