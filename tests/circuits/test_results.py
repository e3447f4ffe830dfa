"""Results are written as JSON and read back equal."""

import math

import pytest

from circuits import AttentionPath, BadInput, Circuit, Head, validate
from circuits.circuit_file import StoredCircuit
from circuits.losses.loss import Loss
from circuits.results import Number, Result, Verdict, together
from circuits.settings import Settings, current, deciding


class Everything(Result):
    """A result with every kind of field."""

    circuit: StoredCircuit
    by_head: dict[Head, Loss]
    by_path: dict[AttentionPath, Number]
    heads: tuple[Head, ...]
    verdict: Verdict


def test_a_result_with_heads_paths_and_a_circuit_is_read_back_equal() -> None:
    path = AttentionPath(Head(1, 0), "query", "pair1.second")
    one = Everything(
        circuit=Circuit({"L0H0": "previous", "L1H0": {"query": "pair1.second"}}, "induction"),
        by_head={Head(1, 0): Loss(0.5, 0.25, 4, {"x1": 0.5})},
        by_path={path: 2.0},
        heads=(Head(0, 0), Head(1, 0)),
        verdict=Verdict(name="faithful", decision="holds", sentence="Low."),
    )
    assert Everything.model_validate_json(one.model_dump_json()) == one


def test_nan_is_null_and_comes_back_as_nan() -> None:
    class Unknown(Result):
        value: Number

    written = Unknown(value=math.nan).model_dump_json()
    assert written == '{"value":null}'
    assert math.isnan(Unknown.model_validate_json(written).value)


def test_a_conjunction_holds_only_if_all_hold_and_fails_if_one_fails() -> None:
    assert together(["holds", "holds"]) == "holds"
    assert together(["holds", "undecided"]) == "undecided"
    assert together(["undecided", "fails"]) == "fails"
    assert together([]) == "undecided"


def test_settings_hold_inside_and_are_part_of_the_report(model, task, circuit) -> None:
    with deciding(sure=4.0, enough=64):
        inside = validate(model, task, circuit, n_examples=64)
    assert (inside.settings.sure, inside.settings.enough) == (4.0, 64)
    assert current() == Settings()
    with pytest.raises(BadInput, match="no setting 'shure'; expected one of error, least, sure"), deciding(shure=4.0):
        pass


@pytest.mark.parametrize(
    "wrong", [{"few": 0.5}, {"few": 0}, {"sure": -1.0}, {"few": 4096}, {"attended": 2.0}, {"sure": math.nan}]
)
def test_a_setting_out_of_range_is_refused(wrong) -> None:
    with pytest.raises(BadInput, match=f"the setting {next(iter(wrong))} is"), deciding(**wrong):
        pass
