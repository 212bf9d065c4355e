"""Two processes that share a batch have the statistics of the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import predbn

from .models import images, net

SHARES = [(5, 5), (9, 1), (10, 0)]
STRATEGIES = ["batch", "prior(N=4)", "auto", "auto_stream", "ema", "frozen"]
BATCHES = [images(10, seed=s, shift=float(s)) for s in range(3)]


def with_classes() -> torch.nn.Module:
    return predbn.calibrate(net(), list(images(40, seed=9).split(10)))


def one_process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    results = {}
    with torch.no_grad():
        for strategy in STRATEGIES:
            for share in SHARES:
                model = predbn.adapt(net(), strategy, sync=True)
                results[strategy, share] = [model(x.split(share)[rank]) for x in BATCHES]
        for share in SHARES:
            model = predbn.adapt(with_classes(), "auto_stream", sync=True)
            results["classes", share] = [model(x.split(share)[rank]) for x in BATCHES]
        wrapped = DistributedDataParallel(net()).eval()
        predbn.adapt(wrapped, sync=True)
        results["ddp"] = [wrapped(x.split((7, 3))[rank]) for x in BATCHES]
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder: Path = tmp_path_factory.mktemp("processes")
    mp.spawn(one_process, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def assert_equal_to_one_process(results, key, strategy):
    with torch.no_grad():
        alone = predbn.adapt(net(), strategy)
        for step, x in enumerate(BATCHES):
            together = torch.cat([results[0][key][step], results[1][key][step]])
            torch.testing.assert_close(together, alone(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("share", SHARES)
def test_uneven_shares_of_a_batch(results, strategy, share):
    assert_equal_to_one_process(results, (strategy, share), strategy)


@pytest.mark.parametrize("share", SHARES)
def test_the_classes_of_a_stream_are_those_of_the_whole_batch(results, share):
    with torch.no_grad():
        alone = predbn.adapt(with_classes(), "auto_stream")
        for step, x in enumerate(BATCHES):
            together = torch.cat([results[0]["classes", share][step], results[1]["classes", share][step]])
            torch.testing.assert_close(together, alone(x), rtol=1e-4, atol=1e-4)


def test_inside_distributed_data_parallel(results):
    assert_equal_to_one_process(results, "ddp", "batch")


def test_sync_without_a_process_group_is_a_group_of_one():
    x = BATCHES[0]
    with torch.no_grad():
        torch.testing.assert_close(predbn.adapt(net(), sync=True)(x), predbn.adapt(net())(x), rtol=1e-5, atol=1e-6)
