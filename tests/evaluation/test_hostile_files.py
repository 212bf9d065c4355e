"""Any content of a file is read, or is an error of the package that names the file: nothing else comes out.

Hypothesis makes the contents: valid files with a few bytes changed, and objects of the right format and wrong types.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.evaluation import Plan, Results, read_plan
from predbn.evaluation.card import check_same, joined
from predbn.evaluation.plan_file import _toml, write_plan
from predbn.evaluation.store import Store
from predbn.evaluation.table_files import read_table
from predbn.evaluation.tables import KEYS, TABLES
from tests.chaos.fuzzing import BUDGET, damaged, must_read_or_refuse

from .test_store import RESULTS as UNITS
from .test_store import opened, with_hits

SCHEMAS = {name: kind.schema for name, kind in TABLES.items()}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def without_checksums(folder):
    """The tables as an earlier version wrote them, so that the readers see the damage and not the checksum."""
    for path in folder.rglob("*.parquet"):
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    store = opened(tmp_path_factory.mktemp("run"), [with_hits(unit) for unit in UNITS])
    store.merge()
    without_checksums(store.folder)
    return store.folder


def read_run(folder):
    results = Results.load(folder)
    results.by_severity()
    return results


def is_run(results):
    return list(results.frame) == [*KEYS, "metric", "value"] and results.frame["value"].dtype == float


def are_cells(done):
    return {tuple(map(type, cell)) for cell in done} <= {(str, str, str, int, str, int, str, int)}


@pytest.mark.parametrize("name", ["results", "reliability", "hits", "fits"])
@BUDGET
@given(data=st.data())
def test_damaged_tables(run, name, data):
    path = run / f"{name}.parquet"
    content = path.read_bytes()
    path.write_bytes(data.draw(damaged(content)))
    try:
        must_read_or_refuse(lambda: read_run(run), str(run), is_run)
        must_read_or_refuse(lambda: Store(run).done(hits=True), path.name, are_cells)
    finally:
        path.write_bytes(content)


def have_their_schemas(tables):
    return all(table.schema.equals(SCHEMAS[name]) for name, table in tables.items())


COLUMN = st.sampled_from(
    [st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=3), st.floats(), st.binary(max_size=3)]
).flatmap(lambda values: st.lists(st.none() | values, min_size=2, max_size=2))


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@BUDGET
@given(data=st.data())
def test_tables_with_other_types(tmp_path, schema, data):
    columns = {name: pa.array(data.draw(COLUMN)) for name in schema.names}
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table(columns), path)
    must_read_or_refuse(lambda: read_table(path, schema), path.name, lambda table: table.schema.equals(schema))


@BUDGET
@given(content=JSON | st.binary())
def test_odd_cards(run, content):
    path = run / "card.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    try:
        must_read_or_refuse(lambda: Results.load(run).mce(), path.name, lambda table: table.empty)
    finally:
        path.write_text("{}")


CONTEXT = {
    "data": {"name": "d", "images": 3, "sha256": {"images": "a"}},
    "models": {"m": {"sha256": "b"}},
    "ensembles": {},
    "precision": "fp32",
    "device": "cpu",
    "bins": 10,
}


def has_context(card):
    """With models and ensembles of before, if they have other names."""
    whole = {**card, **CONTEXT, "models": {**card["models"], **CONTEXT["models"]}, "ensembles": card["ensembles"]}
    return whole == card


@BUDGET
@given(changes=st.dictionaries(st.sampled_from([*CONTEXT, "validation", "plan"]), JSON, min_size=1))
def test_cards_with_other_entries(tmp_path, changes):
    (tmp_path / "card.json").write_text(json.dumps({**CONTEXT, **changes}))

    def open_card():
        before = Store(tmp_path).card()
        check_same(str(tmp_path), before, CONTEXT)
        return joined(before, CONTEXT)

    must_read_or_refuse(open_card, str(tmp_path), has_context)


def again(plan, folder):
    """The plan, written and read."""
    (folder / "again.toml").write_text(write_plan(plan), encoding="utf-8")
    return read_plan(folder / "again.toml")


@BUDGET
@given(data=st.data())
def test_damaged_plans(tmp_path, data):
    path = tmp_path / "plan.toml"
    path.write_bytes(data.draw(damaged(write_plan(Plan(models="a:b")).encode())))
    must_read_or_refuse(lambda: read_plan(path), path.name, lambda plan: again(plan, tmp_path) == plan)


TOML = st.recursive(
    st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)
    | st.sampled_from(["all", "batch", "train", "fog", "sample", "mixed-5", "prior(N=", "temperature(", "dirichlet:"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["reference", "weights", "preprocessing", "size", "mean", "std"]), inner),
    max_leaves=6,
)  # fmt: skip


@BUDGET
@given(entries=st.dictionaries(st.sampled_from(list(Plan.__dataclass_fields__)), TOML, min_size=1))
def test_plans_with_other_types(tmp_path, entries):
    path = tmp_path / "plan.toml"
    path.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in {"models": "a:b", **entries}.items()))
    must_read_or_refuse(lambda: read_plan(path), path.name, lambda plan: again(plan, tmp_path) == plan)
