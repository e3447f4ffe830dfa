import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_interp.llm.answers import accepted, normalise
from retrieval_interp.prompts import FORMULATIONS, formulation


@pytest.mark.parametrize(
    "text",
    [
        "Berlin",
        "berlin",
        " Berlin. ",
        '"Berlin"',
        "**Berlin**",
        "Berlin!\n",
        "«BERLIN»",
        "„Berlin“",
        "\u00a0`Berlin`\u3000",
    ],
)
def test_case_and_what_stands_around_an_answer_do_not_count(text: str) -> None:
    assert accepted(text, ["Amsterdam", "Berlin"]) == "Berlin"


@pytest.mark.parametrize(
    "text",
    [
        "It is Berlin",
        "Berlin Amsterdam",
        "",
        "Ber lin",
        "Berlin, Germany",
        "-",
        "Berl",
        "-Berlin",
        "$Berlin",
        "Berlin%",
    ],
)
def test_nothing_is_searched_for_inside_a_text(text: str) -> None:
    assert accepted(text, ["Amsterdam", "Berlin"]) is None


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
