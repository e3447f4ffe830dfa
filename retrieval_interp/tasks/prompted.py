"""Questions in words as a ``circuits.Task``: every symbol of every chain gets the position of its token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from jaxtyping import Float

from circuits.errors import BadInput, whole
from circuits.roles import Roles
from circuits.task import Examples, Layout
from circuits.utils.lazy import torch, transformers
from retrieval_interp.language_tasks.language_task import TokenAnswers
from retrieval_interp.language_tasks.template import token_ids
from retrieval_interp.prompts.chains import Chains
from retrieval_interp.prompts.formulation import MOST_QUESTIONS, Formulation
from retrieval_interp.prompts.question import Question
from retrieval_interp.theory.chain_layout import chain_layout

ANSWER = "answer"  # the role of the last token of a prompt, at which the answer is read
SAMPLE = 8  # questions that the most common length is taken from
TRIES = 50  # questions tried per example; after that their lengths differ too much


def as_text(tokenizer: transformers.PreTrainedTokenizerBase, question: str) -> str:
    """Return the full text before the answer: in the tokenizer's chat template, or with a line break at its end."""
    if tokenizer.chat_template is not None:
        asked = [{"role": "user", "content": question}]
        try:
            text = str(tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template can raise anything
            raise BadInput(f"the tokenizer's chat template cannot format a question ({error})") from error
        if question not in text:
            raise BadInput("the tokenizer's chat template changes the question")
        return text
    return question + "\n"


def question_ids(tokenizer: transformers.PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the tokens of a text, as ``token_ids``; a chat template adds the start token itself."""
    return token_ids(tokenizer, text, bos="default" if tokenizer.chat_template is None else "none")


def answer_ids(tokenizer: transformers.PreTrainedTokenizerBase, question: str, answer: str) -> list[int]:
    """Return the tokens of an answer that follows a question.

    Raises:
        BadInput: the tokens of the question change when the answer follows.
    """
    text = as_text(tokenizer, question)
    before, together = question_ids(tokenizer, text)[0], question_ids(tokenizer, text + answer)[0]
    if together[: len(before)] != before or len(together) == len(before):
        raise BadInput(f"the tokenizer merges the answer {answer!r} with the prompt")
    return together[len(before) :]


def placed(
    tokenizer: transformers.PreTrainedTokenizerBase, question: Question
) -> tuple[list[int], dict[tuple[str, int], int]]:
    """Tokenize a question, and find the position of every symbol of every chain.

    The position of a symbol with several tokens is its last token, where the whole symbol has been read. The last token
    of the prompt, at which the answer is read, has the role ``answer`` in the chain that is asked about.

    Returns:
        the tokens, and the position of the token of a role, by role and chain.

    Raises:
        BadInput: as ``token_ids``; or the chat template changes the question, or a symbol has no token of its own.
    """
    text = as_text(tokenizer, question.prompt)
    ids, offsets = question_ids(tokenizer, text)
    shift = text.find(question.prompt)  # a chat template puts text before it
    of_character = {character: position for position, span in enumerate(offsets) for character in range(*span)}
    ends = {(mark.role, mark.chain): shift + mark.end - 1 for mark in question.marks}
    lost = [role for (role, _), end in ends.items() if end not in of_character]
    if lost:
        raise BadInput(f"the tokenizer has no token where {lost[0]} ends")
    places = {key: of_character[end] for key, end in ends.items()}
    symbols = [place for (role, _), place in places.items() if not role.endswith(".end")]
    if len(set(symbols)) < len(symbols):
        raise BadInput("the tokenizer puts several symbols into one token")
    return ids, {**places, (ANSWER, question.asked): len(ids) - 1}


@dataclass(frozen=True)
class Prompted(TokenAnswers):
    """Questions of a formulation; a ``circuits.Task`` for a model that reads tokens.

    The only loss component is the probability of a wrong answer, 1 - p(first token of the right answer). With four
    chains, a model that guesses among the four acceptable answers scores 0.75. The roles are the roles of the chain
    that is asked about.

    Attributes:
        formulation: the formulation of the questions.
        tokenizer: the tokenizer of the model.
    """

    formulation: Formulation
    tokenizer: transformers.PreTrainedTokenizerBase

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the formulation, and ``answer``, the last token of the prompt."""
        return (*self.formulation.roles, ANSWER)

    @property
    def loss_components(self) -> tuple[str, ...]:
        """``xD``, the end of the chain; for a conditional task, ``answer``."""
        return (f"x{self.formulation.hops}",) if isinstance(self.formulation, Chains) else (ANSWER,)

    @property
    def output_roles(self) -> tuple[str, ...]:
        """The role at which the answer is read."""
        return (ANSWER,)

    @property
    def read_at(self) -> Mapping[str, str]:
        """The role at which the loss component is read."""
        return dict.fromkeys(self.loss_components, ANSWER)

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` questions with the same number of tokens, so that no padding is needed.

        The number of tokens is the most common one among the first eight questions.

        Raises:
            BadInput: the tokenizer does not know a word, the questions differ too much in length, or ``n`` is out of
                range.
        """
        n = whole("the number of examples", n, 1, MOST_QUESTIONS)
        lengths = [len(placed(self.tokenizer, one)[0]) for one in self.formulation.questions(SAMPLE, seed)]
        length = max(dict.fromkeys(lengths), key=lengths.count)
        tokens: list[list[int]] = []
        positions, answers = [], []
        for question in islice(self.formulation.stream(seed), TRIES * n):
            ids, places = placed(self.tokenizer, question)
            if len(ids) != length:
                continue
            firsts = {} if tokens else {self.answer_token(question, answer) for answer in question.acceptable}
            if not tokens and len(firsts) < len(question.acceptable):
                raise BadInput("several acceptable answers begin with the same token; use fewer chains")
            tokens.append(ids)
            positions.append([places[role, question.asked] for role in self.roles])
            answers.append(self.answer_token(question, question.answer))
            if len(tokens) == n:
                roles = Roles(self.roles, torch.tensor(positions)[:, :, None])
                return Examples(torch.tensor(tokens), torch.tensor(answers), roles)
        raise BadInput(f"of {TRIES * n} questions only {len(tokens)} have {length} tokens; expected {n}")

    def answer_token(self, question: Question, answer: str) -> int:
        """Return the first token of an answer that follows the prompt; BadInput as ``answer_ids``."""
        return answer_ids(self.tokenizer, question.prompt, answer)[0]

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return the probability of any answer but the right one.

        Raises:
            BadInput: the model has a smaller vocabulary than the tokenizer.
        """
        if outputs.shape[-1] < len(self.tokenizer):
            raise BadInput(f"the model has {outputs.shape[-1]} output tokens; its tokenizer has {len(self.tokenizer)}")
        chances = outputs[:, -1].softmax(dim=-1)
        return 1 - chances.gather(1, examples.targets[:, None])


def prompt_layout(formulation: Chains) -> Layout:
    """Return what each role of a chain knows at the start: its token and line. The answer is in the question's line."""
    D = formulation.hops
    start = dict(chain_layout(D).start)
    laid = {}
    for role, pieces in start.items():
        laid[role] = pieces
        if role.endswith(".second"):
            laid[role.replace(".second", ".end")] = frozenset({piece for piece in pieces if piece.startswith("p")})
    return Layout({**laid, ANSWER: frozenset({"p0"})}, frozenset(f"p{k}" for k in range(D + 1)))
