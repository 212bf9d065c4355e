"""What `pip install predbn` can do: run in a process of its own, in which all other packages are blocked.

    python -m tests.core_only method | missing

`method` uses the method; `missing` prints what each other part says, and each command, when its packages are missing.
"""

import contextlib
import sys
from importlib.metadata import Distribution, PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
CORE = ("common", "norm", "gpu", "keras", "metrics", "methods")
OTHERS = (
    "onnx",
    "shifts",
    "data",
    "models",
    "evaluation",
    "diagnostics",
    "recommendation",
    "training",
    "serving",
    "report",
    "paper",
)
COMMANDS = ((), ("--help",), ("demo",), ("evaluate", "--model", "zoo:x"))


def core_dependencies() -> set[str]:
    """The distributions that `pip install predbn` brings, and predbn."""
    waiting = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    found = {"predbn"}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            with contextlib.suppress(PackageNotFoundError):
                waiting += requires(name) or []
    return found


def block_other_packages() -> None:
    """Python takes a module that is None in sys.modules for one that is not installed; torch also asks for versions."""
    core = core_dependencies()
    from_name = Distribution.from_name

    def core_from_name(name: str) -> Distribution:
        if canonicalize_name(name) not in core:
            raise PackageNotFoundError(name)
        return from_name(name)

    Distribution.from_name = core_from_name
    for module, owners in packages_distributions().items():
        if not core & {canonicalize_name(owner) for owner in owners}:
            for loaded in [name for name in sys.modules if name.startswith(f"{module}.")]:
                del sys.modules[loaded]
            sys.modules[module] = None


def use_the_method() -> None:
    import torch
    from torch import nn

    import predbn
    from predbn.methods import Temperature
    from predbn.metrics import ece

    class Memory(dict):
        """A store for streams that is not on a disk."""

        put = dict.__setitem__

        def claim(self, owner):
            assert self.setdefault("owner", owner) == owner

        def remove(self, name):
            return self.pop(name, None) is not None

    def network(classes: int) -> nn.Module:
        torch.manual_seed(0)
        conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        return nn.Sequential(conv, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)).eval()

    torch.set_num_threads(1)
    clean, shifted = torch.randn(256, 3, 8, 8), 2 * torch.randn(64, 3, 8, 8) + 1
    with torch.no_grad():
        for classes in (10, 150):  # more than 128 classes are grouped
            model = network(classes)
            before = model(shifted)
            predbn.calibrate(model, clean.split(64))
            for strategy in predbn.strategies():
                options = {"loader": clean.split(64)} if strategy == "population" else {}
                predbn.adapt(model, strategy, **options)(shifted)
            predbn.AutoPredictor(model)(shifted)
            predbn.adapt(model, "auto")
            assert not torch.equal(model(shifted), before)
            assert "auto" in str(predbn.describe(model))
            predbn.load_state_dict(model, predbn.state_dict(model))
            probabilities = model(shifted).softmax(1)
            assert 0 <= float(ece(probabilities, probabilities.argmax(1))) <= 1
            assert torch.equal(predbn.restore(model, keep_calibration=False)(shifted), before)
        store = Memory()
        predbn.adapt(model, "ema", max_streams=1, store=store)
        for camera in ("a", "b", "a"):
            with predbn.stream(model, camera):
                model(shifted)
        with predbn.streams(model, ["a", "b"] * 32):
            model(shifted)
        predbn.save_streams(model)
        assert set(store) == {"owner", "a", "b"}
        model = predbn.adapt(network(10), "frozen")
        adapted = model(shifted)
        torch.testing.assert_close(predbn.fold(model)(shifted), adapted)
        with predbn.adapted(model, "batch"):
            exported = torch.export.export(model, (shifted,))
            torch.testing.assert_close(exported.module()(shifted), model(shifted))
    assert Temperature.name == "temperature"
    assert not any(sys.modules[name] for name in ("scipy", "cv2", "PIL", "pandas", "safetensors", "typer", "rich"))


def say_what_is_missing() -> None:
    from importlib import import_module

    from torch import nn

    import predbn
    from predbn.cli import main

    for folder in CORE:
        import_module(f"predbn.{folder}")
    for folder in OTHERS:
        try:
            import_module(f"predbn.{folder}")
        except ImportError as error:
            print(f"{folder}: {type(error).__name__}: {error}")
    with TemporaryDirectory() as folder:
        try:
            predbn.adapt(nn.Sequential(nn.BatchNorm1d(3)), "ema", store=folder)
        except predbn.PredbnError as error:
            print(f"store: {type(error).__name__}: {error}")
    for arguments in COMMANDS:
        sys.argv = ["predbn", *arguments]
        sys.stderr = sys.stdout
        try:
            main()
        except SystemExit as stopped:
            print(f"exit code {stopped.code}")


if __name__ == "__main__":
    block_other_packages()
    {"method": use_the_method, "missing": say_what_is_missing}[sys.argv[1]]()
