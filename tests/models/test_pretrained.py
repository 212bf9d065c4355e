import sys

import numpy as np
import pytest
import torch
from PIL import Image

from predbn.common import MissingPackageError
from predbn.data import read_picture, resize_crop
from predbn.models import ModelError, load
from predbn.models.preprocessing import Normalise
from predbn.models.pretrained import load_timm, timm_preprocessing

timm = pytest.importorskip("timm", reason="timm is not installed")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def write_picture(path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)).save(path)


def test_timms_configuration_as_a_preprocessing():
    network, classes, result = load_timm("resnet18.tv_in1k", pretrained=False)
    assert (classes, result.size, result.resize, result.interpolation) == (1000, (224, 224), 256, "bilinear")
    assert result.mean == pytest.approx((123.675, 116.28, 103.53))
    assert result.std == pytest.approx((58.395, 57.12, 57.375))
    assert isinstance(network, torch.nn.Module)
    other = {"input_size": (3, 288, 320), "crop_pct": 0.95, "interpolation": "bicubic", "mean": [0] * 3, "std": [1] * 3}
    result = timm_preprocessing(other)
    assert (result.size, result.resize, result.interpolation) == ((288, 320), 303, "bicubic")


def test_networks_that_cannot_be_loaded(monkeypatch):
    def fail(name, pretrained):
        raise OSError("no route to host\nand more")

    with pytest.raises(ModelError, match=r"timm:resnet18x cannot be loaded \(Unknown model"):
        load_timm("resnet18x", pretrained=False)
    with monkeypatch.context() as patch:
        patch.setattr(timm, "create_model", fail)
        with pytest.raises(ModelError, match=r"\(no route to host\): check the name"):
            load("timm:resnet18")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingPackageError, match=r'timm:resnet18 needs timm: run `pip install "predbn\[timm\]"`\.'):
        load("timm:resnet18")


def test_a_timm_model_in_a_folder_and_in_the_cache_of_the_hub(tmp_path, monkeypatch):
    """Without a network. The folder of a model is what timm pushes to the Hub."""
    from huggingface_hub import constants
    from timm.models import save_for_hf

    torch.manual_seed(0)
    network = timm.create_model("test_resnet", num_classes=7).eval()
    snapshot = tmp_path / "models--someone--finetuned" / "snapshots" / "0"
    save_for_hf(network, snapshot, model_config={"num_classes": 7})
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    pixels = torch.randint(256, (2, 3, 160, 160), dtype=torch.uint8)
    for reference in (f"local-dir:{snapshot}", "hf-hub:someone/finetuned"):
        model = load(reference)
        assert (model.info.reference, model.info.classes) == (reference, 7)
        torch.testing.assert_close(model(pixels), network(model.normalise(pixels)))
    with pytest.raises(ModelError, match="hf-hub:someone/other is not in the cache of huggingface_hub, and the Hugg"):
        load("hf-hub:someone/other")
    with pytest.raises(ModelError, match="hf-hub:someone/finetuned has its own weights"):
        load("hf-hub:someone/finetuned", weights="w.pt")


def test_a_model_of_torchvision(tmp_path, monkeypatch):
    """Its weights are in the cache of torch.hub, where a download puts them."""
    torchvision = pytest.importorskip("torchvision")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    weights = torchvision.models.get_model_weights("shufflenet_v2_x0_5").DEFAULT
    torch.manual_seed(0)
    network = torchvision.models.shufflenet_v2_x0_5().eval()
    torch.save(network.state_dict(), tmp_path / "hub" / "checkpoints" / weights.url.rpartition("/")[2])
    path = tmp_path / "picture.png"
    write_picture(path)
    with Image.open(path) as picture:
        expected = weights.transforms()(picture.convert("RGB"))[None]
    for reference in ("torchvision:shufflenet_v2_x0_5", "torchvision:shufflenet_v2_x0_5.IMAGENET1K_V1"):
        model = load(reference)
        pixels = torch.from_numpy(read_picture(path, model.info.preprocessing.crop).copy()).permute(2, 0, 1)[None]
        torch.testing.assert_close(model.normalise(pixels), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model(pixels), network(expected))
        assert model.info.classes == 1000


def test_what_torchvision_does_not_have():
    pytest.importorskip("torchvision")
    for name, sentence in {
        "resnet18x": r"cannot be loaded \(Unknown model resnet18x\): check the name with torchvision",
        "resnet50.V3": r"There is no torchvision:resnet50\.V3: choose from resnet50\.IMAGENET1K_V1, resnet50",
        "r3d_18": "torchvision:r3d_18 is not a classifier of images",
    }.items():
        with pytest.raises(ModelError, match=sentence):
            load(f"torchvision:{name}")


def test_a_timm_that_cannot_be_imported(monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "timm":
                raise RuntimeError("operator torchvision::nms does not exist")

    for name in [name for name in sys.modules if name.partition(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(ModelError, match=r"cannot be imported here \(operator torchvision::nms does not exist\)"):
        load_timm("resnet18")


NAMES = ["densenet121.tv_in1k", "resnet50.tv_in1k", "resnet50.a1_in1k", "tf_efficientnet_b7.ns_jft_in1k"]


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_prepared_as_timm_does(name, tmp_path):
    """From the file to the network's input, the whole way: decoding, resizing, cropping, scaling."""
    from timm.data import create_transform, resolve_data_config

    config = resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
    path = tmp_path / "picture.png"
    write_picture(path)
    with Image.open(path) as picture:
        expected = create_transform(**config, is_training=False)(picture.convert("RGB"))
    result = timm_preprocessing(config)
    pixels = read_picture(path, resize_crop(result.size, result.resize, result.interpolation))
    ours = Normalise(result)(torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None])[0]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
