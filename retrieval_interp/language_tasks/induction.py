"""Repeated tokens: a text of random tokens that begins to repeat itself (Olsson et al. 2022).

    tokens    q  w  e | r  t  y  u  i  o | r  t  y  u  i  o     the segment is repeated up to its last token but one
    roles                     earlier next          end         the answer at "end" is the token at "next"

The last ``ASKED`` positions are the instances. The segment has 6 to 12 tokens, and other tokens before it fill the text
up. How far back ``earlier`` is differs from text to text: no fixed position and no fixed distance gives the answer. In
the counterfactual text, other tokens stand before the repetition, which then repeats nothing.

The wrong answer is another token of the segment: the one after ``next``, or the first if ``next`` is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from circuits.errors import BadInput
from circuits.roles import Roles
from circuits.task import Examples
from circuits.utils.lazy import torch
from retrieval_interp.language_tasks.language_task import END, LanguageTask, Metric, answers, drawn
from retrieval_interp.language_tasks.template import token_ids

LENGTH = 24  # tokens of a text, besides the start token
SHORTEST, LONGEST = 6, 12  # tokens of the segment
ASKED = 5  # instances; the repetition of the shortest segment has as many


@dataclass(frozen=True)
class Induction(LanguageTask):
    """Repeated tokens."""

    name = "induction"
    roles: ClassVar[tuple[str, ...]] = ("earlier", "next", END)
    # A model gives the right one of random tokens less than half of the probability, and few circuits share the rest.
    metric = Metric.logit_difference

    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` texts; no token occurs twice before the repetition.

        Raises:
            BadInput: the tokenizer has too few tokens.
        """
        tokenizer = self.tokenizer
        start = token_ids(tokenizer, "", bos=self.bos)[0]
        ordinary = sorted({*range(len(tokenizer))} - {*tokenizer.all_special_ids})
        if len(ordinary) < 2 * LENGTH:
            raise BadInput(f"induction: the tokenizer has {len(ordinary)} tokens; expected at least {2 * LENGTH}")
        some = [int(one) for one in rng.choice(ordinary, min(len(ordinary), 1024), False)]
        clean, other = torch.stack(drawn(rng, some, n, 2 * LENGTH), dim=1).split(LENGTH, dim=1)
        segment = torch.from_numpy(rng.integers(SHORTEST, LONGEST + 1, n))[:, None]
        place = torch.arange(LENGTH)
        repeated = place >= LENGTH - segment + 1
        tokens = clean.gather(1, torch.where(repeated, place - segment, place))
        counterfactual = torch.where(repeated, tokens, other)
        end = (place[-ASKED:]).expand(n, -1)
        first = end - segment
        begin = (LENGTH + 1 - 2 * segment).expand(-1, ASKED)
        wrong = torch.where(first + 2 > LENGTH - segment, begin, first + 2)
        right = tokens.gather(1, first + 1)
        shift = len(start)
        positions = {"earlier": first + shift, "next": first + 1 + shift, END: end + shift}
        before = torch.tensor(start, dtype=torch.long).expand(n, -1)
        return Examples(
            torch.cat([before, tokens], dim=1),
            answers(right, tokens.gather(1, wrong)),
            Roles.of(positions),
            torch.cat([before, counterfactual], dim=1),
        )
