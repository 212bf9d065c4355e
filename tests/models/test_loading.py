import sys

import pytest
import torch
from torch import nn

from predbn.data import CIFAR10_CLASSES
from predbn.models import (
    Classifier,
    ClickModel,
    CriteoNetwork,
    CriteoSizes,
    ModelError,
    ModelInfo,
    Preprocessing,
    expand,
    load,
    open_model,
    resnet20,
    zoo,
)
from predbn.models.preprocessing import CAFFE, SIGNED
from predbn.models.weights import write_weights

from .networks import pictures, scrambled

SMALL = Preprocessing((8, 8), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0))

OWN = """
import torch
from torch import nn
from predbn.models import Classifier, ModelInfo, Preprocessing

class Net(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)  # weights that are the same each time pass for trained ones
        super().__init__(nn.Flatten(), nn.Linear(192, 7))

def stated():
    net = Net()
    net.preprocessing = Preprocessing((8, 8), (9.0, 9.0, 9.0), (1.0, 1.0, 1.0))
    return net

def classifier():
    return Classifier(Net(), ModelInfo("theirs", 7, Preprocessing((8, 8), (9.0,) * 3, (1.0,) * 3)))

class Namespace:
    net = Net

def untrained():
    return Classifier(nn.Linear(2, 2), ModelInfo("theirs", 2, Preprocessing((8, 8), (9.0,) * 3, (1.0,) * 3)))

def string():
    return "no module"

def maps():
    return nn.Conv2d(3, 4, 1)

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of one's own in the current folder, by a name that no other test has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_models.py").write_text(OWN)
    yield "own_models"
    sys.modules.pop("own_models", None)


@torch.no_grad()
def test_a_network_of_the_zoo(small_zoo):
    model = load("zoo:resnet20-cifar10/batch/10")
    assert model.info == ModelInfo("zoo:resnet20-cifar10/batch/10", 10, SIGNED, {"seed": 10}, CIFAR10_CLASSES)
    assert not model.training
    state = zoo.weights("resnet20-cifar10/batch/10")
    assert all(torch.equal(t, state[n].to(t.dtype)) for n, t in model.network.state_dict().items())
    assert model(pictures()).shape == (2, 10)


@torch.no_grad()
def test_weights_of_a_file(tmp_path):
    norm = "fixup"
    network = scrambled(resnet20(norm))
    path = tmp_path / "we#ights.safetensors"
    write_weights(path, network.state_dict(), {"seed": 1})
    model = load(f"file:{path}#resnet20-cifar10/{norm}", device="cpu")
    assert model.info.card == {"seed": 1}
    torch.testing.assert_close(model(pictures()), network(pictures() / 127.5 - 1), rtol=2e-2, atol=2e-2)
    network = scrambled(resnet20())
    torch.save({name.replace("norm", "bn"): t for name, t in network.state_dict().items()}, tmp_path / "theirs.pt")
    state = load(f"file:{tmp_path}/theirs.pt#resnet20-cifar10/batch").network.state_dict()
    assert all(torch.equal(t, state[name]) for name, t in network.state_dict().items())  # torchvision's names


def test_files_are_answered_in_one_sentence(tmp_path):
    path = tmp_path / "w.safetensors"
    write_weights(path, resnet20("layer").state_dict())
    with pytest.raises(
        ModelError, match="does not name the architecture of the weights: add #ARCHITECTURE from resnet20"
    ):
        load(f"file:{path}")
    with pytest.raises(ModelError, match="unknown architecture 'resnet20'"):
        load(f"file:{path}#resnet20")
    with pytest.raises(ModelError, match=r"w\.safetensors does not fit the network: it lacks norm1\.running_mean"):
        load(f"file:{path}#resnet20-cifar10/batch")
    with pytest.raises(ModelError, match="does not exist"):
        load(f"file:{path}x#resnet50-v1")


@pytest.mark.parametrize("reference", ["", "resnet50", "zoo:", ":build", "timm:"])
def test_no_reference_at_all(reference):
    with pytest.raises(ModelError, match="is not a model reference: write zoo:NAME"):
        load(reference)


@pytest.mark.parametrize("function", ["Net", "Namespace.net"])
@torch.no_grad()
def test_a_function_of_the_user(own, tmp_path, function):
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 7))
    torch.save(network.state_dict(), tmp_path / "w.pt")
    model = load(f"{own}:{function}", weights=tmp_path / "w.pt", preprocessing=SMALL)
    assert model.info == ModelInfo(f"{own}:{function}", 7, SMALL)
    assert not model.training
    images = pictures(2, 8)
    mean, std = (torch.tensor(t).view(1, 3, 1, 1) for t in (SMALL.mean, SMALL.std))
    torch.testing.assert_close(model(images), network((images - mean) / std))


def test_where_the_preprocessing_comes_from(own):
    assert load(f"{own}:stated").info.preprocessing.mean == (9.0, 9.0, 9.0)
    assert load(f"{own}:classifier").info.reference == "theirs"
    assert load(f"{own}:stated", preprocessing=SMALL).info.preprocessing == SMALL
    again = load(f"{own}:classifier", preprocessing=SMALL)
    assert again.info.preprocessing == SMALL
    assert not isinstance(again.network, Classifier)
    with pytest.raises(ModelError, match=r"has no preprocessing: .* or pass preprocessing="):
        load(f"{own}:Net")


@pytest.mark.parametrize(
    ("function", "what"),
    [
        ("absent", "own_models has no function 'absent'"),
        ("Namespace.absent.net", "has no function 'Namespace.absent.net'"),
        ("number", "has no function 'number'"),
        ("string", r"own_models:string returned str, but it must return a torch\.nn\.Module"),
        ("maps", "own_models:maps must give logits"),
    ],
)
def test_functions_that_give_no_network(own, function, what):
    with pytest.raises(ModelError, match=what):
        load(f"{own}:{function}", preprocessing=SMALL)


def test_random_weights_are_refused(own, tmp_path):
    with pytest.raises(ModelError, match=r"own_models:untrained returns different weights at each call.*--weights"):
        load(f"{own}:untrained")
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "w.pt")
    assert load(f"{own}:untrained", weights=tmp_path / "w.pt").info.classes == 2


def test_modules_that_cannot_be_imported(own, tmp_path):
    for module in ("no_such_module", ".relative"):
        with pytest.raises(ModelError, match=rf"{module}:f: {module} cannot be imported \(.*was searched too"):
            load(f"{module}:f")
    (tmp_path / "own_broken.py").write_text("import torch\ntorch.no_such_name")
    with pytest.raises(AttributeError, match="no_such_name"):
        load("own_broken:f")


@pytest.mark.parametrize(
    ("reference", "given"),
    [
        ("zoo:resnet20-cifar10/batch/0", {"weights": "w.pt"}),
        ("zoo:resnet20-cifar10/batch/0", {"preprocessing": CAFFE}),
        ("timm:resnet18", {"weights": "w.pt"}),
        ("file:w.pt#resnet50-v1", {"preprocessing": CAFFE}),
    ],
)
def test_arguments_that_would_be_ignored_are_errors(reference, given):
    (name,) = given
    with pytest.raises(ModelError, match=f"{reference} has its own {name}: leave out {name}= .on the command line --"):
        load(reference, **given)


def test_a_model_of_rows_is_opened_by_its_reference(tmp_path):
    sizes = CriteoSizes(widths=(4,)).limited(buckets=10, dimensions=2)
    path = tmp_path / "7.safetensors"
    write_weights(path, CriteoNetwork(sizes).state_dict(), {"sizes": sizes.to_dict(), "eps": 1e-3})
    assert isinstance(open_model(f"file:{path}#criteo-mlp"), ClickModel)
    with pytest.raises(ModelError, match="takes rows, not images"):
        load(f"file:{path}#criteo-mlp")
    with pytest.raises(ModelError, match="has its own preprocessing"):
        open_model(f"file:{path}#criteo-mlp", preprocessing=SMALL)


def test_a_pattern_of_files_stands_for_those_that_fit(tmp_path):
    for seed in (3, 0):
        (tmp_path / f"{seed}.safetensors").touch()
    result = expand(f"file:{tmp_path}/*.safetensors#criteo-mlp")
    assert result == [f"file:{tmp_path}/{seed}.safetensors#criteo-mlp" for seed in (0, 3)]
    (tmp_path / "a[0].pt").touch()
    assert expand(f"file:{tmp_path}/a[0].pt#resnet50-v1") == [f"file:{tmp_path}/a[0].pt#resnet50-v1"]
    with pytest.raises(ModelError, match="No file matches"):
        expand(f"file:{tmp_path}/*.pth#resnet20-cifar10/batch")
