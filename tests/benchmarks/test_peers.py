"""Each rule of others against its equations, written as slow loops, or against another library."""

import math

import numpy as np
import torch
from scipy.stats import median_abs_deviation
from torch import nn

import predbn
from peers import AdaptedNetwork, make_predictors
from peers.alpha_bn import AlphaBN
from peers.balanced_bn import BalancedBN, BalancedStatistics
from peers.iabn import IABN
from peers.lame import knn_affinities, rbf_affinities, smooth
from peers.medbn import MedBN
from peers.median_mad import MedianMAD
from peers.tent import Tent, mean_entropy
from peers.unmix_tns import UnMixTNS
from predbn.norm import Strategy

from .tiny import CLASSES, images, tiny_network

CHANNELS = 2


def layer() -> nn.BatchNorm2d:
    """One layer without affine parameters, with its own statistics."""
    norm = nn.BatchNorm2d(CHANNELS, affine=False).eval()
    norm.running_mean.copy_(torch.tensor([0.5, -1.0]))
    norm.running_var.copy_(torch.tensor([2.0, 0.25]))
    return norm.double()


def batch(count: int = 5, seed: int = 0) -> torch.Tensor:
    """Examples of 3 × 3 positions that differ in mean and spread. 45 values per channel: the median is one of them."""
    generator = torch.Generator().manual_seed(seed)
    x, scale, offset = (torch.randn(count, CHANNELS, n, n, generator=generator, dtype=torch.float64) for n in (3, 1, 1))
    return x * scale.exp() + 2 * offset


def normalised(x: np.ndarray, mean: float, var: float, eps: float = 1e-5) -> np.ndarray:
    return (x - mean) / math.sqrt(var + eps)


def expected(x: torch.Tensor, statistics) -> torch.Tensor:
    """Every example and channel normalised with statistics(example, channel) = (mean, variance)."""
    values = x.numpy()
    rows = [[normalised(values[i, c], *statistics(i, c)) for c in range(CHANNELS)] for i in range(len(x))]
    return torch.tensor(np.array(rows))


def test_the_rules_of_others_are_not_strategies_of_the_package():
    own = set(predbn.strategies())
    for rule in (IABN, AlphaBN, UnMixTNS, BalancedStatistics, MedBN, MedianMAD):
        assert issubclass(rule, Strategy)
        assert rule.name not in own


def test_iabn_moves_by_what_the_positions_do_not_explain():
    norm, x = layer(), batch()
    means, variances = norm.running_mean.tolist(), norm.running_var.tolist()

    def shrink(d: float, t: float) -> float:
        return math.copysign(max(abs(d) - t, 0), d)

    def statistics(i: int, c: int) -> tuple[float, float]:
        own = x[i, c].numpy()
        scale = variances[c] + norm.eps
        mean = means[c] + shrink(own.mean() - means[c], 4 * math.sqrt(scale / 9))
        return mean, variances[c] + shrink(own.var(ddof=1) - variances[c], 4 * scale * math.sqrt(2 / 8))

    wanted = expected(x, statistics)
    assert not torch.allclose(wanted, norm(x))
    torch.testing.assert_close(predbn.adapt(layer(), IABN())(x), wanted)


def test_iabn_leaves_examples_that_are_like_the_source():
    norm = layer()
    x = norm.running_mean.view(-1, 1, 1) + norm.running_var.sqrt().view(-1, 1, 1) * torch.tensor([[1.0, -1.0] * 2] * 2)
    torch.testing.assert_close(predbn.adapt(layer(), IABN())(x[None]), norm(x[None]))


def test_alpha_bn_has_the_moments_of_the_mixture():
    norm, x = layer(), batch()

    def statistics(_: int, c: int) -> tuple[float, float]:
        own, mean, var = x[:, c].numpy(), norm.running_mean[c].item(), norm.running_var[c].item()
        mixed = 0.1 * own.mean() + 0.9 * mean
        return mixed, 0.1 * (own**2).mean() + 0.9 * (var + mean**2) - mixed**2

    torch.testing.assert_close(predbn.adapt(layer(), AlphaBN())(x), expected(x, statistics))


def test_medbn_is_the_median_and_the_mean_square_about_it():
    x = batch()

    def statistics(_: int, c: int) -> tuple[float, float]:
        own = x[:, c].numpy()
        return np.median(own), ((own - np.median(own)) ** 2).mean()

    torch.testing.assert_close(predbn.adapt(layer(), MedBN())(x), expected(x, statistics))


def test_median_and_mad_are_mixed_with_the_source():
    norm, x = layer(), batch()

    def statistics(_: int, c: int) -> tuple[float, float]:
        own, k = x[:, c].numpy(), 5 / (5 + 16)
        spread = median_abs_deviation(own, axis=None, scale="normal")
        source = norm.running_mean[c].item(), norm.running_var[c].item()
        return k * np.median(own) + (1 - k) * source[0], k * spread**2 + (1 - k) * source[1]

    torch.testing.assert_close(predbn.adapt(layer(), MedianMAD())(x), expected(x, statistics), rtol=1e-4, atol=1e-4)


def test_unmix_tns_follows_its_equations_over_a_stream():
    model = predbn.adapt(layer(), UnMixTNS(components=3))
    stream = [batch(4, seed) for seed in range(3)]
    model(stream[0])
    (state,) = predbn.state_dict(model)["streams"]["default"].values()
    means, variances = state["component_means"].numpy(), state["component_vars"].numpy()
    for x in stream[1:]:
        own_means, own_vars = x.numpy().mean((2, 3)), x.numpy().var((2, 3))
        new_means, new_vars = means.copy(), variances.copy()
        rows = []
        for m, v in zip(own_means, own_vars, strict=True):
            cosines = [m @ mk / np.linalg.norm(m) / np.linalg.norm(mk) for mk in means]
            weights = np.exp(np.array(cosines) / 0.07)
            p = weights / weights.sum()
            mixed = np.array([(1 - p[k]) * means[k] + p[k] * m for k in range(3)])
            spread = np.array([(1 - p[k]) * variances[k] + p[k] * v for k in range(3)])
            rows.append((mixed.mean(0), spread.mean(0) + mixed.var(0)))
            rate = 1 - 0.9 ** (4 / 64)
            for k in range(3):
                new_means[k] += rate * p[k] * (m - means[k]) / 4
                new_vars[k] += rate * p[k] * (v - variances[k]) / 4
        wanted = expected(x, lambda i, c, rows=rows: (rows[i][0][c], rows[i][1][c]))
        torch.testing.assert_close(model(x), wanted)
        means, variances = new_means, new_vars


def test_the_first_components_of_unmix_tns_have_the_statistics_of_the_source():
    norm = layer()
    model = predbn.adapt(layer(), UnMixTNS(components=20_000, momentum=0.0))
    model(batch())
    (state,) = predbn.state_dict(model)["streams"]["default"].values()
    means, variances = state["component_means"], state["component_vars"]
    torch.testing.assert_close(means.mean(0), norm.running_mean, rtol=0.05, atol=0.05)
    torch.testing.assert_close(variances.mean(0) + means.var(0), norm.running_var, rtol=0.05, atol=0.05)


def test_balanced_statistics_count_every_class_alike():
    norm, strategy = layer(), BalancedStatistics(CLASSES)
    model = predbn.adapt(layer(), strategy)
    torch.testing.assert_close(model(batch()), norm(batch()))  # every class begins with the source
    means = [norm.running_mean.numpy()] * CLASSES
    variances = [norm.running_var.numpy()] * CLASSES
    for seed, labels in ((1, [0, 0, 0, 2, 2]), (2, [2, 0, 2, 2, 2])):
        x = batch(5, seed)
        strategy.predicted.labels = torch.tensor(labels)
        y = model(x)
        for c in set(labels):
            own = x.numpy()[np.array(labels) == c]
            m, v, w = own.mean((0, 2, 3)), own.var((0, 2, 3)), 0.01 * len(own)
            square = (1 - w) * (variances[c] + means[c] ** 2) + w * (v + m**2)
            means[c] = (1 - w) * means[c] + w * m
            variances[c] = square - means[c] ** 2
        mean, var = np.mean(means, 0), np.mean(variances, 0) + np.var(means, 0)
        torch.testing.assert_close(y, expected(x, lambda _, c, mean=mean, var=var: (mean[c], var[c])))


def test_balanced_bn_learns_only_after_it_has_predicted():
    network, x = tiny_network(), images(20)
    predictor = BalancedBN(network)
    torch.testing.assert_close(predictor(x), network(x))
    assert not torch.allclose(predictor(x), network(x))
    predictor.reset()
    torch.testing.assert_close(predictor(x), network(x))


def test_tent_predicts_as_batch_and_then_steps_against_the_entropy():
    network, x = tiny_network(), images(20)
    tent = Tent(network)
    before = [p.detach().clone() for p in tent.parameters]
    reference = AdaptedNetwork(network, "batch")
    torch.testing.assert_close(tent(x), reference(x))
    layers = [m for m in reference.network.modules() if isinstance(m, nn.BatchNorm2d)]
    parameters = [p.requires_grad_(True) for m in layers for p in (m.weight, m.bias)]
    gradients = torch.autograd.grad(mean_entropy(reference(x)), parameters)
    for old, new, gradient in zip(before, tent.parameters, gradients, strict=True):
        # Adam's first step has the length of the learning rate, whatever the gradient's is.
        torch.testing.assert_close(new.detach(), old - 1e-3 * gradient / (gradient.abs() + 1e-8), rtol=0, atol=1e-6)
    assert mean_entropy(tent(x)) < mean_entropy(reference(x))
    tent.reset()
    torch.testing.assert_close(tent(x), reference(x).detach())


def test_the_affinities_of_lame_are_those_of_a_loop():
    features = torch.nn.functional.normalize(torch.randn(7, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    distances = [[float((a - b).norm()) for b in features] for a in features]
    knn, rbf = torch.zeros(7, 7), torch.zeros(7, 7)
    sigma = np.mean([sorted(row)[2] for row in distances])
    for i, row in enumerate(distances):
        others = sorted((d, j) for j, d in enumerate(row) if j != i)
        for _, j in others[:3]:
            knn[i, j] = 1
        for j, d in enumerate(row):
            rbf[i, j] = math.exp(-(d**2) / (2 * sigma**2))
    assert torch.equal(knn_affinities(features, 3), knn)
    torch.testing.assert_close(rbf_affinities(features, 3), rbf)


def test_lame_ends_at_a_fixed_point_and_without_neighbours_at_the_outputs():
    generator = torch.Generator().manual_seed(0)
    log_p = torch.randn(8, 4, generator=generator, dtype=torch.float64).log_softmax(1)
    torch.testing.assert_close(smooth(log_p, torch.zeros(8, 8, dtype=torch.float64)), log_p.exp())
    weights = knn_affinities(torch.randn(8, 2, generator=generator, dtype=torch.float64), 3)
    z = smooth(log_p, weights)
    torch.testing.assert_close(z, (log_p + weights @ z).softmax(1), rtol=0, atol=1e-3)


def test_every_predictor_gives_logits_and_forgets_on_reset():
    network, x = predbn.calibrate(tiny_network(), [images(30, seed=9)]), images(12)
    unadapted = network(x)
    predictors = make_predictors(network, seed=0)
    assert len(predictors) == 15
    for name, predictor in predictors.items():
        first = predictor(x)
        assert first.shape == (12, CLASSES), name
        assert first.isfinite().all(), name
        predictor(images(12, seed=1))
        predictor.reset()
        torch.testing.assert_close(predictor(x), first, msg=name)
    assert torch.equal(network(x), unadapted)  # all of them work on copies


def test_trying_out_a_batch_leaves_no_trace_in_the_stream():
    network = predbn.calibrate(tiny_network(), [images(30, seed=9)])
    for name in ("ema", "auto_stream", UnMixTNS()):
        one, other = (AdaptedNetwork(network, name) for _ in range(2))
        one(images(12))
        other(images(12))
        assert torch.equal(one.try_out(images(12, seed=1)), other(images(12, seed=1)))
        one.try_out(images(12, seed=2))
        one(images(12, seed=1))
        assert torch.equal(one(images(12, seed=3)), other(images(12, seed=3)))
