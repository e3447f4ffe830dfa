'''Docstrings (Heimersheim and Janiak 2023, *A circuit for Python docstrings in a 4-layer attention-only transformer*).

    def port(self, load, size, files):
                   A_def B_def C_def
        """oil column piece

        :param load: crime population
               A_doc
        :param size: unit dark
               B_doc
        :param                          ->   files, neither load nor size
         end

In the counterfactual prompt, the definition has three other arguments.
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
    "\ndef {name}(self, {A_def}, {B_def}, {C_def}):\n"
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
LEAST = 8


@dataclass(frozen=True)
class Docstring(LanguageTask):
    """The next argument in a docstring."""

    name = "docstring"
    roles: ClassVar[tuple[str, ...]] = ("A_def", "B_def", "C_def", "A_doc", "B_doc", END)

    @cached_property
    def _template(self) -> tuple[Template, dict[str, dict[str, int]]]:
        arguments = self.single_tokens("arguments", ARGUMENTS, "def port(self, ", LEAST)
        words = dict.fromkeys(self.roles[:-1], arguments)
        words["name"] = self.single_tokens("functions", FUNCTIONS, "\ndef ")
        words["w0"] = self.single_tokens("words", WORDS, '    """')
        others = self.single_tokens("words", WORDS, "param load: ", LEAST)
        words |= dict.fromkeys([f"w{k}" for k in range(1, 7)], others)
        return Template.of(self.tokenizer, TEXT, words, self.bos), words

    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts.

        Raises:
            BadInput: too few arguments or words are one token in this tokenizer.
        """
        template, words = self._template
        fixed = {slot: drawn(rng, words[slot].values(), n)[0] for slot in ("name", *(f"w{k}" for k in range(7)))}
        a, b, c, *others = drawn(rng, words["A_def"].values(), n, 6)
        fixed |= {"A_doc": a, "B_doc": b}
        clean, counterfactual = (
            template.filled({**fixed, **dict(zip(self.roles[:3], three, strict=True))}) for three in ((a, b, c), others)
        )
        right = torch.stack([c, torch.full_like(c, NONE)], dim=1)
        targets = torch.stack([right, torch.stack([a, b], dim=1)], dim=1)[:, None]
        at = {**template.places, END: len(template.tokens) - 1}
        places = {role: torch.full((n,), at[role]) for role in self.roles}
        return Examples(clean, targets, Roles.of(places), counterfactual)
