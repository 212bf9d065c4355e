"""Two processes that share a batch, or the data, have the statistics of the whole."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import predbn
from predbn.norm import predictor

from .models import images, net
from .test_recompute import (
    DATA,
    assert_same,
    assert_statistics_of_one_batch,
    buffers,
    failing,
    statistics_of_one_batch,
    wide,
)

SHARES = [(5, 5), (9, 1), (10, 0)]
STRATEGIES = ["batch", "prior(N=4)", "auto", "auto_stream", "ema", "frozen"]
OF_CLASSES = ["auto_stream", "auto(passes=3)"]
DATA_SHARES = [(25, 16), (40, 1), (41, 0)]
BATCHES = [images(10, seed=s, shift=float(s)) for s in range(3)]
BAD_ROWS = [slice(0, 5), slice(3, 7), slice(0, 10), slice(0, 0)]
"""All of one process, some of both, all of both, and none."""


def spoilt() -> list[torch.Tensor]:
    batches = [images(10, seed=s, shift=float(s)) for s in range(len(BAD_ROWS))]
    for batch, rows in zip(batches, BAD_ROWS, strict=True):
        batch[rows, 0, 0, 0] = torch.nan
    return batches


def with_classes() -> torch.nn.Module:
    return predbn.calibrate(net(), list(images(40, seed=9).split(10)))


def recompute(rank: int, folder: str) -> dict:
    """Each process has its own batches, and another number of them."""
    results: dict = {}
    for share in DATA_SHARES:
        batches = [batch for batch in DATA.split(share)[rank].split(8 - 3 * rank) if len(batch)]
        results["recomputed", share] = predbn.recompute(wide(), batches).state_dict()
        results["one pass", share] = predbn.recompute(wide(), batches, exact=False).state_dict()
    wrapped = DistributedDataParallel(wide())
    results["recomputed", "ddp"] = predbn.recompute(
        wrapped, list(DATA.split((30, 11))[rank].split(4))
    ).module.state_dict()
    path = Path(folder, "progress")
    for error, loader in [("empty", []), ("failed", failing() if rank else [DATA])]:
        model, before = wide(), buffers(wide())
        try:
            predbn.recompute(model, loader, checkpoint=path)
        except (predbn.AdaptationError, OSError) as raised:
            results[error] = str(raised)
        assert_same(model, before)
    return results


def one_process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    results = {}
    with torch.no_grad():
        for strategy in STRATEGIES:
            for share in SHARES:
                model = predbn.adapt(net(), strategy, sync=True)
                results[strategy, share] = [model(x.split(share)[rank]) for x in BATCHES]
            model = predbn.adapt(net(), strategy, sync=True)
            results["spoilt", strategy] = [model(x.split(5)[rank]) for x in spoilt()]
        for strategy in OF_CLASSES:
            for share in SHARES:
                model = predictor(with_classes(), strategy, sync=True)
                results["classes", strategy, share] = [model(x.split(share)[rank]) for x in BATCHES]
        wrapped = DistributedDataParallel(net()).eval()
        predbn.adapt(wrapped, sync=True)
        results["ddp"] = [wrapped(x.split((7, 3))[rank]) for x in BATCHES]
    results |= recompute(rank, folder)
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


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.filterwarnings("ignore:layer .* not finite")
def test_examples_that_are_not_finite_count_in_no_process(results, strategy):
    alone = predbn.adapt(net(), strategy)
    for step, x in enumerate(spoilt()):
        together = torch.cat([each["spoilt", strategy][step] for each in results])
        with torch.no_grad():
            wanted = alone(x)
        is_finite = wanted.isfinite()
        assert is_finite[x.isfinite().flatten(1).all(1)].all()
        torch.testing.assert_close(together[is_finite], wanted[is_finite], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strategy", OF_CLASSES)
@pytest.mark.parametrize("share", SHARES)
def test_classes_are_those_of_the_whole_batch(results, strategy, share):
    """Also where one process has no example: it takes part in every pass."""
    with torch.no_grad():
        alone = predictor(with_classes(), strategy)
        for step, x in enumerate(BATCHES):
            together = torch.cat([each["classes", strategy, share][step] for each in results])
            torch.testing.assert_close(together, alone(x), rtol=1e-4, atol=1e-4)


def test_inside_distributed_data_parallel(results):
    assert_equal_to_one_process(results, "ddp", "batch")


def test_sync_without_a_process_group_is_a_group_of_one():
    x = BATCHES[0]
    with torch.no_grad():
        torch.testing.assert_close(predbn.adapt(net(), sync=True)(x), predbn.adapt(net())(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("share", [*DATA_SHARES, "ddp"])
def test_processes_with_different_batches_and_numbers_of_them(results, share):
    for result in results:
        model = wide()
        model.load_state_dict(result["recomputed", share])
        assert_statistics_of_one_batch(model)
    assert all(
        torch.equal(value, results[1]["recomputed", share][name])
        for name, value in results[0]["recomputed", share].items()
    )


@pytest.mark.parametrize("share", DATA_SHARES)
def test_one_pass_over_the_data_of_processes(results, share):
    first = results[0]["one pass", share]
    assert all(torch.equal(value, results[1]["one pass", share][name]) for name, value in first.items())
    mean = statistics_of_one_batch(wide(), DATA)["bn1"][0]
    torch.testing.assert_close(first["bn1.running_mean"], mean, rtol=1e-9, atol=1e-9)


def test_processes_fail_together(results):
    assert all("gave no batch" in result["empty"] for result in results)
    assert "process 1 could not measure its part of the data (OSError: the disk is gone)" in results[0]["failed"]
    assert results[1]["failed"] == "the disk is gone"
