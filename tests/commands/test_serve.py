"""`predbn serve` and `predbn calibrate`: their options. What the server does is tested in tests/serving."""

import subprocess
import sys

import pytest
import torch

from predbn import cli
from predbn.serving import load_calibration

from ..serving.running import classifier


def run(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["predbn", *arguments])
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code:
            raise


def failure(monkeypatch, capsys, *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, *arguments)
    return stopped.value.code, " ".join(capsys.readouterr().err.replace("│", " ").split())


MODEL = ("--model", "tests.serving.served_model:build")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--strategy", "atuo"), 2, "unknown strategy 'atuo' (did you mean 'auto'?)"),
        (("--max-wait", "60000"), 2, "max_wait must be between 0 and the timeout, 30 s, got 60.0 s."),
        (("--name", "a/b"), 2, "the name 'a/b' cannot be part of a URL"),
        (("--token", "ü"), 2, "the token must be printable ASCII without spaces"),
        (("--labels", "missing.txt"), 2, "missing.txt cannot be read as text"),
        (
            ("--calibration", "missing.safetensors"),
            1,
            "missing.safetensors does not exist: write it with predbn calibrate",
        ),
        (("--replicas", "3"), 2, "it goes with --engine ray: add that, or leave it out."),
        (("--engine", "ray"), 2, "replicas hand over streams in a folder: give one that all nodes share."),
        (("--strategy", "ema", "--host", "300.1.1.1", "--public"), 1, "cannot listen on 300.1.1.1:8080"),
        (("--host", "0.0.0.0"), 2, "anyone who reaches 0.0.0.0 could use the server: set a token (--token), or"),
        (("--host", "example.org"), 2, "anyone who reaches example.org could use the server"),
        (("--config", "missing.toml"), 2, "missing.toml cannot be read as TOML"),
    ],
)
def test_wrong_options_get_one_sentence(monkeypatch, capsys, options, code, message):
    found = failure(monkeypatch, capsys, "serve", *MODEL, *options)
    assert found[0] == code
    assert message in found[1]


def test_an_empty_token_is_not_the_same_as_none(monkeypatch, capsys):
    monkeypatch.setenv("PREDBN_TOKEN", "")
    code, message = failure(monkeypatch, capsys, "serve", *MODEL)
    assert (code, "PREDBN_TOKEN is empty: give it a value, or unset it." in message) == (2, True)


def test_a_config_file_has_the_options_and_the_command_line_goes_before_it(monkeypatch, capsys, tmp_path):
    started = []
    monkeypatch.setattr(sys.modules["predbn.serving.serve"], "run_server", started.append)
    config = tmp_path / "server.toml"
    config.write_text(
        'model = "tests.serving.served_model:build"\nstrategy = "ema"\nmax-wait = 7.0\nmax_batch = 5\npublic = true\n'
        'host = "0.0.0.0"\nmax-body = 0.5\nstream-metrics = false\n'
    )
    run(monkeypatch, "serve", "--config", str(config), "--max-batch", "6")
    settings = started[0].settings
    assert (settings.max_wait, settings.max_batch, settings.host) == (0.007, 6, "0.0.0.0")
    assert (settings.max_body, settings.stream_metrics) == (1 << 19, False)
    config.write_text("colour = 3")
    code, message = failure(monkeypatch, capsys, "serve", "--config", str(config))
    assert (code, "has the unknown option 'colour'" in message) == (2, True)


def test_a_port_in_use(monkeypatch, capsys):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        code, message = failure(monkeypatch, capsys, "serve", *MODEL, "--strategy", "ema", "--port", port)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use): change --port" in message


def test_labels_must_be_as_many_as_classes(monkeypatch, capsys, tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb\n")
    code, message = failure(monkeypatch, capsys, "serve", *MODEL, "--labels", str(tmp_path / "labels.txt"))
    assert code == 1
    assert "expected one label for each of 5 classes, got 2" in message


def test_options_reach_the_server(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(sys.modules["predbn.serving.serve"], "run_server", started.append)
    (tmp_path / "labels.txt").write_text("\n".join("abcde"))
    monkeypatch.setenv("PREDBN_TOKEN", "secret")
    run(monkeypatch, "serve", *MODEL, "--strategy", "ema", "--name", "tiny", "--max-wait", "5", "--max-batch", "7",
        "--labels", str(tmp_path / "labels.txt"), "--host", "0.0.0.0")  # fmt: skip
    (service,) = started
    assert (service.settings.max_wait, service.settings.max_batch) == (0.005, 7)
    assert (service.settings.name, service.settings.token, service.settings.host) == ("tiny", "secret", "0.0.0.0")
    assert service.spec.labels == tuple("abcde")
    assert str(service.predictor.strategy).startswith("ema")


def test_calibrate_writes_a_file_that_the_server_reads(monkeypatch, tmp_path, capsys):
    import numpy as np

    np.save(tmp_path / "clean.npy", np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), np.uint8))
    out = tmp_path / "c.safetensors"
    run(
        monkeypatch, "calibrate", *MODEL, "--data", str(tmp_path / "clean.npy"), "--out", str(out), "--batch-size", "20"
    )
    assert capsys.readouterr().out.strip() == f"{out} has the calibration with 40 pictures."
    model = classifier()
    load_calibration(model, out)
    torch.testing.assert_close(model(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).isfinite().all(), torch.tensor(True))


def test_the_server_and_its_packages_are_imported_when_it_starts():
    code = """
import sys, predbn
sys.modules["starlette"] = None
assert "predbn.serving" not in sys.modules
from predbn import cli
cli.main()
"""
    command = [sys.executable, "-c", code, "serve", "--model", "zoo:resnet20-cifar10/batch/0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == 'error: starlette is not installed: run `pip install "predbn[serve]"`.\n'
