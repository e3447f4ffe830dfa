"""Greater-than (Hanna et al. 2023, *How does GPT-2 compute greater-than?*).

    The war lasted from the year 17 32 to the year 17   ->   33, 34, ..., 99, not 00, ..., 32
        noun                     XX YY             end

The right answers are all years after YY, the wrong ones all others. In the counterfactual prompt YY is 01.

Where a tokenizer has one token for each digit, the next token is the first digit of a year: right are the digits above
the first one of YY, which is 1 to 8, and wrong those below it. XX then stands at the second digit of the century.
"""

from __future__ import annotations

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

TEXT = "The {noun} lasted from the year {XX}{YY} to the year {end}"
IN_DIGITS = "The {noun} lasted from the year {x}{XX}{YY}{y} to the year {x_}{end}"
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
    def _template(self) -> tuple[Template, dict[str, dict[str, int]]]:
        if self._digits:
            words = dict.fromkeys(("x", "XX", "YY", "y", "x_", "end"), self._digits)
            words["noun"] = self.single_tokens("nouns", NOUNS, "The ")
            return Template.of(self.tokenizer, IN_DIGITS, words, self.bos), words
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
        return Template.of(self.tokenizer, TEXT, words, self.bos), words

    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts; YY is 02 to 98, or to 97 if 99 is not a token after any century.

        Raises:
            BadInput: a year is not two tokens in this tokenizer, and its digits are not one each.
        """
        template, words = self._template
        if self._digits:
            return self._in_digits(n, rng)
        noun, century = (drawn(rng, words[slot].values(), n)[0] for slot in ("noun", "XX"))
        year = torch.from_numpy(rng.integers(2, 99 if "99" in words["YY"] else 98, n))
        of_year = torch.tensor([words["YY"].get(one, NONE) for one in YEARS])
        fixed = {"noun": noun, "XX": century, "end": century}
        clean, counterfactual = (
            template.filled({**fixed, "YY": of_year[years]}) for years in (year, torch.ones_like(year))
        )
        after = torch.arange(100) > year[:, None]
        targets = torch.stack([of_year.where(after, NONE), of_year.where(~after, NONE)], dim=1)[:, None]
        places = {role: torch.full((n,), template.places[role]) for role in self.roles}
        return Examples(clean, targets, Roles.of(places), counterfactual)

    def _in_digits(self, n: int, rng: np.random.Generator) -> Examples:
        template, words = self._template
        digit = torch.tensor([*self._digits.values()])
        century, tens, ones = (
            torch.from_numpy(rng.integers(low, high, n)) for low, high in ((11, 18), (1, 9), (0, 10))
        )
        fixed = {"noun": drawn(rng, words["noun"].values(), n)[0]}
        fixed |= dict.fromkeys(("x", "x_"), digit[century // 10]) | dict.fromkeys(("XX", "end"), digit[century % 10])
        clean, counterfactual = (
            template.filled({**fixed, "YY": digit[first], "y": digit[second]})
            for first, second in ((tens, ones), (torch.zeros_like(tens), torch.ones_like(ones)))
        )
        sides = (torch.arange(10) > tens[:, None], torch.arange(10) < tens[:, None])
        targets = torch.stack([digit.where(side, NONE) for side in sides], dim=1)[:, None]
        places = {role: torch.full((n,), template.places[role]) for role in self.roles}
        return Examples(clean, targets, Roles.of(places), counterfactual)
