import pytest

from predbn.evaluation import EvaluationError, Setting
from predbn.norm import AdaptationError, Batch, Prior


@pytest.mark.parametrize(
    ("text", "strategy", "eps", "layers", "canonical"),
    [
        ("batch", Batch(), None, "all", "batch"),
        (" prior( N = 16 ) ", Prior(N=16), None, "all", "prior(N=16)"),
        ("batch[eps=1e-2]", Batch(), 0.01, "all", "batch[eps=0.01]"),
        ("batch[layers=last,eps=tuned]", Batch(), "tuned", "last", "batch[eps=tuned, layers=last]"),
        ("prior(N=4)[layers=layer4.*]", Prior(N=4), None, "layer4.*", "prior(N=4)[layers=layer4.*]"),
    ],
)
def test_a_setting_is_read_and_written_in_one_way(text, strategy, eps, layers, canonical):
    setting = Setting.parse(text)
    assert setting == Setting(strategy, eps, layers)
    assert str(setting) == canonical
    assert Setting.parse(canonical) == setting


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch[eps=-1]", "eps=-1: use a number, 0 or more"),
        ("batch[eps=much]", "eps=much"),
        ("batch[momentum=1]", "use eps=… or layers=…"),
        ("batch[", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told(text, message):
    with pytest.raises(EvaluationError) as error:
        Setting.parse(text)
    assert message in str(error.value)


def test_an_unknown_strategy_is_named():
    with pytest.raises(AdaptationError, match="did you mean 'batch'"):
        Setting.parse("btch")


def test_only_train_with_its_own_eps_is_the_model_itself():
    assert Setting.parse("train").is_identity
    assert not Setting.parse("train[eps=0.1]").is_identity
    assert not Setting.parse("batch").is_identity
