"""1×1 convolutions that add up their output and normalise their input, against double precision.

Without a GPU, `tests/models/kernels/test_interpreted.py` runs this under Triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ..models.kernels.conftest import bench

__all__ = ["bench"]

# examples, input channels, output channels, height, width, stride
SHAPES = [
    (5, 24, 40, 7, 7, 1),
    (3, 64, 70, 9, 5, 2),
    (2, 32, 16, 12, 12, 1),
    (9, 16, 24, 1, 1, 1),
]
TILES = [(64, 32, 16), (16, 64, 32)]


def tensors(bench, shape, dtype, offset=0.0):
    examples, depth, channels, height, width, _ = shape
    generator = torch.Generator().manual_seed(depth)
    x = torch.randn(examples, depth, height, width, generator=generator) + 0.5
    weight = torch.randn(channels, depth, 1, 1, generator=generator) / depth**0.5
    if offset:  # the mean of every output channel, in units of its spread
        x[:, 0], weight[:, 0] = 1.0, offset
    x = x.to(bench.device, dtype).contiguous(memory_format=torch.channels_last)
    return x, weight.to(bench.device, dtype)


def prologue_of(bench, depth):
    from predbn.norm.gpu.conv import Prologue

    rows = torch.rand(2, depth, generator=torch.Generator().manual_seed(1)).to(bench.device) + 0.2
    return Prologue(*rows, relu=True)


def normalised(x: Tensor, prologue) -> Tensor:
    scale, shift = (t.view(-1, 1, 1) for t in prologue[:2])
    return (x.double() * scale + shift).relu().to(x.dtype)


def moments(sums: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Of the sums [groups, pieces, 3, C], in double precision."""
    wide = sums.double().cpu()
    total, squares = wide[:, :, :2].sum(1).unbind(1)
    return wide[:, 0, 2] + total / rows, squares / rows - (total / rows) ** 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("has_prologue", [False, True])
@pytest.mark.parametrize("wanted", ["nothing", "batch", "examples"])
@pytest.mark.parametrize(("shape", "tile"), [(s, TILES[i % 2]) for i, s in enumerate(SHAPES)] + [(SHAPES[0], TILES[1])])
def test_output_and_sums(bench, shape, tile, wanted, has_prologue, dtype):
    from predbn.norm.gpu.conv import Config, conv_with_sums

    x, weight = tensors(bench, shape, dtype)
    stride, kind = shape[-1], ["nothing", "batch", "examples"].index(wanted)
    prologue = prologue_of(bench, x.shape[1]) if has_prologue else None
    y, sums, is_bad = conv_with_sums(x, weight, stride, prologue, kind, Config(*tile, 4, 2))
    assert y.is_contiguous(memory_format=torch.channels_last)
    read = normalised(x, prologue) if has_prologue else x
    expected = F.conv2d(read.double().cpu(), weight.double().cpu(), stride=stride)
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(y.double().cpu(), expected, rtol=2 * rounding, atol=2 * rounding)
    if wanted == "nothing":
        assert sums is None
        return
    stored = y.double().cpu()
    var, mean = torch.var_mean(stored, (0, 2, 3) if wanted == "batch" else (2, 3), correction=0)
    found = moments(sums, stored.numel() // stored.shape[1] // len(sums))
    torch.testing.assert_close(found[0].view_as(mean), mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1].view_as(var), var, rtol=1e-4, atol=1e-5)
    if wanted == "examples":
        assert sums.shape == (len(x), 1, 3, len(weight))
        assert is_bad.tolist() == [0] * len(x)


@pytest.mark.parametrize("offset", [100.0, 1e4])
@pytest.mark.parametrize("wanted", [1, 2])
def test_a_mean_that_is_large_compared_to_the_spread(bench, wanted, offset):
    """As good as the sums kernel, compared with double precision, beside eps. Values are those in half precision."""
    from predbn.norm.gpu.conv import Config, conv_with_sums
    from predbn.norm.gpu.sums import sums, tiling_of

    x, weight = tensors(bench, (4, 32, 24, 12, 12, 1), torch.float16, offset)
    y, found, _ = conv_with_sums(x, weight, 1, None, wanted, Config(64, 32, 32, 4, 2))
    groups = 1 if wanted == 1 else len(x)
    rows = len(x) * 144 // groups
    var, mean = torch.var_mean(y.double().cpu().unflatten(0, (groups, -1)), (1, 3, 4), correction=0)
    errors = []
    for each in (found, sums(y, tiling_of(y, groups))):
        own_mean, own_var = moments(each, rows)
        errors.append([((own_mean - mean).abs() / mean.abs()).max(), ((own_var - var).abs() / (var + 1e-5)).max()])
    ours, separate = torch.tensor(errors)
    assert (ours <= 2 * separate + torch.tensor([1e-7, 1e-4])).all(), errors


def test_an_example_that_is_not_finite_is_found_and_changes_no_other(bench):
    from predbn.norm.gpu.conv import Config, conv_with_sums

    x, weight = tensors(bench, (6, 16, 40, 3, 3, 1), torch.float16)
    prologue = prologue_of(bench, 16)
    config = Config(16, 32, 16, 4, 2)  # a tile has rows of several examples
    _, good, _ = conv_with_sums(x, weight, 1, prologue, 2, config)
    x[2, 3, 1, 1], x[5, 0, 0, 0] = torch.nan, torch.inf
    _, sums, is_bad = conv_with_sums(x, weight, 1, prologue, 2, config)
    assert is_bad.tolist() == [0, 0, 1, 0, 0, 1]
    others = [0, 1, 3, 4]
    torch.testing.assert_close(sums[others], good[others], rtol=0, atol=0)


def test_tiles_know_how_many_examples_they_have():
    pytest.importorskip("triton", reason="Triton is not installed")
    from predbn.norm.gpu.conv import slots_of

    for tile in (16, 64, 128, 256):
        for rows in (1, 2, 9, 16, 49, 64, 196, 784, 3136):
            starts = range(0, tile * rows, tile)
            most = max((start + tile - 1) // rows - start // rows + 1 for start in starts)
            assert slots_of(tile, rows) == most, (tile, rows)


@pytest.mark.parametrize("wanted", [0, 1, 2])
@pytest.mark.parametrize("has_prologue", [False, True])
def test_all_ways_agree(bench, wanted, has_prologue):
    from predbn.norm.gpu.conv_choice import SEPARATE, Way, run, ways_of

    x, weight = tensors(bench, (5, 24, 40, 7, 7, 1), torch.float16)
    prologue = prologue_of(bench, 24) if has_prologue else None
    ways = ways_of(weight, prologue)
    assert ways[-1] == SEPARATE
    assert Way(ways[0].config, has_prologue) == ways[0]
    chosen = [ways[0], *([Way(ways[0].config)] if has_prologue else [])]
    expected = run(SEPARATE, x, weight, 1, prologue, wanted)
    for way in chosen:
        y, *found = run(way, x, weight, 1, prologue, wanted)
        torch.testing.assert_close(y, expected[0], rtol=2e-3, atol=2e-3)
        assert y.stride() == expected[0].stride()
        if wanted:
            rows = 5 * 49 if wanted == 1 else 49
            for own, other in zip(moments(found[0], rows), moments(expected[1], rows), strict=True):
                torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-3)
        if wanted == 2:
            assert torch.equal(found[1], expected[2])


def test_the_fastest_way_is_kept_and_one_that_fails_is_not_taken(bench, monkeypatch):
    from predbn.norm.gpu import conv_choice

    x, weight = tensors(bench, (5, 24, 40, 7, 7, 1), torch.float16)
    times = iter([3.0, 1.0, float("inf"), 2.0] * 3)
    measured = []

    def time_of(way, *arguments):
        measured.append(way)
        return next(times)

    monkeypatch.setattr(conv_choice, "time_of", time_of)
    monkeypatch.setattr(conv_choice, "_chosen", {})
    monkeypatch.setattr(conv_choice.FORCED, "way", None)
    site = conv_choice.new_site()
    for batch in (x, x, torch.cat([x, x[:1]])):  # 5 and 6 examples are of one size class
        conv_choice.convolve(batch.contiguous(memory_format=torch.channels_last), weight, 1, None, 1, site)
    assert len(measured) == len(conv_choice.ways_of(weight, None))
    assert conv_choice.SITES[site].way == measured[1]
