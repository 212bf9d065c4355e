import pytest

from predbn.evaluation import EvaluationError, Model, Plan, Setting, plan_fields, read_plan
from predbn.evaluation.plan import is_ensemble, needs_fit
from predbn.evaluation.plan_file import write_plan
from predbn.models import Preprocessing
from predbn.norm import Auto, Batch, Prior


def test_a_plan_normalises_its_values():
    plan = Plan(models="a.b:c", strategies="batch[eps=1e-2]", batch_sizes=100)
    assert plan.models == (Model("a.b:c"),)
    assert plan.strategies == ("batch[eps=0.01]",)
    assert plan.batch_sizes == (100,)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": []}, "no models"),
        ({"strategies": ["btch"]}, "did you mean 'batch'"),
        ({"methods": ["vanila"]}, "did you mean 'vanilla'"),
        ({"shifts": ["fogg"]}, "did you mean 'fog'"),
        ({"severities": [6]}, "severity 6"),
        ({"severities": [True]}, "expected severities to be an integer of 64 bits, but got True"),
        ({"orders": ["sorted"]}, "order 'sorted' is not known"),
        ({"batch_sizes": [0]}, "expected batch_sizes to be an integer from 1 to 2,147,483,647 or 'all', but got 0"),
        ({"batch_sizes": ["many"]}, "but got 'many'"),
        ({"seeds": [1.5]}, "expected seeds to be an integer of 64 bits, but got 1.5"),
        ({"images": 0}, "expected images to be an integer from 1 to"),
        ({"bins": 2**40}, "expected bins to be an integer from 1 to 10,000, but got 1099511627776"),
        ({"diagram_bins": 10_001}, "expected diagram_bins to be"),
        ({"precision": "fp8"}, "expected precision to be one of fp32, tf32, bf16, fp16, but got 'fp8'"),
    ],
)
def test_a_wrong_value_in_a_plan_is_an_error(given, message):
    with pytest.raises(ValueError) as error:
        Plan(**{"models": ["a:b"], **given})
    assert message in str(error.value)


def test_members_of_a_pattern(tmp_path):
    for name in ("b.pt", "a.pt"):
        (tmp_path / name).write_bytes(b"")
    assert [m.name for m in Model("a:b,c:d").members()] == ["a:b", "c:d"]
    names = [m.name for m in Model("a:b", weights=f"{tmp_path}/*.pt").members()]
    assert names == [f"a:b#{tmp_path}/a.pt", f"a:b#{tmp_path}/b.pt"]
    with pytest.raises(EvaluationError, match="no file matches"):
        Model("a:b", weights=f"{tmp_path}/*.safetensors").members()


def test_methods_say_what_they_need():
    assert needs_fit("temperature")
    assert not needs_fit("temperature(value=2.0)")
    assert is_ensemble("ensemble(temperature=1.5)")
    assert not is_ensemble("vanilla")


def test_a_plan_is_written_and_read_as_toml(tmp_path):
    prepared = Preprocessing((32, 32), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0), resize=40)
    plan = Plan(
        models=[Model("a:b", 'w "x" ü.pt', prepared), Model("zoo:c/*")],
        methods=("vanilla", "temperature"),
        batch_sizes=(1, "all"),
        images=7,
        validation="folder",
    )
    path = tmp_path / "plan.toml"
    path.write_text(write_plan(plan), encoding="utf-8")
    assert read_plan(path) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = ['a:b'\n", "is not TOML"),
        ("models = ['a:b']\nstrategy = ['train']\n", "has the unknown entry 'strategy'"),
        ("data = 'sample'\n", "names no models"),
        ("models = [{ref = 'a:b'}]\n", "expected a model to be a reference or"),
        ("models = 3", "expected a model to be a reference or"),
        ("models = [{reference = 3}]", "expected the reference of a model to be a string, but got 3"),
        ("models = [{reference = 'a:b', weights = 3}]", "expected the weights of a model to be a string, but got 3"),
        ("models = [{reference = 'a:b', preprocessing = 3}]", "expected the preprocessing to be a table"),
        ("models = 'a:b'\nshifts = [[1]]", "expected shifts to be a string, but got [1]"),
        (f"models = 'a:b'\nseeds = {2**80}", "expected seeds to be an integer of 64 bits, but got"),
        ("a = " + "[" * 10_000, "is not TOML"),
        ("models = ['a:b']\nstrategies = ['btch']\n", "unknown strategy 'btch'"),
    ],
)
def test_a_wrong_plan_file_is_an_error(tmp_path, text, message):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(ValueError) as error:
        read_plan(path)
    assert message in str(error.value)


def test_a_missing_plan_file_is_an_error():
    with pytest.raises(EvaluationError, match="cannot be read"):
        read_plan("nowhere.toml")


@pytest.mark.parametrize(
    ("text", "expected", "canonical"),
    [
        ("batch", Setting(Batch()), "batch"),
        (" prior( N = 16 ) ", Setting(Prior(N=16)), "prior(N=16)"),
        ("batch[eps=1e-2]", Setting(Batch(), 0.01), "batch[eps=0.01]"),
        ("batch[layers=last,eps=0.5]", Setting(Batch(), 0.5, "last"), "batch[eps=0.5, layers=last]"),
        ("prior(N=4)[layers=layer4.*]", Setting(Prior(N=4), None, "layer4.*"), "prior(N=4)[layers=layer4.*]"),
        # `robust` is named where it is not the default.
        ("batch[robust=False]", Setting(Batch()), "batch"),
        ("batch[robust=True, layers=last]", Setting(Batch(), None, "last", True), "batch[layers=last, robust=True]"),
        ("auto[robust=True]", Setting(Auto()), "auto(calibrated=True, passes=1)"),
        ("auto[robust=False]", Setting(Auto(), None, "all", False), "auto(calibrated=True, passes=1)[robust=False]"),
    ],
)
def test_a_setting_is_read_and_written_in_one_way(text, expected, canonical):
    setting = Setting.parse(text)
    assert setting == expected
    assert str(setting) == canonical
    assert Setting.parse(canonical) == setting


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch[eps=-1]", "eps=-1: use a number of at least 0"),
        ("batch[eps=much]", "eps=much"),
        ("batch[momentum=1]", "use eps=…, layers=… or robust=True"),
        ("batch[robust=1]", "use True or False"),
        ("batch[", "cannot be read"),
    ],
)
def test_a_setting_that_cannot_be_read_is_an_error(text, message):
    with pytest.raises(EvaluationError) as error:
        Setting.parse(text)
    assert message in str(error.value)


def test_only_train_with_the_layers_own_eps_is_the_identity():
    assert Setting.parse("train").is_identity
    assert not Setting.parse("train[eps=0.1]").is_identity
    assert not Setting.parse("batch").is_identity


@pytest.mark.parametrize("name", plan_fields())
def test_every_field_refuses_a_value_of_another_type(name):
    with pytest.raises(EvaluationError, match=f"expected {name} to be"):
        Plan(**{"models": "a:b", name: 1.5j})


def test_a_long_text_of_blanks_is_no_work():
    with pytest.raises(EvaluationError, match="strategy"):
        Plan(models="a:b", strategies=" " * 100_000 + "[" + " " * 100_000)
