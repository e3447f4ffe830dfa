'''Docstrings (Heimersheim and Janiak 2023, *A circuit for Python docstrings in a 4-layer attention-only transformer*).

    def port(self, first, load, size, files, last):
                          A_def B_def C_def
        """oil column piece

        :param load: crime population
               A_doc
        :param size: unit dark
               B_doc
        :param                          ->   files, and no other argument
         end

The docstring begins with one of the first three arguments, so that no position tells the answer. In the counterfactual
prompt, three other arguments stand in the places of A, B and C.
'''

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from circuits.roles import Roles
from circuits.task import Examples
from circuits.utils.lazy import torch
from retrieval_interp.language_tasks.language_task import END, NONE, LanguageTask, drawn
from retrieval_interp.language_tasks.template import Template

TEXT = (
    "\ndef {name}(self, {d0}, {d1}, {d2}, {d3}, {d4}):\n"
    '    """{w0} {w1} {w2}\n\n'
    "    :param {A_doc}: {w3} {w4}\n"
    "    :param {B_doc}: {w5} {w6}\n"
    "    :param"
)
ARGUMENTS = (
    *("load", "size", "files", "last", "project", "names", "new", "state", "old", "user", "path", "color", "text"),
    *("index", "value", "node", "image", "message", "table", "first", "order", "field", "group", "point", "date"),
)
FUNCTIONS = ("port", "date", "model", "run", "build", "check", "update", "scale")
WORDS = ("oil", "column", "piece", "crime", "population", "unit", "dark", "sun", "page", "wind", "song", "lake", "map")
DEFINED = 5  # arguments beside ``self``
LEAST = DEFINED + 3


@dataclass(frozen=True)
class Docstring(LanguageTask):
    """The next argument in a docstring."""

    name = "docstring"
    roles: ClassVar[tuple[str, ...]] = ("A_def", "B_def", "C_def", "A_doc", "B_doc", END)

    @cached_property
    def _template(self) -> tuple[Template, dict[str, dict[str, int]]]:
        arguments = self.single_tokens("arguments", ARGUMENTS, "def port(self, ", LEAST)
        words = dict.fromkeys((*(f"d{k}" for k in range(DEFINED)), "A_doc", "B_doc"), arguments)
        words["name"] = self.single_tokens("functions", FUNCTIONS, "\ndef ")
        words["w0"] = self.single_tokens("words", WORDS, '    """')
        others = self.single_tokens("words", WORDS, "param load: ", LEAST)
        words |= dict.fromkeys([f"w{k}" for k in range(1, 7)], others)
        return Template.of(self.tokenizer, TEXT, words, self.bos), words

    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts; BadInput if too few arguments or words are one token in this tokenizer."""
        template, words = self._template
        fixed = {slot: drawn(rng, words[slot].values(), n)[0] for slot in ("name", *(f"w{k}" for k in range(7)))}
        defined, others = torch.stack(drawn(rng, words["d0"].values(), n, LEAST), dim=1).split([DEFINED, 3], dim=1)
        at = torch.from_numpy(rng.integers(0, DEFINED - 2, n))[:, None] + torch.arange(3)  # of A, B and C
        a, b, c = defined.gather(1, at).unbind(dim=1)
        fixed |= {"A_doc": a, "B_doc": b}
        clean, counterfactual = (
            template.filled({**fixed, **{f"d{k}": one for k, one in enumerate(arguments.unbind(dim=1))}})
            for arguments in (defined, defined.scatter(1, at, others))
        )
        wrong = defined.masked_select(defined != c[:, None]).view(n, -1)
        right = torch.full_like(wrong, NONE).index_put_((torch.arange(n), torch.tensor(0)), c)
        positions = torch.tensor([template.places[f"d{k}"] for k in range(DEFINED)])[at]
        places = dict(zip(self.roles[:3], positions.unbind(dim=1), strict=True))
        ends = {**{role: template.places[role] for role in self.roles[3:-1]}, END: len(template.tokens) - 1}
        places |= {role: torch.full((n,), place) for role, place in ends.items()}
        return Examples(clean, torch.stack([right, wrong], dim=1)[:, None], Roles.of(places), counterfactual)
