"""`predbn recompute`: what it writes, and that it goes on after an interrupt. The numbers are tested in tests/norm."""

import signal

import numpy as np
import pytest
import torch

import predbn.norm
from predbn.models import load_weights, read_weights

from ..serving.running import classifier
from .test_serve import MODEL, failure, run


@pytest.fixture
def data(tmp_path):
    np.save(tmp_path / "clean.npy", np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), np.uint8))
    return tmp_path / "clean.npy"


def arguments(data, out, *more: str) -> tuple[str, ...]:
    return "recompute", *MODEL, "--data", str(data), "--out", str(out), "--batch-size", "16", *more


def recomputed(data) -> dict[str, torch.Tensor]:
    model = classifier()
    pixels = torch.from_numpy(np.load(data)).permute(0, 3, 1, 2)
    return predbn.recompute(model, [pixels]).network.state_dict()


def test_the_written_weights_have_the_statistics_of_the_data_and_are_otherwise_the_same(
    monkeypatch, data, tmp_path, capsys
):
    out = tmp_path / "new.safetensors"
    run(monkeypatch, *arguments(data, out))
    assert capsys.readouterr().out.strip() == f"{out} has the weights with the statistics of 40 pictures."
    written, card = read_weights(out)
    assert card["recomputed"]["images"] == 40
    network = classifier().network
    original, wanted = network.state_dict(), recomputed(data)
    assert set(tmp_path.iterdir()) == {data, out}
    for name, value in written.items():
        if "running" in name:
            torch.testing.assert_close(value, wanted[name], rtol=1e-4, atol=1e-5)
            assert not torch.equal(value, original[name])
        elif "num_batches" not in name:
            assert torch.equal(value, original[name])
    load_weights(network, written, "new")


def test_it_goes_on_where_it_was_interrupted(monkeypatch, data, tmp_path, capsys):
    out, unfinished = tmp_path / "new.safetensors", tmp_path / "new.safetensors.unfinished"
    write, layers = predbn.norm.population_file.PopulationFile.write, []

    def write_and_stop(self, progress):
        write(self, progress)
        layers.append(len(progress.layers))
        if layers == [1]:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(predbn.norm.population_file.PopulationFile, "write", write_and_stop)
    code, message = failure(monkeypatch, capsys, *arguments(data, out))
    assert code == 130
    assert "run the same command again to go on" in message
    assert unfinished.exists()
    assert not out.exists()
    run(monkeypatch, *arguments(data, out))
    assert layers[:2] == [1, 2], "the first layer is not measured again"
    for name, value in recomputed(data).items():
        if "running" in name:
            torch.testing.assert_close(read_weights(out)[0][name], value, rtol=1e-4, atol=1e-5)
    assert not unfinished.exists()


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("--out", "new.pt"), 2, "must end in .safetensors"),
        (("--data", "missing"), 2, "missing"),
        (("--model", "zoo:resnet20-cifar10/group/0"), 1, "has no batch norm layer"),
    ],
)
def test_what_cannot_be_done_writes_nothing(monkeypatch, data, tmp_path, capsys, change, code, message):
    monkeypatch.chdir(tmp_path)
    found, text = failure(monkeypatch, capsys, *arguments(data, "new.safetensors"), *change)
    assert found == code
    assert message in text
    assert list(tmp_path.iterdir()) == [data]


def test_it_does_not_overwrite(monkeypatch, data, tmp_path, capsys):
    out = tmp_path / "new.safetensors"
    out.write_bytes(b"mine")
    code, message = failure(monkeypatch, capsys, *arguments(data, out))
    assert code == 2
    assert "exists: remove it, or choose another" in " ".join(message.replace("│", " ").split())
    assert out.read_bytes() == b"mine"
