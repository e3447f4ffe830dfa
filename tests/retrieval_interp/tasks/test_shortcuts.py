"""Questions cannot be answered without following a chain: shortcuts stay at chance, and every answer is as frequent."""

import re
from collections import Counter

import numpy as np
import pytest

from retrieval_interp.prompts import FORMULATIONS, formulation
from retrieval_interp.results import Interval
from tests.solver import solve

LEVEL = 0.999
MOST = 4.5  # standard deviations; with the 32 answers of all formulations, chance gives more once in about 4,600 trials


def answers(question):
    """Every place of an acceptable answer in the facts, with the answer."""
    words = "|".join(map(re.escape, question.acceptable))
    facts = question.prompt.rsplit("\n", 1)[0]
    return [(match.start(), match[0]) for match in re.finditer(rf"(?<!\w)(?:{words})(?!\w)", facts)]


def asked_at(question):
    """The last place of the queried symbol in the facts; for functions, of the argument."""
    asked = question.chain[1 if question.formulation == "functions" else 0]
    facts = question.prompt.rsplit("\n", 1)[0]
    return [match.start() for match in re.finditer(rf"(?<!\w){re.escape(asked)}(?!\w)", facts)][-1]


def last(question):
    return answers(question)[-1][1]


def first(question):
    return answers(question)[0][1]


def most_frequent(question):
    return Counter(answer for _, answer in answers(question)).most_common(1)[0][0]


def nearest(question):
    return min(answers(question), key=lambda found: abs(found[0] - asked_at(question)))[1]


def same_rank(question):
    """The answer with the same place in its block as the line of the queried symbol in the last block."""
    facts = question.prompt.split("\n")[:-1]
    n = len(question.acceptable) if question.formulation != "relatives" else round(len(question.acceptable) ** 0.5)
    rank = question.prompt[: asked_at(question)].count("\n") - (len(facts) - n)
    return answers(question)[rank % n][1]


def share_right(questions, guess):
    return Interval.of_share(sum(guess(question) == question.answer for question in questions), len(questions), LEVEL)


@pytest.mark.parametrize("name", FORMULATIONS)
def test_shortcuts_stay_at_chance_and_answers_are_equally_likely(name):
    kind, n = formulation(name), 300
    questions = kind.questions(n, 1)
    assert all(solve(question.prompt) == question.answer for question in questions)
    assert len({question.prompt for question in questions}) == n
    for guess in (last, first, most_frequent, nearest, same_rank):
        share = share_right(questions, guess)
        assert share.low <= kind.chance <= share.high, guess
    places = Counter(question.acceptable.index(question.answer) for question in questions)
    counts, expected = np.array([places[place] for place in range(round(1 / kind.chance))]), n * kind.chance
    assert (np.abs(counts - expected) < MOST * np.sqrt(expected * (1 - kind.chance))).all()


def test_a_shortcut_that_works_is_seen():
    single = formulation("equations", steps=1)  # one line says it all, and the answer stands in it
    share = share_right(single.questions(200, 0), same_rank)
    assert share.mean == 1.0
    assert share.low > single.chance
