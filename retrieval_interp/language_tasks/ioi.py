"""Indirect object identification (Wang et al. 2022, *Interpretability in the Wild*).

    ABBA    Today Mary and John went to the store . John gave a drink to   ->   Mary, not John
                  IO       S1   S1+1                S2                end
    BABA    Today John and Mary went to the store . John gave a drink to   ->   Mary, not John
                  S1   S1+1 IO                      S2                end

The group ``template`` is 0 for ABBA and 1 for BABA. In the counterfactual prompt, three other names, all different,
stand in the places of the names (the paper's ABC). The prompts have four wordings. The first two names stand at the
same positions in all of them; the lengths differ, with padding on the right. A wording is a layout: within it, only the
order of the names tells one prompt's positions from another's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from circuits.roles import Roles
from circuits.task import Examples
from circuits.utils.lazy import torch
from retrieval_interp.language_tasks.language_task import END, LanguageTask, answers, drawn
from retrieval_interp.language_tasks.template import Template

WORDINGS = (
    "Today {A} and {B} went to the {PLACE}. {S} gave a {OBJECT} to",
    "When {A} and {B} got a {OBJECT} at the {PLACE}, {S} decided to give it to",
    "After {A} and {B} went to the {PLACE}, {S} gave a {OBJECT} to",
    "While {A} and {B} were working at the {PLACE}, {S} gave a {OBJECT} to",
)
NAMES = (
    *("Mary", "John", "Tom", "James", "Dan", "Sarah", "Anna", "Paul", "Mark", "Alice", "Jack", "Emma", "Kate", "Peter"),
    *("David", "Laura", "Lucy", "Henry", "Simon", "Adam", "George", "Rachel", "Martin", "Jane"),
)
PLACES = ("store", "garden", "restaurant", "school", "hospital", "office", "house", "station")
OBJECTS = ("ring", "kiss", "bone", "basketball", "computer", "necklace", "drink", "snack")
LEAST_NAMES = 8


def words() -> tuple[str, ...]:
    """Return all words and punctuation marks of the prompts."""
    fixed = re.findall(r"\w+|[^\w ]", " ".join(re.sub(r"\{\w+\}", "", one) for one in WORDINGS))
    return (*NAMES, *PLACES, *OBJECTS, *dict.fromkeys(fixed))


@dataclass(frozen=True)
class IOI(LanguageTask):
    """Indirect object identification."""

    name = "ioi"
    roles: ClassVar[tuple[str, ...]] = ("IO", "S1", "S1+1", "S2", END)

    @cached_property
    def _templates(self) -> tuple[tuple[Template, ...], dict[str, dict[str, int]]]:
        words = dict.fromkeys("ABS", self.single_tokens("names", NAMES, "Today ", LEAST_NAMES))
        words["PLACE"] = self.single_tokens("places", PLACES, "to the ")
        words["OBJECT"] = self.single_tokens("objects", OBJECTS, "gave a ")
        return tuple(Template.of(self.tokenizer, text, words, self.bos) for text in WORDINGS), words

    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts; wordings, orders, names, places and objects are equally likely.

        Raises:
            BadInput: too few names, places or objects are one token in this tokenizer.
        """
        templates, words = self._templates
        which, swapped = (torch.from_numpy(rng.integers(0, high, n)) for high in (len(templates), 2))
        io, s = drawn(rng, words["A"].values(), n, 2)
        others = drawn(rng, words["A"].values(), n, 3, torch.stack([io, s], dim=1))
        things = {slot: drawn(rng, words[slot].values(), n)[0] for slot in ("PLACE", "OBJECT")}
        names = {"A": torch.where(swapped == 1, s, io), "B": torch.where(swapped == 1, io, s), "S": s}
        length = max(len(one.tokens) for one in templates)
        pad = self.tokenizer.pad_token_id or 0
        clean, counterfactual = torch.full((2, n, length), pad)
        valid = torch.zeros(n, length, dtype=torch.bool)
        at = torch.zeros(n, 4, dtype=torch.long)  # of A, B, S and the end
        for number, template in enumerate(templates):
            mine, long = which == number, len(template.tokens)
            for tokens, three in ((clean, names), (counterfactual, dict(zip("ABS", others, strict=True)))):
                tokens[mine, :long] = template.filled({slot: all_[mine] for slot, all_ in {**things, **three}.items()})
            valid[mine, :long] = True
            at[mine] = torch.tensor([*(template.places[slot] for slot in "ABS"), long - 1])
        a, b, s2, end = at.T
        first = torch.where(swapped == 1, a, b)
        positions = {"IO": torch.where(swapped == 1, b, a), "S1": first, "S1+1": first + 1, "S2": s2, END: end}
        groups = {"template": dict.fromkeys(self.roles, swapped)}
        return Examples(clean, answers(io, s), Roles.of(positions, groups, valid, layout=which), counterfactual)
