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
from circuits.task import Examples, Layout, Variable, exchange
from circuits.utils.lazy import torch, transformers
from retrieval_interp.language_tasks.template import UNKNOWN, word_tokenizer
from retrieval_interp.prompts import Equations
from retrieval_interp.prompts.words import VARIABLES, word
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.high_level import chain_variables
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
class EquationsTask(TrainableTask):
    """Texts of equations (F1) to train a language model on; a ``circuits.Task``.

    Attributes:
        n_steps: D, the number of equations in a chain; training texts have 1 to D.
        n_chains: N, the number of chains in every text.
    """

    loss_name = "probability of a wrong answer"

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
    def tokenizer(self) -> transformers.PreTrainedTokenizerFast:
        """The tokenizer: one token per word, number, punctuation mark and line break."""
        return word_tokenizer(self.words)

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
    def d_input(self) -> int:
        """The size of the vocabulary."""
        return len(self.words)

    @property
    def d_output(self) -> int:
        """The size of the vocabulary."""
        return len(self.words)

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
        at, numbers = {}, {}
        for role in self.roles:
            pair, _, member = role.partition(".")
            if role in self._lines:
                variable = self._lines.index(role)
                at[role] = starts[:, variable, None].expand(-1, N) + SECOND
                numbers[role] = chains[D - 1 - variable // N] % N
            elif member:
                own = chains[int(pair.removeprefix("pair")) - 1]
                at[role] = starts.gather(1, own) + MEMBERS[member]
                numbers[role] = own % N
            else:
                at[role] = asked.roles[role].expand(-1, N)
                numbers[role] = chains[0] % N
        positions, variables = (torch.stack([of[role] for role in self.roles], dim=1) for of in (at, numbers))
        is_asked = torch.zeros_like(positions)
        is_asked[:, :, 0] = 1
        return Examples(tokens, asked.targets, Roles(self.roles, positions, {"variable": variables, "asked": is_asked}))

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return the probability of any answer but the right one."""
        return self.prompted.losses(outputs, examples)

    def instance_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch chain component"]:
        """Return the loss of the chain that is asked about; NaN for the others."""
        found = outputs.new_full((len(examples), self.n_chains, 1), torch.nan)
        found[:, 0] = self.losses(outputs, examples)
        return found

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
        found = outputs.new_full((len(examples), self.n_chains, 1, self.n_chains), torch.nan)
        found[:, 0, 0] = -outputs[:, -1].gather(1, ends)
        return found

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
        first = (torch.arange(0, V, N, device=device)[:, None] + order)[..., None]
        second = (before[:, None] + links.gather(2, order))[..., None]
        lines = torch.cat([first, torch.full_like(first, equal), second, torch.full_like(first, end)], dim=-1)

        asked = draws.asked.long()[:, None]
        last = (draws.steps.long() - 1)[:, None]
        answer = value.gather(1, last[..., None].expand(-1, 1, N))[:, 0].gather(1, asked)
        tail = torch.tensor(self._question, device=device).repeat(len(draws), 1)
        query = next(place for place, token in enumerate(self._question) if token < V)
        tail[:, query] = (last * N + asked)[:, 0]
        tail = torch.cat([tail, answer], dim=1)

        asked_in_lines = torch.full((*lines.shape, len(KINDS)), NOT_ASKED, device=device)
        asked_in_lines[..., SECOND, VARIABLE] = first[..., 0]
        asked_in_lines[..., SECOND, VALUE] = value.gather(2, order)
        asked_in_tail = torch.full((*tail.shape, len(KINDS)), NOT_ASKED, device=device)
        asked_in_tail[:, query, VALUE] = answer[:, 0]
        asked_in_tail[:, -2, WORD] = answer[:, 0]
        asked_in_tail[:, -1, WORD] = end

        written = (last + 1) * LINE * N  # tokens before the question
        place = torch.arange(self.n_positions, device=device).expand(len(draws), -1)
        within = place - written
        from_lines = place.clamp(max=LINE * V - 1)
        from_tail = within.clamp(0, tail.shape[1] - 1)
        tokens = torch.where(within < 0, lines.flatten(1).gather(1, from_lines), tail.gather(1, from_tail))
        tokens = tokens.masked_fill(within >= tail.shape[1], end)
        kinds = (-1, -1, len(KINDS))
        targets = torch.where(
            (within < 0)[..., None],
            asked_in_lines.flatten(1, 3).gather(1, from_lines[..., None].expand(kinds)),
            asked_in_tail.gather(1, from_tail[..., None].expand(kinds)),
        ).masked_fill((within >= tail.shape[1])[..., None], NOT_ASKED)
        at = written + tail.shape[1] - 2
        return Examples(tokens, targets, Roles((ANSWER,), at[:, :, None]))

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
        found = []
        for kind, some in among.items():
            targets = examples.targets[..., kind]
            wanted = targets - (some.start or 0) * (targets != NOT_ASKED)
            each = torch.nn.functional.cross_entropy(outputs[..., some].transpose(1, 2), wanted, reduction="none")
            found.append(each.sum(dim=1) / (targets != NOT_ASKED).sum(dim=1))
        return torch.stack(found, dim=1)


def pieces(text: str) -> list[str]:
    """Return the words, punctuation marks and line breaks of a text, in order."""
    return re.findall(r"\w+|[^\w ]", text)
