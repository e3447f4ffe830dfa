"""A language model of a few dozen words, trained on the equations of the prompts (F1; paper, appendix A.1).

One text with N = 2 chains of D = 2 steps; every word is one token:

    d = 0 ⏎ a = 1 ⏎ ... b = a ⏎ c = d ⏎ What is the value of b ? Say directly ... words . ⏎ 1
        ^       ^           ^       ^                        ^                            ^
    asked here: the variable defined, and its value          its value                    the answer, as in a prompt

Each text has 1 to D steps, which gives an implicit curriculum. Only the marked positions have targets. One of these
targets is the variable that an equation defines, so that the model joins both sides of the equation. Without it models
stay on the plateau (see docs/language_models.md).

The roles of a chain are the roles of the question that asks for it. All chains share ``query`` and ``answer``, and one
role per variable for its value, such as ``c.second``. A path can therefore lead to a line of another chain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float, Int, Integer

from circuits.roles import Roles
from circuits.task import Examples, Layout
from circuits.utils.lazy import torch
from retrieval_interp.language_tasks.language_task import TokenAnswers
from retrieval_interp.language_tasks.template import UNKNOWN
from retrieval_interp.prompts import Equations
from retrieval_interp.prompts.words import VARIABLES, word
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.high_level import Variable, chain_variables, exchange
from retrieval_interp.tasks.prompted import ANSWER, Prompted, prompt_layout
from retrieval_interp.tasks.task import RawBatch, TrainableTask
from retrieval_interp.tasks.vectors import shuffles

LINE = 4  # tokens of an equation: variable, =, right-hand side, line break
SECOND = 2  # index of the right-hand side
MEMBERS = {"first": 0, "second": SECOND, "end": LINE - 1}
KINDS = ("variable", "value", "word")  # the kinds of targets
VARIABLE, VALUE, WORD = range(3)
NOT_ASKED = -100  # the target that PyTorch's cross-entropy ignores


@dataclass(frozen=True)
class Texts(RawBatch):
    """A raw batch of texts: their random choices.

    Attributes:
        links: for every variable of every block, the number of the variable of the block before that it equals; in the
            first block, its value.
        order: for every block, the order of its equations.
        asked: the number of the variable of the last block that is asked about.
        steps: the number of blocks that are written.
    """

    links: Integer[torch.Tensor, "example block chain"]
    order: Integer[torch.Tensor, "example block chain"]
    asked: Integer[torch.Tensor, " example"]
    steps: Integer[torch.Tensor, " example"]


@dataclass(frozen=True)
class EquationsTask(TokenAnswers, TrainableTask):
    """Texts of equations (F1) to train a language model on; a ``circuits.Task``.

    Attributes:
        n_steps: D, the number of equations in a chain; training texts have 1 to D.
        n_chains: N, the number of chains in every text.
    """

    n_steps: int = 5
    n_chains: int = 4

    def __post_init__(self) -> None:
        self.check("n_steps", 1, 20)
        self.check("n_chains", 2, 20)

    @cached_property
    def formulation(self) -> Equations:
        """The formulation of the longest questions."""
        return Equations(self.n_chains, self.n_steps)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The vocabulary: variables, numbers, then all other words of a question."""
        variables = (word(VARIABLES, i) for i in range(self.n_steps * self.n_chains))
        numbers = map(str, range(self.n_chains))
        asked = pieces(self.formulation.questions(1, 0)[0].prompt)
        return tuple(dict.fromkeys([*variables, *numbers, *asked, UNKNOWN]))

    @cached_property
    def prompted(self) -> Prompted:
        """The longest questions as a task."""
        return Prompted(self.formulation, self.tokenizer)

    @property
    def sentence(self) -> str:
        """The task in words, to follow "trained on"."""
        return (
            f"texts of equations (F1; appendix A.1), {self.n_chains} chains of 1 to {self.n_steps} steps; asked for "
            "the end of one chain, after the question"
        )

    @property
    def n_positions(self) -> int:
        """The length of the longest text, with its answer."""
        return LINE * self.n_chains * self.n_steps + len(self._question) + 1

    @property
    def roles(self) -> tuple[str, ...]:
        """The formulation's roles, ``answer``, and for every variable the role of its value, which all chains share."""
        return (*self.formulation.roles, ANSWER, *self._lines)

    @property
    def loss_components(self) -> tuple[str, ...]:
        """``xD``, the end of the chain."""
        return (f"x{self.n_steps}",)

    @property
    def read_at(self) -> Mapping[str, str]:
        """xD is read at the last token of the prompt."""
        return dict.fromkeys(self.loss_components, ANSWER)

    @cached_property
    def _lines(self) -> tuple[str, ...]:
        """The role of every variable's value, in the order of the vocabulary."""
        return tuple(f"{name}.second" for name in self.words[: self.n_steps * self.n_chains])

    @property
    def layout(self) -> Layout:
        """What each role of a chain knows at the start; the roles of single variables know nothing about a chain."""
        laid = prompt_layout(self.formulation)
        return Layout({**dict.fromkeys(self._lines, frozenset()), **laid.start}, laid.places)

    @cached_property
    def _question(self) -> tuple[int, ...]:
        """The tokens of the last line, with an arbitrary variable, and the line break after it."""
        last = self.formulation.questions(1, 0)[0].prompt.rsplit("\n", 1)[1]
        return tuple(map(self.words.index, pieces(last + "\n")))

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` of the longest questions, without their answers. The first chain is the one that is asked about.

        Groups: ``variable``, the number of the chain's variable in the role's block; ``asked``, 1 for the chain that is
        asked about, otherwise 0.
        """
        asked = self.prompted.examples(n, seed)
        D, N, tokens = self.n_steps, self.n_chains, asked.inputs
        lines = tokens[:, : D * N * LINE : LINE]  # the variables that they define, the first words of the vocabulary
        starts = LINE * lines.argsort(dim=1)  # the start of every variable's line
        last = lines[:, -N:]
        first_of_all = (last != tokens.gather(1, asked.roles["query"])).long().argsort(dim=1, stable=True)
        chains = [last.gather(1, first_of_all)]  # the variables of pair1, pair2, ... of every chain
        for _ in range(1, D):
            chains.append(tokens.gather(1, starts.gather(1, chains[-1]) + SECOND))
        places = {role: (asked.roles[role].expand(-1, N), chains[0]) for role in ("query", ANSWER)}
        for k, variables in enumerate(chains, start=1):
            for member, place in MEMBERS.items():
                places[f"pair{k}.{member}"] = starts.gather(1, variables) + place, variables
        for variable, role in enumerate(self._lines):
            places[role] = starts[:, variable, None].expand(-1, N) + SECOND, chains[D - 1 - variable // N]
        at, variables = (torch.stack([places[role][part] for role in self.roles], dim=1) for part in (0, 1))
        is_asked = torch.zeros_like(at)
        is_asked[:, :, 0] = 1
        return Examples(tokens, asked.targets, Roles(self.roles, at, {"variable": variables % N, "asked": is_asked}))

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return the probability of any answer but the right one."""
        return self.prompted.losses(outputs, examples)

    def instance_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch chain component"]:
        """Return the loss of the chain that is asked about; NaN for the others."""
        losses = outputs.new_full((len(examples), self.n_chains, 1), torch.nan)
        losses[:, 0] = self.losses(outputs, examples)
        return losses

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The symbols x1 ... xD, the right-hand sides of a chain's equations; the answer depends on all of them."""
        return chain_variables(self.n_steps, self.loss_components)

    def exchanged(
        self, examples: Examples, role: str, partner: Int[torch.Tensor, "batch chain"]
    ) -> Int[torch.Tensor, "batch pos"]:
        """Return the texts with the right-hand side of every chain's equation at a role replaced with its partner's."""
        return exchange(examples.inputs, examples.roles[role], partner)

    def distances(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch chain component candidate"]:
        """Return the negative logit of the end of every chain; NaN for chains that are not asked about."""
        ends = examples.inputs.gather(1, examples.roles[f"pair{self.n_steps}.second"])
        distances = outputs.new_full((len(examples), self.n_chains, 1, self.n_chains), torch.nan)
        distances[:, 0, 0] = -outputs[:, -1].gather(1, ends)
        return distances

    def draw(self, n: int, stream: RngStream, seed: int) -> Texts:
        """Draw ``n`` texts; every number of steps is equally likely."""
        rng, D, N = stream.generator(seed), self.n_steps, self.n_chains
        links, order = shuffles(rng, n, 2 * D, N).split(D, dim=1)
        asked, steps = (torch.from_numpy(rng.integers(low, high, n)) for low, high in ((0, N), (1, D + 1)))
        return Texts(links, order, asked, steps)

    def assemble(self, draws: Texts) -> Examples:
        """Write the texts, each with its answer, padded with line breaks that have no targets.

        The targets are ``[batch, pos, kind]``: the variable that an equation defines, the value of the variable or
        number at the position, and the next word. Positions without a target hold ``NOT_ASKED``.
        """
        D, N, V = self.n_steps, self.n_chains, self.n_steps * self.n_chains
        links, order, device = draws.links.long(), draws.order.long(), draws.links.device
        equal, end = self.words.index("="), self.words.index("\n")
        values = [links[:, 0]]
        for block in range(1, D):
            values.append(values[-1].gather(1, links[:, block]))
        value = V + torch.stack(values, dim=1)  # the value of every variable, [example, block, chain]
        before = torch.arange(-N, V - N, N, device=device)  # index of the first word of the block before
        before[0] = V  # the numbers

        def blank(*shape: int) -> torch.Tensor:  # of every position, the token and the targets
            return torch.full((len(draws), *shape, 1 + len(KINDS)), NOT_ASKED, device=device)

        lines, tail = blank(D, N, LINE), blank(len(self._question) + 2)  # the question, the answer and a line break
        lines[..., 0, 0] = lines[..., SECOND, 1 + VARIABLE] = torch.arange(0, V, N, device=device)[:, None] + order
        lines[..., 1, 0], lines[..., LINE - 1, 0] = equal, end
        lines[..., SECOND, 0] = before[:, None] + links.gather(2, order)
        lines[..., SECOND, 1 + VALUE] = value.gather(2, order)
        steps, asked = draws.steps.long(), draws.asked.long()
        answer = value[torch.arange(len(draws), device=device), steps - 1, asked]
        query = next(place for place, token in enumerate(self._question) if token < V)
        tail[..., 0] = torch.tensor([*self._question, end, end], device=device)
        tail[:, query, 0] = (steps - 1) * N + asked
        tail[:, -2, 0] = tail[:, query, 1 + VALUE] = tail[:, -3, 1 + WORD] = answer
        tail[:, -2, 1 + WORD] = end

        written = LINE * N * steps[:, None]  # tokens before the question
        place = torch.arange(self.n_positions, device=device).expand(len(draws), -1)
        source = torch.where(place < written, place, (place - written).clamp(max=tail.shape[1] - 1) + LINE * V)
        every = torch.cat([lines.flatten(1, 3), tail], dim=1)
        drawn = every.gather(1, source[..., None].expand(-1, -1, every.shape[2]))
        at = written + tail.shape[1] - 3
        return Examples(drawn[..., 0], drawn[..., 1:], Roles((ANSWER,), at[:, :, None]))

    @property
    def trained_components(self) -> tuple[str, ...]:
        """The kinds of targets: ``variable``, ``value`` and ``word``."""
        return KINDS

    def training_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch trained"]:
        """Return the cross-entropy of each kind of target, over the variables, the numbers, and all words."""
        V = self.n_steps * self.n_chains
        among = {VARIABLE: slice(0, V), VALUE: slice(V, V + self.n_chains), WORD: slice(None)}
        losses = []
        for kind, some in among.items():
            targets = examples.targets[..., kind]
            wanted = targets - (some.start or 0) * (targets != NOT_ASKED)
            each = torch.nn.functional.cross_entropy(outputs[..., some].transpose(1, 2), wanted, reduction="none")
            losses.append(each.sum(dim=1) / (targets != NOT_ASKED).sum(dim=1))
        return torch.stack(losses, dim=1)


def pieces(text: str) -> list[str]:
    """Return the words, punctuation marks and line breaks of a text, in order."""
    return re.findall(r"\w+|[^\w ]", text)
