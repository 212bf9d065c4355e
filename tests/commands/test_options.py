"""Options that several commands have."""

from __future__ import annotations

import pytest
import torch
import typer
from typer.testing import CliRunner

from predbn import cli
from predbn.commands.options import (
    EngineName,
    in_process_engine,
    open_engine,
    parse_device_option,
    parse_preprocessing,
    usage_error,
)
from predbn.common import PredbnError, ShiftError
from predbn.evaluation import InProcess


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert parse_device_option("auto") == parse_device_option("cuda") == torch.device("cuda")
    assert parse_device_option("cuda:1") == torch.device("cuda:1")
    with pytest.raises(typer.BadParameter, match="finds no cuda:2"):
        parse_device_option("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert parse_device_option("auto") == parse_device_option("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "meta", "cpu:1", "cuda:x", ""])
def test_a_device_that_does_not_exist_is_a_usage_error(name):
    with pytest.raises(typer.BadParameter, match="there is no device") as caught:
        parse_device_option(name)
    assert caught.value.exit_code == 2
    assert caught.value.param_hint == "--device"


def test_only_errors_of_the_package_are_turned_into_usage_errors():
    with pytest.raises(typer.BadParameter, match="no fog today"), usage_error("--shift"):
        raise ShiftError("no fog today")
    with pytest.raises(ValueError) as caught, usage_error("--shift"):
        raise ValueError("a bug")
    assert not isinstance(caught.value, PredbnError)
    with pytest.raises(KeyError), usage_error("--shift"):
        raise KeyError("a bug")


def test_preprocessing_is_scaled_to_255():
    assert parse_preprocessing(None, None, None) is None
    preprocessing = parse_preprocessing("0.5", "0.1,0.2,0.3", "224x192")
    assert preprocessing.size == (224, 192)
    assert preprocessing.mean == pytest.approx((127.5, 127.5, 127.5))
    assert preprocessing.std == pytest.approx((25.5, 51.0, 76.5))
    assert parse_preprocessing(None, None, "32").mean == (0, 0, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("0.5", None, None), "give the size of the images too"),
        ((None, None, "big"), "'big' is not a size"),
        (("120", None, "32"), "means must be between 0 and 1"),
        ((None, "0", "32"), "deviations above 0"),
        (("1,2", None, "32"), "is not one number or three"),
        ((None, "x", "32"), "is not one number or three"),
    ],
)
def test_wrong_preprocessing_is_a_usage_error(values, message):
    with pytest.raises(typer.BadParameter, match=message):
        parse_preprocessing(*values)


def test_by_default_the_engine_is_this_process():
    with open_engine(EngineName.in_process, "cpu", None, None, None) as engine:
        assert isinstance(engine, InProcess)
        assert engine.device == "cpu"
    assert in_process_engine("cpu").device == "cpu"


def test_ray_gets_the_values_of_the_options(monkeypatch):
    received = {}

    class FakeEngine:
        def __init__(self, address, **options):
            received.update(options, address=address)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            received["closed"] = True

    monkeypatch.setattr("predbn.evaluation.RayEngine", FakeEngine)
    with open_engine(EngineName.ray, "cuda", "head:6379", 4, 0.5) as engine:
        assert isinstance(engine, FakeEngine)
    assert received == {
        "address": "head:6379",
        "device": "cuda",
        "cpus_per_worker": 4,
        "gpus_per_worker": 0.5,
        "closed": True,
    }
    with open_engine(EngineName.ray, "auto", None, None, None):
        assert (received["address"], received["gpus_per_worker"]) == ("auto", 1)


@pytest.mark.parametrize("values", [("auto", None, None), (None, 2, None), (None, None, 0.5)])
def test_options_of_ray_are_refused_without_it(values):
    with (
        pytest.raises(typer.BadParameter, match="it needs --engine ray"),
        open_engine(EngineName.in_process, "cpu", *values),
    ):
        pass


HUGE = str(2**80)
ZOO = ["--model", "zoo:resnet20-cifar10/batch/0"]


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["evaluate", *ZOO, "--seed", HUGE], "--seed"),
        (["evaluate", *ZOO, "--images", HUGE], "--images"),
        (["evaluate", *ZOO, "--batch-size", HUGE], "--batch-size"),
        (["evaluate", *ZOO, "--bins", HUGE], "--bins"),
        (["doctor", *ZOO, "--reference", "sample", "--seed", HUGE], "--seed"),
        (["doctor", *ZOO, "--reference", "sample", "--images", HUGE], "--images"),
        (["doctor", *ZOO, "--reference", "sample", "--batch-size", HUGE], "--batch-size"),
        (["train", "cifar10", "--sample", "--seeds", HUGE], "--seeds"),
        (["train", "cifar10", "--sample", "--seeds", f"0-{HUGE}"], "--seeds"),
        (["train", "criteo", "--seeds", HUGE], "--seeds"),
        (["train", "criteo", "--widths", f"{HUGE},16"], "--widths"),
        (["train", "imagenet", "--root", ".", "--seed", HUGE], "--seed"),
        (["tune", "cifar10", "--sample", "--seed", HUGE], "--seed"),
        (["results", "compare", "a", "b", "--level", "7"], "--level"),
        (["results", "compare", "a", "b", "--level", "nan"], "--level"),
        (["evaluate", *ZOO, "--engine", "rey"], "--engine"),
        (["evaluate", *ZOO, "--address", "auto"], "--address"),
        (["evaluate", *ZOO, "--device", "tpu"], "--device"),
        (["evaluate", *ZOO, "--engine", "ray", "--device", "cuda:1"], "--device"),
        (["data", "cifar10", "--from", "nonsense"], "--from"),
        (["data", "imagenet", "--root", ".", "--set", "imagenet-x"], "--set"),
        # Options that would have no effect.
        (["evaluate", "--plan", "p.toml", *ZOO], "--model"),
        (["evaluate", "--plan", "p.toml", "--shift", "fog"], "--shift"),
        (["evaluate", "--plan", "p.toml", "--data", "sample"], "--data"),
        (["evaluate", "--plan", "p.toml", "--hits"], "--hits"),
        (["evaluate", *ZOO, "--clean", "sample"], "--clean"),
        (["evaluate", *ZOO, "--validation", "sample"], "--validation"),
        (["train", "cifar10", "--sample", "--root", "x"], "--root"),
        (["tune", "cifar10", "--sample", "--root", "x"], "--root"),
        (["tune", "cifar10", "--sample", "--finalist-epochs", "3"], "--finalist-epochs"),
        (["paper", "run", "C1", "--root", "."], "--root"),
        (["paper", "run", "K1", "--weights", __file__], "--weights"),
        (["zoo", "resnet20-cifar10/batch/3", "--markdown"], "--markdown"),
        (["zoo", "--json", "--markdown"], "--markdown"),
    ],
    ids=" ".join,
)
def test_what_cannot_work_or_would_have_no_effect_is_a_usage_error(arguments, option, tmp_path, monkeypatch):
    """It names the option, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 2, result.exception
    assert f"Invalid value for {option}" in result.output.replace("'", "")
    assert list(tmp_path.iterdir()) == []
