import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_interp.llm.answers import accepted, normalise
from retrieval_interp.prompts import FORMULATIONS, formulation

SAME = ("berlin", " Berlin. ", '"Berlin"', "**Berlin**", "Berlin!\n", "«BERLIN»", "„Berlin“", "\u00a0`Berlin`\u3000")
OTHER = ("It is Berlin", "Berlin Amsterdam", "", "Ber lin", "Berlin, Germany", "-", "Berl", "-Berlin", "$Berlin")


def test_case_and_what_stands_around_an_answer_do_not_count_and_nothing_is_searched_for_inside() -> None:
    assert {accepted(text, ["Amsterdam", "Berlin"]) for text in SAME} == {"Berlin"}
    assert {accepted(text, ["Amsterdam", "Berlin"]) for text in OTHER} == {None}


@pytest.mark.parametrize("text", ["-2", "\u20132", ".2", "2%", "2\u2030", "/2", "2/"])
def test_another_number_is_another_answer(text: str) -> None:
    assert accepted(text, ["1", "2"]) is None
    assert accepted("**2**.", ["1", "2"]) == "2"


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_every_answer_of_every_formulation_is_accepted_as_itself_alone() -> None:
    for name in FORMULATIONS:
        question = formulation(name).questions(1, 0)[0]
        assert [accepted(answer, question.acceptable) for answer in question.acceptable] == list(question.acceptable)
