"""Classifiers, segmenters, detectors, 1d and 3d networks, as other packages build them, without weights."""

import copy
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import predbn
from predbn.norm import named_layers

from .models import randomise

Case = tuple[Callable[[], nn.Module], Any]


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed")


def unet() -> Case:
    smp = package("segmentation_models_pytorch")
    return lambda: smp.Unet("resnet18", encoder_weights=None, classes=3), (torch.randn(4, 3, 32, 32), torch.zeros(4))


def torchvision_deeplab() -> Case:
    """Returns a dictionary."""
    models = package("torchvision.models.segmentation")
    options = {"weights": None, "weights_backbone": None, "num_classes": 3, "aux_loss": True}
    return lambda: models.deeplabv3_mobilenet_v3_large(**options), {"x": torch.randn(4, 3, 32, 32)}


def timm_case(name: str, batch: Tensor) -> Case:
    timm = package("timm")
    return lambda: timm.create_model(name, num_classes=10, pretrained=False), batch


def mobilenet() -> Case:
    """Batch norms with a fused activation."""
    return timm_case("mobilenetv3_small_050", torch.randn(4, 3, 64, 64))


def preactivation_resnet() -> Case:
    return timm_case("resnetv2_18", torch.randn(4, 3, 64, 64))


def features() -> Case:
    """Returns a list."""
    timm = package("timm")
    return lambda: timm.create_model("resnet18", features_only=True, pretrained=False), torch.randn(4, 3, 32, 32)


def volumes() -> Case:
    nets = package("monai.networks.nets")
    options = {"in_channels": 1, "out_channels": 2, "channels": (4, 8, 16), "strides": (2, 2), "norm": "batch"}
    return lambda: nets.UNet(spatial_dims=3, **options), {"x": torch.randn(2, 1, 16, 16, 16), "label": torch.zeros(2)}


class Speech(nn.Module):
    """Convolutions over time with a mask, as batches of utterances of different lengths need it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv1d(8, 16, 5, padding=2), nn.BatchNorm1d(16)
        self.conv2, self.bn2 = nn.Conv1d(16, 16, 5, padding=2), nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 5)

    def forward(self, features: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        mask = (torch.arange(features.shape[2]) < lengths[:, None])[:, None]
        x = torch.relu(self.bn1(self.conv1(features * mask)))
        x = torch.relu(self.bn2(self.conv2(x * mask)))
        return {"frames": self.head(x.transpose(1, 2)), "lengths": lengths}


def speech() -> Case:
    return Speech, {"features": torch.randn(4, 8, 50), "lengths": torch.tensor([50, 30, 40, 20]), "text": ["a"] * 4}


def detector_pictures() -> Any:
    """Pictures of different sizes in a list, and targets, as torchvision's detectors take them."""
    return [torch.rand(3, 48, 64), torch.rand(3, 40, 56)], [{}, {}]


def detector() -> Case:
    detection = package("torchvision.models.detection")
    options = {"weights": None, "weights_backbone": None, "num_classes": 3, "box_score_thresh": 0.0}
    options |= {"min_size": 64, "max_size": 64, "rpn_post_nms_top_n_test": 4, "rpn_pre_nms_top_n_test": 20}
    return lambda: detection.fasterrcnn_mobilenet_v3_large_320_fpn(**options), detector_pictures()


def frozen_detector() -> Case:
    """A frozen backbone, and a box head with batch norm, whose rows are proposals and not pictures."""
    package("torchvision.models.detection")
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor

    def make() -> nn.Module:
        backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None)
        head = FastRCNNConvFCHead((256, 7, 7), [16], [32], norm_layer=nn.BatchNorm2d)
        return FasterRCNN(
            backbone,
            num_classes=None,
            box_head=head,
            box_predictor=FastRCNNPredictor(32, 3),
            min_size=64,
            max_size=64,
            rpn_post_nms_top_n_test=4,
            rpn_pre_nms_top_n_test=20,
            box_score_thresh=0.0,
        )

    return make, detector_pictures()


CASES = [
    mobilenet,
    preactivation_resnet,
    unet,
    torchvision_deeplab,
    features,
    volumes,
    speech,
    detector,
    frozen_detector,
]


def plain_nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """torchvision's operator, which a CPU build of torch may lack: from the best box on, drop those that overlap it."""
    from torchvision.ops import box_iou

    overlaps, kept, left = box_iou(boxes, boxes) > iou_threshold, [], scores.argsort(descending=True)
    while len(left):
        kept.append(int(left[0]))
        left = left[1:][~overlaps[left[0], left[1:]]]
    return torch.tensor(kept, dtype=torch.long)


@pytest.fixture
def torchvision_operators(monkeypatch):
    """What a CPU build of torch lacks: nms, and the kernel of roi_align, for which torchvision would compile one."""
    if importlib.util.find_spec("torchvision") is not None:
        monkeypatch.setattr("torchvision.ops.boxes.nms", plain_nms)
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.fixture(params=CASES, ids=lambda case: case.__name__)
def case(request, torchvision_operators) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    make, batch = request.param()
    model = randomise(make())
    for _, layer in named_layers(model):  # statistics that are off, but keep the activations of many layers in range
        layer.running_mean.mul_(0.05)
        layer.weight.data.fill_(1.0)
        layer.bias.data.mul_(0.1)
    return model.eval(), batch


def predict(model: nn.Module, batch: Any) -> list[Tensor]:
    with torch.no_grad():
        output = predbn.norm.BatchForward(model)(batch)
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def assert_close(found: list[Tensor], wanted: list[Tensor]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        scale = b.abs().max().item() if b.numel() else 1.0
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * scale)


@pytest.mark.filterwarnings("ignore:.*were not called:UserWarning")
def test_adapt_recompute_and_auto(case):
    model, batch = case
    plain, before = predict(model, batch), copy.deepcopy(model.state_dict())
    twin = copy.deepcopy(model)
    trained = {name: layer for name, layer in named_layers(twin) if isinstance(layer, nn.modules.batchnorm._BatchNorm)}
    for layer in trained.values():
        layer.train()
        layer.momentum = 1.0  # the running mean becomes that of the batch
    wanted = predict(twin, batch)

    layers = lambda name, layer: name in trained  # noqa: E731
    assert_close(predict(predbn.adapt(model, "batch", layers=layers), batch), wanted)
    predbn.restore(model)
    assert all(torch.equal(a, b) for a, b in zip(predict(model, batch), plain, strict=True))

    predbn.recompute(model, [batch], exact=False)
    for name, layer in trained.items():
        found = model.get_submodule(name)
        scale = found.running_var.sqrt().max().item()
        torch.testing.assert_close(found.running_mean, layer.running_mean, rtol=1e-3, atol=1e-3 * scale)
    assert_close(predict(model, batch), wanted)
    predbn.restore(model)

    predbn.calibrate(model, [batch, batch])
    for strategy in ("auto(passes=1)", "auto_stream"):
        outputs = predict(predbn.adapt(model, strategy), batch)
        assert all(bool(leaf.isfinite().all()) for leaf in outputs)
    predbn.restore(model, keep_calibration=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(predict(model, batch), plain, strict=True))


@pytest.mark.parametrize("case", [mobilenet], indirect=True, ids=lambda case: case.__name__)
@torch.no_grad()
def test_folded(case):
    model, batch = case
    predbn.adapt(model, "frozen")
    model(batch)
    folded = predbn.fold(model)
    assert not [m for m in folded.modules() if isinstance(m, nn.BatchNorm2d)]
    assert_close([folded(batch)], [model(batch)])


def test_streams_of_a_list_of_pictures(torchvision_operators):
    """The layers of a detector have a row per picture; those of its box head have one per proposal."""
    make, (pictures, _) = detector()
    model = predbn.adapt(make().eval(), "prior")
    with torch.no_grad(), predbn.streams(model, ["a", "b"]):
        assert len(model(pictures)) == 2
    with predbn.streams(model, ["a", "b", "c"]), pytest.raises(predbn.AdaptationError, match="2 rows for the 3"):
        model(pictures)
    make, (pictures, _) = frozen_detector()
    model = predbn.adapt(make().eval(), "prior")
    with predbn.streams(model, ["a", "b"]), pytest.raises(predbn.AdaptationError, match="predict one at a time"):
        model(pictures)


class Pyramid(nn.Module):
    """One head for the features of three scales, as detectors with a feature pyramid have it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [torch.relu(self.bn(self.conv(nn.functional.avg_pool2d(x, scale)))) for scale in (1, 2, 4)]


@pytest.mark.parametrize("exact", [True, False])
def test_a_layer_that_sees_several_scales_has_the_statistics_of_all_their_values(exact):
    model, batches = randomise(Pyramid()).double().eval(), torch.randn(10, 3, 16, 16, dtype=torch.float64).split([7, 3])
    predbn.recompute(model, batches, exact=exact)
    with torch.no_grad():
        maps = [model.conv(nn.functional.avg_pool2d(torch.cat(batches), scale)) for scale in (1, 2, 4)]
    values = torch.cat([m.transpose(0, 1).flatten(1) for m in maps], 1)
    torch.testing.assert_close(model.bn.running_mean, values.mean(1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model.bn.running_var, values.var(1, correction=0), rtol=1e-9, atol=1e-9)
