"""Options that several commands have."""

import pytest
import typer
from typer.testing import CliRunner

from predbn import cli
from predbn.commands.option_sets import EngineOptions
from predbn.commands.options import parse_preprocessing, usage_error
from predbn.common import PredbnError, ShiftError


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
    assert parse_preprocessing(None, None, "32").mean == (0,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("0.5", None, None), "give the size of the images too"),
        ((None, None, "big"), "'big' is not a size"),
        (("120", None, "32"), "means must be between 0 and 1"),
        ((None, "0", "32"), "deviations above 0"),
        (("1,1", "1,1,1", "32"), "there are 2 means and 3 deviations"),
        ((None, "x", "32"), "is not one number for each channel"),
    ],
)
def test_wrong_preprocessing_is_a_usage_error(values, message):
    with pytest.raises(typer.BadParameter, match=message):
        parse_preprocessing(*values)


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
    with EngineOptions(
        engine="ray", device="cuda", address="head:6379", cpus_per_worker=4, gpus_per_worker=0.5
    ).open() as engine:
        assert isinstance(engine, FakeEngine)
    assert received == {
        "address": "head:6379",
        "device": "cuda",
        "cpus_per_worker": 4,
        "gpus_per_worker": 0.5,
        "closed": True,
    }
    with EngineOptions(engine="ray").open():
        assert (received["address"], received["gpus_per_worker"]) == ("auto", 1)


HUGE = str(2**80)
ZOO = "--model zoo:resnet20-cifar10/batch/0"
THEIRS = "--model theirs:build_model"
EXAMINE = f"doctor {ZOO} --reference sample"
CIFAR10 = "train cifar10 --sample"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"evaluate {ZOO} --seed {HUGE}", "--seed"),
        (f"evaluate {ZOO} --images {HUGE}", "--images"),
        (f"evaluate {ZOO} --batch-size {HUGE}", "--batch-size"),
        (f"evaluate {ZOO} --bins {HUGE}", "--bins"),
        (f"evaluate {ZOO} --engine rey", "--engine"),
        (f"evaluate {ZOO} --address auto", "--address"),
        (f"evaluate {ZOO} --device tpu", "--device"),
        (f"evaluate {ZOO} --engine ray --device cuda:1", "--device"),
        ("evaluate", "name a model"),
        (f"evaluate {THEIRS} --strategy btch", "did you mean 'batch'"),
        (f"evaluate {THEIRS} --shift markov-all", "'markov-all' cannot be read: write it as in"),
        (f"evaluate {THEIRS} --batch-size many", "or 'all', but got 'many'"),
        (f"evaluate {THEIRS} --mean 0.5", "give the size of the images too"),
        (f"evaluate {THEIRS} --data imagenet", "add --root DIR"),
        (f"evaluate {THEIRS} --data empty --root x", "it goes with --data cifar10"),
        ("evaluate --plan nowhere.toml", "cannot be read"),
        (f"{EXAMINE} --seed {HUGE}", "--seed"),
        (f"{EXAMINE} --images {HUGE}", "--images"),
        (f"{EXAMINE} --batch-size {HUGE}", "--batch-size"),
        (f"{EXAMINE} --shift fog", "it goes with --data"),
        (f"{EXAMINE} --data nowhere", "no data 'nowhere'"),
        (f"{EXAMINE} --data sample --shift fogg", "did you mean 'fog'"),
        (f"{EXAMINE} --data sample --severity 2", "it goes with --shift"),
        (f"doctor {ZOO} --reference nowhere", "no data 'nowhere'"),
        (f"doctor {ZOO} --data sample", "it goes with --reference"),
        (f"doctor {ZOO} --images 100", "it goes with --reference"),
        (f"doctor {ZOO} --device gpu", "there is no device 'gpu'"),
        (f"predict empty {ZOO} --strategy auto", "auto needs to know clean data: name some with --reference"),
        (f"predict empty {ZOO} --strategy population", "it needs two passes over the data"),
        (f"predict empty {ZOO} --strategy btch", "did you mean 'batch'"),
        ("corrupt", "Missing argument 'source'"),
        ("corrupt empty", "Missing argument 'out'"),
        ("corrupt nowhere out", "'nowhere' does not exist"),
        ("corrupt empty out --shift fogg", "did you mean 'fog'?"),
        ("corrupt empty out --constants mnist", "'mnist' is not one of 'auto', 'cifar', 'imagenet'"),
        ("corrupt empty out --labels labels.npy", "the classes of a folder are its labels: leave it out"),
        ("data cifar10 --from nonsense", "--from"),
        ("data imagenet --root . --set imagenet-x", "--set"),
        ("data criteo", "give either the file"),
        ("data criteo --root empty --synthetic 5", "give either the file"),
        ("data criteo --root nothing", "does not exist"),
        ("data criteo --root empty --where period", "is not NAME=VALUE"),
        ("data criteo --root empty --seed 0", "only synthetic rows have a seed"),
        ("data criteo --synthetic 5 --where period=late", "synthetic rows have no additional columns"),
        ("paper verify C9", "there is no experiment 'C9'"),
        ("paper run C1 --plan mixtures", "'mixtures' is no plan of these experiments: methods"),
        ("paper run C1 --device tpu", "there is no device 'tpu'"),
        ("paper run C1 --networks .", "results of their own"),
        ("paper run I1 --root nowhere", "does not exist"),
        ("paper run I1 --weights nowhere", "does not exist"),
        ("paper figures C7 --suffix .gif", "Expected a file name that ends with"),
        ("paper verify C1 --results nowhere", "nowhere has no results"),
        (f"{CIFAR10} --seeds {HUGE}", "--seeds"),
        (f"{CIFAR10} --seeds 0-{HUGE}", "--seeds"),
        (f"{CIFAR10} --seeds x", "is not a list of seeds"),
        (f"{CIFAR10} --norm btach", "unknown normalisation 'btach' (did you mean 'batch'?); choose one of batch"),
        (f"{CIFAR10} --device tpu", "there is no device 'tpu'"),
        (f"{CIFAR10} --epochs 0", "Expected epochs to be at least 1, but got 0"),
        (f"{CIFAR10} --epochs x", "--epochs"),
        (f"{CIFAR10} --at-once 0", "--at-once"),
        (f"{CIFAR10} --checkpoint-every 0", "--checkpoint-every"),
        (f"{CIFAR10} --learning-rate -1", "Expected learning_rate to be finite and greater than 0, but got -1"),
        (f"{CIFAR10} --momentum 1", "Expected momentum to be"),
        (f"{CIFAR10} --batches 3", "No such option"),
        (f"{CIFAR10} --recipe best", "Expected recipe to be one of tuned, cosine, but got 'best'"),
        (f"train criteo --seeds {HUGE}", "--seeds"),
        ("train criteo --seeds x", "is not a list of seeds"),
        (f"train criteo --widths {HUGE},16", "--widths"),
        ("train criteo --widths 8,x", "is not a list of widths"),
        ("train criteo --batch-size 1", "Expected batch_size to be at least 2, but got 1"),
        (f"train imagenet --root . --seed {HUGE}", "--seed"),
        ("train imagenet --root . --device tpu", "there is no device 'tpu'"),
        ("train imagenet --root . --momentum 0", "Expected momentum to be greater than 0"),
        # Options that would have no effect.
        (f"evaluate --plan p.toml {ZOO}", "--model"),
        ("evaluate --plan p.toml --shift fog", "--shift"),
        ("evaluate --plan p.toml --data sample", "--data"),
        ("evaluate --plan p.toml --hits", "--hits"),
        (f"evaluate {ZOO} --clean sample", "--clean"),
        (f"evaluate {ZOO} --validation sample", "--validation"),
        (f"{CIFAR10} --root x", "--root"),
        ("paper run C1 --root .", "--root"),
        (f"paper run K1 --weights {__file__}", "--weights"),
        (f"evaluate {ZOO} --cpus-per-worker 2", "--cpus-per-worker"),
        (f"evaluate {ZOO} --gpus-per-worker 1", "--gpus-per-worker"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(line, message, tmp_path, monkeypatch):
    """It is named, in a sentence or as an invalid value of its option, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(cli.app, line.split(), env={"COLUMNS": "200"})
    assert result.exit_code == 2, result.exception
    said = " ".join(result.output.replace("│", " ").split())
    if message.startswith("--") and " " not in message:
        message, said = f"Invalid value for {message}", said.replace("'", "")
    assert message in said
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
