"""Test the questions: with an independent solver, with shortcuts, and by the frequency of each answer.

    python -m benchmarks.questions [--n 5000] [--seed 0] [--json]

A shortcut gives an answer without following a chain. Each shortcut must score at chance: its 99.9% interval must hold
the chance level. Exits with 1 if a shortcut does not, if an answer is too frequent or too rare, if the solver fails, or
if a question occurs twice.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.arguments import at_least, at_least_one
from benchmarks.solver import solve
from circuits.losses.interval import Interval
from retrieval_interp.models.provenance import versions
from retrieval_interp.prompts import FORMULATIONS, Formulation, Question, formulation

LEVEL = 0.999


def _answers(question: Question) -> list[tuple[int, str]]:
    """Return every place of an acceptable answer in the facts, with the answer."""
    words = "|".join(map(re.escape, question.acceptable))
    facts = question.prompt.rsplit("\n", 1)[0]
    return [(match.start(), match[0]) for match in re.finditer(rf"(?<!\w)(?:{words})(?!\w)", facts)]


def last(question: Question) -> str:
    """Return the last answer."""
    return _answers(question)[-1][1]


def first(question: Question) -> str:
    """Return the first answer."""
    return _answers(question)[0][1]


def most_frequent(question: Question) -> str:
    """Return the most frequent answer; of several, the first."""
    return Counter(answer for _, answer in _answers(question)).most_common(1)[0][0]


def nearest(question: Question) -> str:
    """Return the answer nearest to the last place of the queried symbol in the facts."""
    place = _places(question)[-1]
    return min(_answers(question), key=lambda found: abs(found[0] - place))[1]


def same_rank(question: Question) -> str:
    """Return the answer with the same place in its block as the line of the queried symbol in the last block."""
    facts = question.prompt.split("\n")[:-1]
    n = len(question.acceptable) if question.formulation != "relatives" else round(len(question.acceptable) ** 0.5)
    line = question.prompt[: _places(question)[-1]].count("\n")
    rank = line - (len(facts) - n)
    return _answers(question)[rank % n][1]


def _places(question: Question) -> list[int]:
    """Return the places of the queried symbol in the facts; for functions, the places of the argument."""
    asked = question.chain[1 if question.formulation == "functions" else 0]
    facts = question.prompt.rsplit("\n", 1)[0]
    return [match.start() for match in re.finditer(rf"(?<!\w){re.escape(asked)}(?!\w)", facts)]


SHORTCUTS: tuple[Callable[[Question], str], ...] = (last, first, most_frequent, nearest, same_rank)


def measure(kind: Formulation, n: int, seed: int) -> dict[str, Any]:
    """Test one formulation."""
    started = time.perf_counter()
    kind.questions(500, seed)
    seconds = time.perf_counter() - started
    questions = kind.questions(n, seed)
    places = Counter(question.acceptable.index(question.answer) for question in questions)
    counts = [places[place] for place in range(round(1 / kind.chance))]
    expected = n * kind.chance
    scores = {
        guess.__name__: Interval.of_share(sum(guess(question) == question.answer for question in questions), n, LEVEL)
        for guess in SHORTCUTS
    }
    return {
        "formulation": kind.name,
        "n": n,
        "chance": kind.chance,
        "solved": sum(solve(question.prompt) == question.answer for question in questions),
        "different": len({question.prompt for question in questions}),
        "answers": counts,
        "largest_deviation": float(np.abs(np.array(counts) - expected).max() / np.sqrt(expected * (1 - kind.chance))),
        "shortcuts": {guess: share.to_json() for guess, share in scores.items()},
        "at_chance": all(share.low <= kind.chance <= share.high for share in scores.values()),
        "seconds_for_500": seconds,
    }


def good(found: dict[str, Any]) -> bool:
    """Whether all tests passed.

    With the 32 answers of all formulations, a deviation of 4.5 standard deviations occurs by chance once in about 4,600
    trials.
    """
    fair = found["at_chance"] and found["largest_deviation"] < 4.5
    return bool(fair and found["solved"] == found["different"] == found["n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=at_least_one, default=5000, help="number of questions of every formulation")
    parser.add_argument("--seed", type=at_least(0), default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = [measure(formulation(name), arguments.n, arguments.seed) for name in FORMULATIONS]
    if arguments.json:
        command = f"python -m benchmarks.questions --n {arguments.n} --seed {arguments.seed}"
        print(json.dumps({"command": command, **versions(), "formulations": found}, indent=2))
    else:
        for row in found:
            guesses = ", ".join(f"{name} {share['mean']:.3f}" for name, share in row["shortcuts"].items())
            print(
                f"{row['formulation']}: {row['solved']} of {row['n']} solved, {row['different']} different; chance "
                f"{row['chance']:.4f}, shortcuts: {guesses}; 500 questions in {row['seconds_for_500']:.2f} s"
            )
    sys.exit(0 if all(map(good, found)) else 1)


if __name__ == "__main__":
    main()
