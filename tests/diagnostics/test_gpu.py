"""The same on a GPU, and without waiting for it; skipped if there is none."""

import copy

import pytest
import torch

from predbn.diagnostics import profile, profiles

from ..norm.models import images, net

pytestmark = pytest.mark.gpu


def test_cpu_and_gpu_agree():
    on_cpu, data = net(), [images(16, seed=seed) for seed in range(3)]
    on_gpu = copy.deepcopy(on_cpu).cuda()
    with torch.backends.cudnn.flags(allow_tf32=False):
        first = profile(on_cpu, data)
        expected = profiles(on_cpu, data, ["train", "batch"], like=first)
        result = profiles(on_gpu, data, ["train", "batch"], like=first)
    for strategy, reference in expected.items():
        for name, distribution in reference.distributions.items():
            other = result[strategy].distributions[name]
            torch.testing.assert_close(other.mean, distribution.mean, rtol=1e-3, atol=1e-3)
            assert other.counts.sum() == distribution.counts.sum()


@pytest.mark.parametrize("outputs", ["all", None])
def test_no_batch_waits_for_the_gpu(outputs):
    model, data = net().cuda(), [images(16, seed=seed).cuda() for seed in range(4)]
    first = profile(model, data)
    _ = profiles(model, data, ["train", "batch"], like=first, outputs=outputs)

    def stream():
        yield data[0]
        torch.cuda.set_sync_debug_mode("error")
        yield from data[1:]
        torch.cuda.set_sync_debug_mode("default")

    try:
        result = profiles(model, stream(), ["train", "batch"], like=first, outputs=outputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result["batch"].count == 64
