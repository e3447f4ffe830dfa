from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_interp.prompts import (
    FORMULATIONS,
    Equations,
    Formulation,
    Functions,
    Kingdoms,
    LivesWith,
    Relatives,
    formulation,
)
from retrieval_interp.prompts.question import Question
from tests.refusals import assert_refused
from tests.solver import solve


def text(said: str) -> str:
    """A prompt of facts, with a slash between two of them, and the question in the last line."""
    *facts, question = said.strip().split("\n")
    return "\n".join([*" ".join(facts).split(" / "), question])


# The five examples of appendix A, to the letter; below each the choices that make it, read off by hand.

EQUATIONS = text("""
b = 2 / c = 3 / d = 0 / a = 1 / e = b / g = a / h = d / f = c / k = e / i = f / l = g / j = h / n = k / p = l /
o = i / m = j / q = n / s = p / r = o / t = m
What is the value of s? Say directly only the numeric value, without any other words.
""")

LIVES_WITH = text("""
Charlie lives in Cairo / David lives in Delhi / Alice lives in Berlin / Bob lives in Amsterdam / Henry lives
with David / Eve lives with Charlie / Frank lives with Alice / Grace lives with Bob / Kate lives with Grace /
Larry lives with Frank / Jack lives with Eve / Isabelle lives with Henry / Mary lives with Jack / Olivia lives
with Isabelle / Nick lives with Kate / Peter lives with Larry / Rose lives with Peter / Queen lives with Nick /
Tom lives with Olivia / Sam lives with Mary
Where does Rose live? Say directly only the name of the city, without any other words.
""")

KINGDOMS = text("""
Bob lives in Silvania. / Alice lives in Novaria. / Charlie lives in Aurora. / David lives in Florinia. /
Silvanians believe in celestianism. / Novarians believe in harmonianism. / Aurorans believe in elysianism. /
Florinians believe in luminism. / Luminists eat beef. / Elysianists eat pork. / Harmonianists eat lamb. /
Celestianists eat chicken. / Beef contains Astralyte. / Chicken contains Nephryon. / Lamb contains Zephyrium. /
Pork contains Virellium. / Zephyrium causes Chronogy. / Astralyte causes Aetherflux. / Virellium causes
Somnosis. / Nephryon causes Synthemia.
Who has Chronogy? Say directly the name without other words.
""")

FUNCTIONS = text("""
a(0) = 3 / a(1) = 2 / a(2) = 0 / a(3) = 1 / b(0) = 1 / b(1) = 3 / b(2) = 2 / b(3) = 0 / c(0) = 1 / c(1) = 0 /
c(2) = 3 / c(3) = 2 / d(0) = 1 / d(1) = 0 / d(2) = 2 / d(3) = 3 / e = b / f = a / g = c / h = d / i = 0 / j = 2
/ k = 3 / l = 1
What is the value of f(i)? Say directly only the numeric value, without any other words.
""")

RELATIVES = text("""
Penny lives in Canada. / Lily lives in Brazil. / Isabelle lives in France. / Cathy lives in Kenya. / George
lives in Italy. / Adam lives in Mexico. / Kevin lives in Peru. / Ed lives in Laos. / Hank lives in Germany. /
Mike lives in Japan. / Jane lives in England. / Fred lives in Hungary. / Dana lives in Norway. / Olivia lives in
Qatar. / Bob lives in Denmark. / Nancy lives in Argentina. / Johns mother is Jane. / Johns sister is Olivia. /
Johns father is Ed. / Johns brother is Mike. / Chriss mother is Penny. / Chriss sister is Dana. / Chriss father
is Adam. / Chriss brother is George. / Dianas mother is Nancy. / Dianas sister is Isabelle. / Dianas father is
Hank. / Dianas brother is Bob. / Eves mother is Lily. / Eves sister is Cathy. / Eves father is Fred. / Eves
brother is Kevin. / Doctors live with their brothers. / Lawyers live with their mothers. / Teachers live with
their sisters. / Engineers live with their fathers. / John works as a doctor. / Chris works as an engineer. /
Diana works as a teacher. / Eve works as a lawyer.
Where does Eve live? Say directly only the name, without any other words.
""")

GOLDEN: dict[str, tuple[Question, str, str, tuple[str, ...]]] = {
    "equations": (
        Equations().write(
            to=((1, 2, 3, 0), (1, 2, 0, 3), (1, 3, 0, 2), (1, 2, 0, 3), (1, 2, 3, 0)),
            order=((1, 2, 3, 0), (0, 2, 3, 1), (2, 0, 3, 1), (1, 3, 2, 0), (0, 2, 1, 3)),
            asked=2,
        ),
        EQUATIONS,
        "0 1 2 3",
        ("s", "p", "l", "g", "a", "1"),
    ),
    "lives_with": (
        LivesWith().write(
            to=((1, 0, 2, 3), (2, 0, 1, 3), (3, 0, 2, 1), (1, 2, 0, 3), (1, 3, 0, 2)),
            order=((2, 3, 0, 1), (3, 0, 1, 2), (2, 3, 1, 0), (0, 2, 1, 3), (1, 0, 3, 2)),
            asked=1,
        ),
        LIVES_WITH,
        "Amsterdam Berlin Cairo Delhi",
        ("Rose", "Peter", "Larry", "Frank", "Alice", "Berlin"),
    ),
    "kingdoms": (
        Kingdoms().write(
            to=((0, 1, 2, 3),) * 5,
            order=((1, 0, 2, 3), (1, 0, 2, 3), (3, 2, 0, 1), (3, 1, 0, 2), (0, 3, 2, 1)),
            asked=0,
        ),
        KINGDOMS,
        "Alice Bob Charlie David",
        ("Chronogy", "Zephyrium", "lamb", "harmonianism", "Novaria", "Alice"),
    ),
    "functions": (
        Functions().write(
            values=((3, 2, 0, 1), (1, 3, 2, 0), (1, 0, 3, 2), (1, 0, 2, 3)),
            functions=(1, 0, 2, 3),
            arguments=(0, 2, 3, 1),
            asked=(1, 0),
        ),
        FUNCTIONS,
        "0 1 2 3",
        ("f", "i", "a", "0", "3"),
    ),
    "relatives": (
        Relatives().write(
            relatives=(
                ("Jane", "Olivia", "Ed", "Mike"),
                ("Penny", "Dana", "Adam", "George"),
                ("Nancy", "Isabelle", "Hank", "Bob"),
                ("Lily", "Cathy", "Fred", "Kevin"),
            ),
            homes=tuple((line.split()[0], line.split()[-1].rstrip(".")) for line in RELATIVES.split("\n")[:16]),
            customs=((0, 3), (1, 0), (2, 1), (3, 2)),
            jobs=(0, 3, 2, 1),
            order=(0, 1, 2, 3),
            asked=3,
        ),
        RELATIVES,
        "Argentina Brazil Canada Denmark England France Germany Hungary Italy Japan Kenya Laos Mexico Norway Peru "
        "Qatar",
        ("Eve", "lawyer", "mother", "Lily", "Brazil"),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_papers_example_comes_out_to_the_letter_and_its_chain_is_marked_where_it_stands(name: str) -> None:
    question, prompt, acceptable, chain = GOLDEN[name]
    assert question.prompt == prompt
    assert (question.answer, " ".join(question.acceptable), question.chain) == (chain[-1], acceptable, chain)
    marked = {
        mark.role: question.prompt[mark.start : mark.end] for mark in question.marks if mark.chain == question.asked
    }
    by_hand = {
        "equations": "query s pair1.first s pair1.second p pair2.second l pair3.second g pair4.second a pair5.second 1",
        "lives_with": "query Rose pair1.second Peter pair2.first Peter pair4.second Alice pair5.second Berlin",
        "kingdoms": "query Chronogy pair1.first Chronogy pair1.second Zephyrium pair2.first Zephyrium "
        "pair2.second Lamb pair3.first lamb pair3.second Harmonianists pair4.first harmonianism pair4.second Novarians "
        "pair5.first Novaria pair5.second Alice",
        "functions": "query.function f query.argument i function.first f function.second a argument.first i "
        "argument.second 0 value.first a value.second 0 value.third 3",
        "relatives": "query Eve job.first Eve job.second lawyer custom.first Lawyers custom.second mothers "
        "relative.first Eves relative.second mother relative.third Lily home.first Lily home.second Brazil",
    }[name].split()
    for role, text in zip(by_hand[::2], by_hand[1::2], strict=True):
        assert marked[role] == text
    assert set(marked) == set(FORMULATIONS[name]().roles)


sizes = st.sampled_from(list(FORMULATIONS)).flatmap(
    lambda name: st.builds(
        lambda steps, chains: formulation(name, steps if name in ("equations", "lives_with") else None, chains),
        st.integers(1, 12),
        st.integers(3, 6),
    )
)


@given(sizes, st.integers(0, 2**31))
@settings(max_examples=30)
def test_who_reads_only_the_text_finds_the_answer(kind: Formulation, seed: int) -> None:
    for question in kind.questions(5, seed):
        assert solve(question.prompt) == question.answer
        assert question.answer in question.acceptable
        assert len(set(question.acceptable)) == len(question.acceptable) == round(1 / kind.chance)


@given(sizes, st.integers(0, 2**31))
@settings(max_examples=30)
def test_every_chain_has_every_role_but_the_query_once(kind: Formulation, seed: int) -> None:
    question = kind.draw(np.random.default_rng(seed))
    asked = [role for role in kind.roles if role.startswith("query")]
    for chain in range(kind.n_chains):
        own = [mark.role for mark in question.marks if mark.chain == chain]
        expected = kind.roles if chain == question.asked else [role for role in kind.roles if role not in asked]
        assert sorted(own) == sorted(expected)


def test_line_breaks_are_where_the_ends_are_marked() -> None:
    for name in FORMULATIONS:
        question = formulation(name).questions(1, 0)[0]
        for mark in question.marks:
            if mark.role.endswith(".end"):
                assert question.prompt[mark.start : mark.end] == "\n"


def test_the_same_seed_gives_the_same_questions_and_another_gives_others() -> None:
    for name in FORMULATIONS:
        kind = formulation(name)
        assert kind.questions(20, 3) == kind.questions(20, 3)
        assert not set(kind.questions(20, 3)) & set(kind.questions(20, 4))


def test_no_question_repeats_another_even_where_there_are_few() -> None:
    tiny = Equations(n_chains=2, n_steps=1)  # 2 orders of the answers, 2 of the lines, 2 to ask about: 8 questions
    assert len({question.prompt for question in tiny.questions(8, 0)}) == 8
    assert_refused("only 8 different questions were found", tiny.questions, 9, 0)


def test_variables_go_on_after_z_and_names_after_the_list() -> None:
    variables, people = (
        {line.split(" ")[0] for line in kind(4, 15).questions(1, 0)[0].prompt.split("\n")[:-1]}
        for kind in (Equations, LivesWith)
    )
    assert len(variables) == len(people) == 60
    assert {"a", "z", "a2", "z2", "h3"} <= variables
    assert {"Zoe", "Alice2", "Henry2"} <= people


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: formulation("riddles"), "unknown formulation 'riddles'; expected one of equations, lives_with"),
        (lambda: formulation("kingdoms", steps=3), "kingdoms: the number of steps cannot be chosen"),
        (lambda: formulation("equations", steps=0), "equations: n_steps is 0; expected a whole number from 1 to 100"),
        (lambda: formulation("relatives", chains=7), "relatives: n_chains is 7; expected a whole number from 2 to 6"),
        (lambda: Equations(n_chains=True), "equations: n_chains is True"),
        (lambda: formulation("equations").questions(0, 0), "questions is 0; expected a whole number from 1 to 1000000"),
        (lambda: formulation("equations").questions(1, -1), "seed is -1"),
    ],
)
def test_impossible_sizes_are_refused_by_name(make: Callable[[], object], said: str) -> None:
    assert_refused(said, make)
