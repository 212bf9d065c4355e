from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from predbn import cli
from predbn.commands.engines import EngineName, engine_of
from predbn.evaluation import InProcess


def test_without_options_it_is_this_process():
    with engine_of(EngineName.in_process, "cpu", None, None, None) as engine:
        assert isinstance(engine, InProcess)
        assert engine.device == "cpu"


def test_ray_gets_what_the_options_say(monkeypatch):
    made = {}

    class Fake:
        def __init__(self, address, **options):
            made.update(options, address=address)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            made["closed"] = True

    monkeypatch.setattr("predbn.evaluation.ray_engine.RayEngine", Fake)
    with engine_of(EngineName.ray, "cuda", "head:6379", 4, 0.5) as engine:
        assert isinstance(engine, Fake)
    assert made == {
        "address": "head:6379",
        "device": "cuda",
        "cpus_per_worker": 4,
        "gpus_per_worker": 0.5,
        "closed": True,
    }
    with engine_of(EngineName.ray, "auto", None, None, None):
        assert (made["address"], made["gpus_per_worker"]) == ("auto", 1)


@pytest.mark.parametrize("given", [("auto", None, None), (None, 2, None), (None, None, 0.5)])
def test_options_of_ray_alone_are_refused_without_it(given):
    with (
        pytest.raises(typer.BadParameter, match="it is for --engine ray"),
        engine_of(EngineName.in_process, "cpu", *given),
    ):
        pass


@pytest.mark.parametrize("arguments", [["--engine", "rey"], ["--address", "auto"], ["--device", "tpu"]])
def test_they_are_usage_errors(arguments, tmp_path):
    model = ["--model", "zoo:resnet20-cifar10/batch/0", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(cli.app, ["evaluate", *model, *arguments])
    assert done.exit_code == 2
    assert not (tmp_path / "run").exists()
