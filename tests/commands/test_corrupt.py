"""`predbn corrupt` on the command line."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from typer.testing import CliRunner

from predbn import cli
from predbn.common import PredbnError

run = CliRunner()


def test_writes_from_a_pair_of_files(tmp_path: Path, cifar: npt.NDArray[np.uint8]) -> None:
    np.save(tmp_path / "images.npy", cifar[:5])
    np.save(tmp_path / "labels.npy", np.arange(5))
    out = tmp_path / "c"
    result = run.invoke(
        cli.app, ["corrupt", str(tmp_path / "images.npy"), str(out), "--shift", "contrast", "--shift", "fog"]
    )
    assert result.exit_code == 0, result.output
    assert "Wrote 2 corruptions" in result.output
    assert np.load(out / "contrast.npy").shape == (25, 32, 32, 3)
    assert np.load(out / "labels.npy").tolist() == [0, 1, 2, 3, 4] * 5


def test_writes_from_a_folder(tmp_path: Path, large: npt.NDArray[np.uint8]) -> None:
    (tmp_path / "clean" / "n01").mkdir(parents=True)
    Image.fromarray(large[0]).save(tmp_path / "clean" / "n01" / "x.JPEG")
    result = run.invoke(cli.app, ["corrupt", str(tmp_path / "clean"), str(tmp_path / "c"), "--shift", "pixelate"])
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "c").rglob("*.JPEG"))) == 5
    assert "Wrote pixelate at 5 severities to" in result.output


def test_what_goes_wrong_later_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "images.npy").write_bytes(b"not an array")
    for arguments, message in ((["empty", "out"], "no pictures"), (["images.npy", "out"], "images.npy cannot be read")):
        result = run.invoke(cli.app, ["corrupt", *arguments])
        assert result.exit_code == 1
        assert isinstance(result.exception, PredbnError)
        assert message in str(result.exception)
        assert not (tmp_path / "out").exists()
