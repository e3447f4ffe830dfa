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
from retrieval_interp.language_tasks.language_task import END, LanguageTask, drawn
from retrieval_interp.language_tasks.template import Template, single_tokens

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
        def single(what: str, some: tuple[str, ...], before: str, least: int) -> dict[str, int]:
            return single_tokens(self.tokenizer, f"the {what} of docstring", some, before, least)

        arguments = single("arguments", ARGUMENTS, "def port(self, ", LEAST)
        words = dict.fromkeys(self.roles[:-1], arguments)
        words["name"] = single("functions", FUNCTIONS, "\ndef ", 2)
        words["w0"] = single("words", WORDS, '    """', 2)
        words |= dict.fromkeys([f"w{k}" for k in range(1, 7)], single("words", WORDS, "param load: ", LEAST))
        return Template.of(self.tokenizer, TEXT, words), words

    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts.

        Raises:
            BadInput: too few arguments or words are one token in this tokenizer.
        """
        template, words = self._template
        others = ("name", *(f"w{k}" for k in range(7)))
        fixed = {slot: drawn(rng, [*words[slot].values()], n, 1)[:, 0] for slot in others}
        a, b, c, *rest = drawn(rng, [*words["A_def"].values()], n, 6).T
        fixed |= {"A_doc": a, "B_doc": b}
        clean, counterfactual = (
            template.filled({**fixed, "A_def": one, "B_def": two, "C_def": three})
            for one, two, three in ((a, b, c), rest)
        )
        right = torch.stack([c, torch.full_like(c, -1)], dim=1)
        targets = torch.stack([right, torch.stack([a, b], dim=1)], dim=1)[:, None]
        at = {**template.places, END: len(template.tokens) - 1}
        places = {role: torch.full((n,), at[role]) for role in self.roles}
        return Examples(clean, targets, Roles.of(places), counterfactual)
