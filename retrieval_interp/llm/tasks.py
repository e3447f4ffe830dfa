"""The formulations as Inspect tasks, with the paper's procedure (section 4): ask until an answer is acceptable.

inspect eval retrieval_interp/equations -T steps=5 --model PROVIDER/MODEL
"""

from collections.abc import Callable

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    NOANSWER,
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    accuracy,
    metric,
    scorer,
    stderr,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver

from circuits.errors import whole
from retrieval_interp.llm.answers import accepted
from retrieval_interp.prompts import Formulation, formulation

# An answer is one word. Models that write reasoning tokens first need more: --max-tokens.
MAX_TOKENS = 32
MOST_ATTEMPTS = 1_000_000


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


@metric
def exhausted() -> Metric:
    """Return the metric of the share of questions without an acceptable answer after all attempts."""

    def share(scores: list[SampleScore]) -> float:
        return sum(is_exhausted(score.score) for score in scores) / max(1, len(scores))

    return share


def is_exhausted(score: Score) -> bool:
    """Whether a question got no acceptable answer."""
    return bool((score.metadata or {}).get("exhausted"))


@scorer(metrics=[accuracy(), stderr(), exhausted()])
def exact() -> Scorer:
    """Return the scorer: right, wrong, or no acceptable answer, which is never right."""

    async def score(state: TaskState, target: Target) -> Score:
        answer = accepted(state.output.completion, state.metadata["acceptable"])
        metadata = {"attempts": state.metadata.get("attempts", 1), "exhausted": answer is None}
        if answer is None:
            return Score(value=NOANSWER, answer=state.output.completion, metadata=metadata)
        return Score(value=CORRECT if answer == target.text else INCORRECT, answer=answer, metadata=metadata)

    return score


def questions_task(kind: Formulation, samples: int, seed: int, attempts: int) -> Task:
    """Return the Inspect task of a formulation.

    Args:
        kind: the formulation, with its size.
        samples: the number of questions.
        seed: the seed of the questions.
        attempts: the most attempts at one question.

    Raises:
        BadInput: a number is out of range.
    """
    whole("attempts", attempts, 1, MOST_ATTEMPTS)
    dataset = [
        Sample(
            id=number,
            input=question.prompt,
            target=question.answer,
            metadata={"acceptable": list(question.acceptable), "chain": list(question.chain)},
        )
        for number, question in enumerate(kind.questions(samples, seed), start=1)
    ]
    steps = getattr(kind, "n_steps", None)
    described = {"formulation": kind.name, "steps": steps, "chains": kind.n_chains, "chance": kind.chance}
    described.update(seed=seed, attempts=attempts)
    return Task(
        dataset=MemoryDataset(dataset, name=kind.name),
        solver=until_acceptable(attempts),
        scorer=exact(),
        config=GenerateConfig(max_tokens=MAX_TOKENS),
        metadata=described,
    )


SAMPLES, ATTEMPTS = 500, 10


@task
def equations(steps: int = 5, chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS) -> Task:
    """Return the task of equations (F1; paper, appendix A.1)."""
    return questions_task(formulation("equations", steps, chains), samples, seed, attempts)


@task
def lives_with(
    steps: int = 5, chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS
) -> Task:
    """Return the task of lives-with (F2; paper, appendix A.2)."""
    return questions_task(formulation("lives_with", steps, chains), samples, seed, attempts)


@task
def kingdoms(chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS) -> Task:
    """Return the task of kingdoms (F3; paper, appendix A.3)."""
    return questions_task(formulation("kingdoms", chains=chains), samples, seed, attempts)


@task
def functions(chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS) -> Task:
    """Return the task of functions (F4; paper, appendix A.4)."""
    return questions_task(formulation("functions", chains=chains), samples, seed, attempts)


@task
def relatives(chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS) -> Task:
    """Return the task of relatives (F5; paper, appendix A.5)."""
    return questions_task(formulation("relatives", chains=chains), samples, seed, attempts)


TASKS: dict[str, Callable[..., Task]] = {
    "equations": equations,
    "lives_with": lives_with,
    "kingdoms": kingdoms,
    "functions": functions,
    "relatives": relatives,
}
