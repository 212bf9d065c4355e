"""The scripts that measure the rules of others: streams, results that grow, tables."""

import json

import numpy as np
import pytest
import torch

import peer_attacks
import peer_streams
import predbn
from measurements import ResultsFile
from peers import make_predictors
from predbn.data import Images

from .tiny import CLASSES, images, tiny_network

CPU = torch.device("cpu")


def data() -> Images:
    labels = torch.arange(30) % CLASSES
    return Images(images(30, size=32), labels, torch.arange(30), ("a", "b", "c"), "tiny")


def test_streams_hold_every_image_in_the_order_that_they_are_named_for():
    found = {
        (stream, split): torch.cat([batch.labels for batch in batches])
        for stream, split, batches in peer_streams.streams(data(), [("brightness", 5), ("contrast", 3)], 10, 2, CPU)
    }
    assert [split for stream, split in found if stream == "i.i.d."] == ["clean", "brightness 5", "contrast 3"]
    for (stream, _), labels in found.items():
        if stream == peer_streams.IN_TURN:
            assert len(labels) == 2 * 2 * 10  # two batches of ten of two shifts
        else:
            assert torch.equal(labels.sort().values, data().labels.sort().values)
    assert torch.equal(found["sorted", "clean"], data().labels.sort().values)
    changes = {stream: int((found[stream, "clean"].diff() != 0).sum()) for stream in peer_streams.ORDERS}
    assert changes["sorted"] < changes["Dirichlet"] < changes["i.i.d."]


def test_results_grow_and_are_never_mixed_with_those_of_other_options(tmp_path):
    path = tmp_path / "results" / "peers.json"
    ResultsFile(path, {"images": 10}, CPU).add("a", {"x": 1})
    again = ResultsFile(path, {"images": 10}, CPU)
    assert again.units == {"a": {"x": 1}}
    again.add("b", {"x": 2})
    assert json.loads(path.read_text())["units"] == {"a": {"x": 1}, "b": {"x": 2}}
    with pytest.raises(SystemExit, match=r"peers\.json was measured with other options: give another --out"):
        ResultsFile(path, {"images": 20}, CPU)


def test_the_table_of_streams_shows_means_over_splits_and_networks(tmp_path):
    path = tmp_path / "peers.json"
    results = ResultsFile(path, {"data": "tiny", "batch": 10, "shifts": ["fog 5", "snow 5"]}, CPU)
    for network, accuracies in (("0", (0.9, 0.5, 0.6)), ("1", (0.7, 0.3, 0.4))):
        for split, accuracy in zip(("clean", "fog 5", "snow 5"), accuracies, strict=True):
            row = {"accuracy": accuracy, "brier": accuracy / 2, "ece": accuracy / 4}
            unit = {"network": network, "stream": "i.i.d.", "split": split, "rules": {"batch": row}}
            results.add(f"{network} {split}", unit)
    lines = peer_streams.markdown(path).splitlines()
    assert lines[0] == "tiny, in batches of 10; networks: 2; shifts: fog 5, snow 5"
    assert lines[2] == "| accuracy, % | i.i.d., clean | i.i.d., shifted |"
    assert lines[4] == "| batch | 80.0 | 45.0 |"
    assert lines[-1] == "| batch | 0.400 / 20.0 | 0.225 / 11.2 |"


def test_the_measured_results_have_every_rule_on_every_stream():
    units = json.loads(peer_streams.RESULT.read_text())["units"].values()
    assert {unit["stream"] for unit in units} == {*peer_streams.ORDERS, peer_streams.IN_TURN}
    rules = set(make_predictors(predbn.calibrate(tiny_network(), [images(30)]), seed=0))
    # Those of `auto` are not in the committed results.
    peers = {rule for rule in rules if not rule.startswith("auto")}
    assert all(peers <= set(unit["rules"]) for unit in units)


def test_the_attacked_batch_is_the_last_of_its_stream():
    attack = peer_attacks.ATTACKS["everyone"]
    attack = peer_attacks.replace(attack, rows=10, malicious=1)
    found = dict(peer_attacks.attacked_batches(data(), attack, [], 2, 1, CPU))
    assert list(found) == ["clean, batch 0", "clean, batch 1"]
    for stream in found.values():
        index = np.concatenate([batch.index for batch in stream])
        assert [len(batch.labels) for batch in stream] == [10, 10]
        assert len(set(index.tolist())) == 20
