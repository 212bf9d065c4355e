"""The same bits from a GPU as from the CPU, without waiting for it; skipped if there is no GPU."""

import pytest
import torch

from predbn.metrics import MetricError, ScoreHistogram, Scores, accuracy, brier, ece, nll

from .examples import cases, predictions, sums

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", cases())
def test_functions_and_scores(case):
    p, y = cases()[case]
    on_gpu = p.cuda(), y.cuda()
    for metric in (accuracy, brier, nll, ece):
        torch.testing.assert_close(metric(*on_gpu).cpu(), metric(p, y), rtol=1e-12, atol=1e-12)
    logs = p.double().log().clamp_max(0)
    cpu_scores, gpu_scores = Scores(p.shape[1]), Scores(p.shape[1])
    cpu_scores.update(p, y, log_probabilities=logs)
    gpu_scores.update(*on_gpu, log_probabilities=logs.cuda())
    assert sums(gpu_scores) == sums(cpu_scores)
    assert gpu_scores.compute() == cpu_scores.compute()


def test_updates_do_not_wait():
    p, y = (each.cuda() for each in predictions(500))
    right = p.argmax(1) == y
    scores, histogram = Scores(10), ScoreHistogram()
    scores.update(p, y)
    histogram.update(p.amax(1), right)
    torch.cuda.set_sync_debug_mode("error")
    try:
        scores.update(p, y, log_probabilities=p.log())
        histogram.update(p.amax(1), right)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert scores.count == 1000


def test_wrong_values_raise_when_a_result_is_computed():
    p, y = (each.cuda() for each in predictions(500))
    scores = Scores(10)
    scores.update(p, y + 5)
    for result in (scores.compute, scores.reliability):
        with pytest.raises(MetricError, match="labels are outside 0 to 9"):
            result()
