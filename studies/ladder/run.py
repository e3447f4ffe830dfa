"""What of retrieval in words does SmolLM2 do? ``studies/ladder/run.py`` asks from what is easy to what is not.

Every rung is a kind of question, asked by forced choice among its acceptable answers. The rungs without a question
continue a text: a list of words that is repeated, or facts of which one is begun again. ``answers.csv`` has every
answer, with the line that holds the last fact of the chain (0 is the line before the question); ``table.csv`` has the
shares by rung, also ``calibrated``: with each answer's likelihood minus its mean over the rung. README.md has what was
expected.
"""

import itertools
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from circuits.errors import BadInput
from retrieval_interp import formulation, load
from retrieval_interp.language_tasks.template import token_ids
from retrieval_interp.llm.forced import log_likelihoods
from retrieval_interp.models.machine import on_machine
from retrieval_interp.prompts.words import CITIES, NAMES
from retrieval_interp.results import Interval
from retrieval_interp.tasks.prompted import as_text

SEED, N, WITH_SHOTS, SHOTS = 0, 200, 100, 4
NAMED, HERE = ["rung", "chains", "steps", "shots"], Path(__file__).parent


class Asked(NamedTuple):
    """A text, the answers that may follow it, which of them is right, and how many lines before the end it is."""

    text: str
    answers: tuple[str, ...]
    right: int
    distance: int


def repeated(n, rng):
    """A list of names that is repeated up to one of them: which comes next? (Induction, in words.)"""
    for _ in range(n):
        names = [NAMES[i] for i in rng.permutation(len(NAMES))[:8]]
        at = int(rng.integers(3, 7))
        text = f"{', '.join(names)}, {', '.join(names[: at + 1])},"
        others = [name for name in names if name not in names[at : at + 2]][:3]
        yield Asked(text, tuple(f" {name}" for name in (names[at + 1], *others)), 0, 0)


def begun(n_chains, steps, n, rng, link=" lives in"):
    """Facts, and one begun: "Bob lives in Rome. Eve lives with Bob. ... Eve lives in" (two steps)."""
    for _ in range(n):
        cities = [CITIES[i] for i in rng.permutation(len(CITIES))[:n_chains]]
        names = [NAMES[i] for i in rng.permutation(len(NAMES))[: n_chains * steps]]
        blocks = [names[k * n_chains : (k + 1) * n_chains] for k in range(steps)]
        lines = [[f"{name}{link} {city}." for name, city in zip(blocks[0], cities, strict=True)]]
        for below, above in itertools.pairwise(blocks):
            lines.append([f"{name} lives with {other}." for name, other in zip(above, below, strict=True)])
        orders = [rng.permutation(n_chains) for _ in lines]
        asked = int(rng.integers(n_chains))
        facts = [line[i] for line, order in zip(lines, orders, strict=True) for i in order]
        text = f"{' '.join(facts)} {blocks[-1][asked]}{link}"
        distance = n_chains - 1 - int(np.flatnonzero(orders[-1] == asked)[0])
        yield Asked(text, tuple(f" {city}" for city in cities), asked, distance)


def questions(model, name, n_chains, steps, n, shots=0):
    """The questions of the paper, after some others with their answers; of few questions, as many as there are."""
    made = []
    with suppress(BadInput):  # no further one
        for one in itertools.islice(formulation(name, steps, n_chains).stream(SEED), n + shots):
            made.append(one)
    before = "".join(f"{one.prompt}\n{one.answer}\n\n" for one in made[len(made) - shots :])
    for one in made[: len(made) - shots]:
        at = next(mark.start for mark in one.marks if mark.role == "pair1.first" and mark.chain == one.asked)
        distance = one.prompt[at:].count("\n") - 1
        text = as_text(model.tokenizer, before + one.prompt)
        yield Asked(text, one.acceptable, one.acceptable.index(one.answer), distance)


def rungs(model):
    """Yield every rung: its name, number of chains, steps and shots, and its questions."""
    yield "a list of names is repeated", 4, 1, 0, repeated(N, np.random.default_rng(SEED))
    for link in ("", ":", " likes"):
        for chains in (2, 4):
            asked = begun(chains, 1, N, np.random.default_rng(SEED), link)
            yield f"a fact is begun: name{link} city", chains, 1, 0, asked
    for steps in (1, 2, 3):
        for chains in (2, 4):
            yield "a fact is begun", chains, steps, 0, begun(chains, steps, N, np.random.default_rng(SEED))
    for name in ("lives_with", "equations"):
        for chains in (2, 4):
            for steps in (1, 2, 3, 4, 5):
                yield name, chains, steps, 0, questions(model, name, chains, steps, N)
                if steps <= 3:
                    yield name, chains, steps, SHOTS, questions(model, name, chains, steps, WITH_SHOTS, SHOTS)


def answers(model, known):
    """Yield the rows of each rung that is not known."""
    for rung, chains, steps, shots, asked in rungs(model):
        if (rung, chains, steps, shots) in known:
            continue
        rows, likely = [], []
        for one in asked:
            ids = token_ids(model.tokenizer, one.text, bos="none")[0]  # as SmolLM2's own tokenizer has it
            both = [token_ids(model.tokenizer, one.text + answer, bos="none")[0] for answer in one.answers]
            if any(all_ids[: len(ids)] != ids for all_ids in both):
                raise SystemExit(f"an answer of {one.text!r} merges with it")
            said = log_likelihoods(model, ids, [all_ids[len(ids) :] for all_ids in both])
            likely.append(dict(zip(one.answers, said, strict=True)))
            chosen = said.index(max(said))
            named = {"rung": rung, "chains": chains, "steps": steps, "shots": shots, "distance": one.distance}
            place = {"said": one.answers[chosen].strip(), "place of what was said": chosen}
            right = {"right": chosen == one.right, "chance": 1 / len(one.answers)}
            rows.append({**named, **place, **right, "answer": one.answers[one.right]})
        table = pd.DataFrame(rows)
        usual = pd.DataFrame(likely).mean()  # of each answer, over all questions in which it is acceptable
        calibrated = [max(own, key=lambda answer: own[answer] - usual[answer]) for own in likely]
        table["calibrated"] = table.pop("answer") == calibrated
        print(rung, chains, steps, shots, table[["right", "calibrated"]].mean().round(2).to_list(), flush=True)
        yield table


def shares(table, *by):
    """Return the share of right answers with Wilson's interval, by some columns."""
    rows = []
    for key, one in table.groupby([*by], sort=False):
        share = Interval.of_share(int(one["right"].sum()), len(one))
        chance = one["chance"].mean()
        numbers = share.mean, share.low, share.high, one["calibrated"].astype(float).mean(), chance
        rows.append((*key, len(one), *numbers, decision(share, chance)))
    return pd.DataFrame(rows, columns=[*by, "n", "right", "low", "high", "calibrated", "chance", "decision"])


def decision(share, chance):
    """The rule of README.md."""
    if share.low >= chance + 0.1:
        return "done"
    return "at chance" if share.low <= chance <= share.high else "partly done" if share.low > chance else "below chance"


if __name__ == "__main__":
    with on_machine():
        model = load("smollm2").model
    path = HERE / "answers.csv"
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=NAMED)
    for rows in answers(model, {*table[NAMED].itertuples(index=False, name=None)}):
        table = pd.concat([table, rows]) if len(table) else rows
        table.to_csv(path, index=False)
    by_rung = shares(table, *NAMED)
    by_rung.to_csv(HERE / "table.csv", index=False, float_format="%.4f")
    print(by_rung.round(2).to_string())
    print(shares(table[table["shots"] == 0], "rung", "chains", "steps", "distance").round(2).to_string())
