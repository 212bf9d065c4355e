"""Targets that cannot be written to are refused before the work."""

import errno

import pytest
from typer.testing import CliRunner

from predbn import cli
from predbn.commands import targets
from predbn.commands.targets import check_file, check_folder
from predbn.common import PredbnError

MODEL = ["--model", "zoo:resnet20-cifar10/batch/0"]


def test_a_folder_that_can_be_written_to_is_left_as_it_is(tmp_path):
    check_folder(tmp_path / "new" / "run")
    check_file(tmp_path / "new" / "page.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_the_reason_of_the_system_is_given(tmp_path, monkeypatch, number):
    def refuse(**options):
        raise OSError(number, "the reason")

    monkeypatch.setattr(targets, "TemporaryFile", refuse)
    with pytest.raises(PredbnError, match=r"run cannot be written to \(the reason\): choose another folder"):
        check_folder(tmp_path / "run")


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", *MODEL, "--out"],
        ["demo", "--out"],
        ["train", "cifar10", "--sample", "--out"],
        ["train", "criteo", "--out"],
        ["train", "imagenet", "--root", ".", "--out"],
        ["paper", "run", "C1", "--quick", "--results"],
        ["paper", "figures", "--out"],
        ["paper", "document", "--out"],
        ["results", "export", "run"],
    ],
    ids=" ".join,
)
def test_every_command_that_works_for_long_checks_its_target_first(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = CliRunner().invoke(cli.app, [*command, "file/below.csv"])
    assert isinstance(done.exception, PredbnError)
    assert "file is not a folder" in str(done.exception)
