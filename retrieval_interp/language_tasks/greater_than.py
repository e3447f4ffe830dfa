"""Greater-than (Hanna et al. 2023, *How does GPT-2 compute greater-than?*).

    The war in the north lasted from the year 17 32 to the year 17   ->   33, 34, ..., 99, not 00, ..., 32
        noun                                  XX YY             end

The right answers are all years after YY, the wrong ones all others. In half of the prompts "in the north" stands after
YY, so that no position tells where the year is: both are one layout, or averages within it would tell. In the
counterfactual prompt YY is 01.

Where a tokenizer has one token for each digit, the next token is the first digit of a year: right are the digits above
the first one of YY, which is 1 to 8, and wrong those below it. XX then stands at the second digit of the century.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from circuits.errors import BadInput
from circuits.roles import Roles
from circuits.task import Examples
from circuits.utils.lazy import torch
from retrieval_interp.language_tasks.language_task import END, NONE, LanguageTask, drawn
from retrieval_interp.language_tasks.template import Template

TEXTS = (
    "The {noun} in the north lasted from the year {XX}{YY} to the year {end}",
    "The {noun} lasted from the year {XX}{YY} in the north to the year {end}",
)
IN_DIGITS = [one.replace("{XX}{YY}", "{x}{XX}{YY}{y}").replace("{end}", "{x_}{end}") for one in TEXTS]
DIGITS = tuple(map(str, range(10)))
NOUNS = ("war", "campaign", "expedition", "conflict", "project", "siege", "tour", "trial", "voyage", "strike")
CENTURIES = tuple(map(str, range(11, 18)))
YEARS = tuple(f"{year:02}" for year in range(100))


@dataclass(frozen=True)
class GreaterThan(LanguageTask):
    """Years after a year."""

    name = "greater_than"
    roles: ClassVar[tuple[str, ...]] = ("noun", "XX", "YY", END)

    @cached_property
    def _digits(self) -> dict[str, int]:
        """The tokens of all digits, if a digit after others is one; else nothing."""
        try:
            return self.single_tokens("digits", DIGITS, "the year 1", len(DIGITS))
        except BadInput:
            return {}

    @cached_property
    def _templates(self) -> tuple[list[Template], dict[str, dict[str, int]]]:
        if self._digits:
            words = dict.fromkeys(("x", "XX", "YY", "y", "x_", "end"), self._digits)
            words["noun"] = self.single_tokens("nouns", NOUNS, "The ")
            return [Template.of(self.tokenizer, text, words, self.bos) for text in IN_DIGITS], words
        centuries = self.single_tokens("centuries", CENTURIES, "the year ", 1)
        first, needed = next(iter(centuries)), YEARS[1:99]
        years: dict[str, int] = {}
        for century in [*centuries]:
            after = self.single_tokens("years", YEARS, f"the year {century}", 0)
            if {*needed} <= {*after}:  # a few years, such as 1800, are one token
                years |= after
            else:
                del centuries[century]
        if not centuries:  # raises
            self.single_tokens("years", needed, f"the year {first}", len(needed))
        nouns = self.single_tokens("nouns", NOUNS, "The ")
        words = {"noun": nouns, "XX": centuries, "YY": years, "end": centuries}
        return [Template.of(self.tokenizer, text, words, self.bos) for text in TEXTS], words

    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts; YY is 02 to 98, or to 97 if 99 is not a token after any century.

        Raises:
            BadInput: a year is not two tokens in this tokenizer, and its digits are not one each.
        """
        _, words = self._templates
        noun, late = drawn(rng, words["noun"].values(), n)[0], torch.from_numpy(rng.integers(0, 2, n))
        if self._digits:
            return self._in_digits(noun, late, rng)
        (century,) = drawn(rng, words["XX"].values(), n)
        year = torch.from_numpy(rng.integers(2, 99 if "99" in words["YY"] else 98, n))
        of_year = torch.tensor([words["YY"].get(one, NONE) for one in YEARS])
        fixed, after = {"noun": noun, "XX": century, "end": century}, torch.arange(100) > year[:, None]
        sides = of_year.where(after, NONE), of_year.where(~after, NONE)
        return self._made(late, sides, {**fixed, "YY": of_year[year]}, {**fixed, "YY": of_year[1].expand(n)})

    def _in_digits(self, noun: torch.Tensor, late: torch.Tensor, rng: np.random.Generator) -> Examples:
        digit, n = torch.tensor([*self._digits.values()]), len(noun)
        century, tens, ones = (torch.from_numpy(rng.integers(*ends, n)) for ends in ((11, 18), (1, 9), (0, 10)))
        fixed = {"noun": noun} | dict.fromkeys(("x", "x_"), digit[century // 10])
        fixed |= dict.fromkeys(("XX", "end"), digit[century % 10])
        sides = digit.where(torch.arange(10) > tens[:, None], NONE), digit.where(torch.arange(10) < tens[:, None], NONE)
        of_year = [
            {"YY": digit[first].expand(n), "y": digit[second].expand(n)} for first, second in ((tens, ones), (0, 1))
        ]
        return self._made(late, sides, *({**fixed, **one} for one in of_year))

    def _made(self, late: torch.Tensor, sides: Sequence[torch.Tensor], *both: Mapping[str, torch.Tensor]) -> Examples:
        """Return examples, with the place after the year where ``late``, from the words of both prompts."""
        early_late, _ = self._templates
        clean, counterfactual = (
            torch.stack([one.filled(words) for one in early_late])[late, torch.arange(len(late))] for words in both
        )
        places = torch.tensor([[one.places[role] for role in self.roles] for one in early_late])[late]
        roles = Roles.of(dict(zip(self.roles, places.unbind(dim=1), strict=True)))
        return Examples(clean, torch.stack([*sides], dim=1)[:, None], roles, counterfactual)
