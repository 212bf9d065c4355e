import pytest
import torch

from predbn.evaluation import EvaluationError, Setting
from predbn.evaluation.model_cache import LaneKey, Shelf, check_classes
from predbn.evaluation.predictor import Lane, share
from predbn.norm import adapt, adapted

from . import tiny

IMAGES = torch.randint(0, 256, (24, 3, 32, 32), dtype=torch.uint8)


def loading(monkeypatch, count=4):
    """A shelf whose models are loaded from a reference, and the list of what was loaded."""
    loaded = []

    def load(reference, **_):
        loaded.append(reference)
        return tiny.classifier(int(reference[-1]))

    monkeypatch.setattr("predbn.models.open_model", load)
    from predbn.evaluation import Model

    return {f"t/{k}": Model(f"t/{k}") for k in range(count)}, loaded


def test_a_shared_copy_is_adapted_by_itself():
    model = tiny.classifier()
    copy = share(model)
    adapt(copy, "batch")
    assert {id(p) for p in copy.parameters()} == {id(p) for p in model.parameters()}
    assert {id(b) for b in copy.buffers()} == {id(b) for b in model.buffers()}
    assert not torch.equal(copy(IMAGES), model(IMAGES))
    with adapted(model, "batch"):
        torch.testing.assert_close(copy(IMAGES), model(IMAGES))


def test_a_lane_forgets_between_streams():
    lane = Lane(tiny.classifier(), Setting.parse("ema"), None, "fp32", None, 10, 10)
    lane.begin(lambda: iter(()))
    first = lane.logits(IMAGES[:8])
    assert not torch.equal(lane.logits(IMAGES[:8]), first)
    lane.begin(lambda: iter(()))
    assert torch.equal(lane.logits(IMAGES[:8]), first)


def test_memory_has_room_for_some_models_only(monkeypatch):
    members, loaded = loading(monkeypatch)
    size = sum(t.nbytes for t in (*tiny.classifier().parameters(), *tiny.classifier().buffers()))
    shelf = Shelf(members, room=2 * size)
    waves = list(shelf.waves(members))
    assert waves == [["t/0", "t/1"], ["t/2", "t/3"]]
    assert len(shelf._models) == 2
    plenty = Shelf(members)
    loaded.clear()
    assert list(plenty.waves(members)) == [list(members)]
    plenty.model("t/0")
    assert len(loaded) == 4


def test_a_lane_whose_model_had_to_go_goes_on_where_it_was(monkeypatch):
    members, loaded = loading(monkeypatch, 2)
    keys = [LaneKey(name, "ema(momentum=0.1, start='source')", 8, None) for name in members]
    logits = {}
    for room in (1, 1 << 30):
        shelf = Shelf(members, room=room)
        for batch in IMAGES.split(8):
            for key in keys:
                logits.setdefault(room, []).append(shelf.lane(key).logits(batch))
    assert all(torch.equal(a, b) for a, b in zip(*logits.values(), strict=True))
    assert len(loaded) > 4


def test_the_sum_of_a_model_follows_its_values():
    shelf = Shelf({}, given={"a": tiny.classifier(0), "b": tiny.classifier(0), "c": tiny.classifier(1)})
    sums = [shelf.describe(name)["sha256"] for name in "abc"]
    assert sums[0] == sums[1] != sums[2]


def test_classes_must_be_those_of_the_data():
    check_classes("m", 10, tuple("abcdefghij"))
    check_classes("m", 10, tuple(map(str, range(7))))
    for classes, wanted in ((9, 10), (11, 10)):
        with pytest.raises(EvaluationError, match=f"m has {classes} classes, but the data has {wanted}"):
            check_classes("m", classes, tuple("abcdefghij"))
