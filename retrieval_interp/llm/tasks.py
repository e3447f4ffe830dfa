"""The formulations as Inspect tasks, with the paper's procedure (section 4): ask until an answer is acceptable.

inspect eval retrieval_interp/equations -T steps=5 --model PROVIDER/MODEL
"""

from collections.abc import Callable

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import CORRECT, INCORRECT, NOANSWER, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from circuits.errors import BadInput, whole
from retrieval_interp.llm.answers import accepted
from retrieval_interp.prompts import FORMULATIONS, formulation
from retrieval_interp.prompts.formulation import MOST_QUESTIONS

# An answer is one word. Models that write reasoning tokens first need more: --max-tokens.
MAX_TOKENS = 32
CHOICES = "choices"  # the answers that a model of hooked/ chooses from, in the extra body of a request
MOST_ATTEMPTS, MOST_SHOTS = 1_000_000, 100


@solver
def until_acceptable(attempts: int) -> Solver:
    """Ask a question anew until the answer is acceptable, at most ``attempts`` times.

    Only the first answer may come from Inspect's cache, which would return the same answer at every attempt.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        question = list(state.messages)
        for attempt in range(1, attempts + 1):
            state.messages = list(question)
            state = await (generate(state) if attempt == 1 else generate(state, cache=False))
            state.metadata["attempts"] = attempt
            if accepted(state.output.completion, state.metadata["acceptable"]) is not None:
                break
        return state

    return solve


@solver
def most_likely() -> Solver:
    """Let a model of ``hooked/`` choose the acceptable answer that it finds most likely."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.model.api != "hooked":  # others would sample, and nobody would see it
            raise BadInput(f"a forced choice reads the probabilities of a model of hooked/; got {state.model}")
        return await generate(state, extra_body={CHOICES: state.metadata["acceptable"]})

    return solve


@scorer(metrics=[accuracy(), stderr()])
def exact() -> Scorer:
    """Return the scorer: right, wrong, or no acceptable answer, which is never right."""

    async def score(state: TaskState, target: Target) -> Score:
        answer = accepted(state.output.completion, state.metadata["acceptable"])
        value = NOANSWER if answer is None else CORRECT if answer == target.text else INCORRECT
        said = state.output.completion if answer is None else answer
        return Score(value=value, answer=said, metadata={"attempts": state.metadata.get("attempts", 1)})

    return score


def task_of(name: str) -> Callable[..., Task]:
    """Return the Inspect task of a formulation; its arguments are below."""

    @task(name=name)
    def questions(
        steps: int | None = None,
        chains: int = 4,
        samples: int = 500,
        seed: int = 0,
        attempts: int = 10,
        forced_choice: bool = False,
        shots: int = 0,
    ) -> Task:
        """Return the task of some questions.

        Args:
            steps: D, for equations and lives_with alone; None: the paper's 5.
            chains: N, the number of chains.
            samples: the number of questions.
            seed: the seed of the questions.
            attempts: the most attempts at one question.
            forced_choice: ask once for the most likely of the acceptable answers; of models of ``hooked/`` alone.
            shots: how many other questions with their answers stand before each question.

        Raises:
            BadInput: a number is out of range.
        """
        kind = formulation(name, steps, chains)
        whole("attempts", attempts, 1, MOST_ATTEMPTS)
        samples, shots = whole("samples", samples, 1, MOST_QUESTIONS), whole("shots", shots, 0, MOST_SHOTS)
        asked = kind.questions(samples + shots, seed)
        before = "".join(f"{one.prompt}\n{one.answer}\n\n" for one in asked[samples:])
        dataset = [
            Sample(
                id=number,
                input=before + question.prompt,
                target=question.answer,
                metadata={"acceptable": list(question.acceptable), "chain": list(question.chain)},
            )
            for number, question in enumerate(asked[:samples], start=1)
        ]
        size = {"formulation": name, "steps": getattr(kind, "n_steps", None), "chains": chains, "chance": kind.chance}
        how = {"attempts": 1 if forced_choice else attempts, "forced_choice": forced_choice, "shots": shots}
        return Task(
            dataset=MemoryDataset(dataset, name=name),
            solver=most_likely() if forced_choice else until_acceptable(attempts),
            scorer=exact(),
            config=GenerateConfig(max_tokens=MAX_TOKENS),
            metadata={**size, "seed": seed, **how},
        )

    return questions


TASKS = {name: task_of(name) for name in FORMULATIONS}
