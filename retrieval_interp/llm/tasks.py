"""The formulations as Inspect tasks, with the paper's procedure (section 4): asked directly, again and again.

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

from circuits.errors import check_size
from retrieval_interp.llm.answers import accepted
from retrieval_interp.prompts import Formulation, formulation

# An answer is one word. A model that thinks in tokens of its own before it answers needs more: --max-tokens.
MAX_TOKENS = 32
MOST_ATTEMPTS = 1_000_000


@solver
def until_acceptable(attempts: int) -> Solver:
    """Ask, and ask again from the beginning until the answer is acceptable, ``attempts`` times at most.

    Only what is asked first may come from Inspect's cache: there the second answer would be the first again.
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
    """The share of questions to which no acceptable answer came, however often they were asked."""

    def share(scores: list[SampleScore]) -> float:
        return sum(is_exhausted(score.score) for score in scores) / max(1, len(scores))

    return share


def is_exhausted(score: Score) -> bool:
    """Whether no acceptable answer came."""
    return bool((score.metadata or {}).get("exhausted"))


@scorer(metrics=[accuracy(), stderr(), exhausted()])
def exact() -> Scorer:
    """Right, wrong, or no acceptable answer at all; the latter is never right."""

    async def score(state: TaskState, target: Target) -> Score:
        answer = accepted(state.output.completion, state.metadata["acceptable"])
        told = {"attempts": state.metadata.get("attempts", 1), "exhausted": answer is None}
        if answer is None:
            return Score(value=NOANSWER, answer=state.output.completion, metadata=told)
        return Score(value=CORRECT if answer == target.text else INCORRECT, answer=answer, metadata=told)

    return score


def questions_task(kind: Formulation, samples: int, seed: int, attempts: int) -> Task:
    """The task of a formulation of some size.

    Args:
        kind: the formulation.
        samples: how many questions.
        seed: of the questions.
        attempts: how often a question is asked at most.
    """
    check_size("attempts", attempts, 1, MOST_ATTEMPTS)
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
    """F1 (paper, appendix A.1)."""
    return questions_task(formulation("equations", steps, chains), samples, seed, attempts)


@task
def lives_with(
    steps: int = 5, chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS
) -> Task:
    """F2 (paper, appendix A.2)."""
    return questions_task(formulation("lives_with", steps, chains), samples, seed, attempts)


@task
def kingdoms(chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS) -> Task:
    """F3 (paper, appendix A.3)."""
    return questions_task(formulation("kingdoms", chains=chains), samples, seed, attempts)


@task
def functions(chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS) -> Task:
    """F4 (paper, appendix A.4)."""
    return questions_task(formulation("functions", chains=chains), samples, seed, attempts)


@task
def relatives(chains: int = 4, samples: int = SAMPLES, seed: int = 0, attempts: int = ATTEMPTS) -> Task:
    """F5 (paper, appendix A.5)."""
    return questions_task(formulation("relatives", chains=chains), samples, seed, attempts)


TASKS: dict[str, Callable[..., Task]] = {
    "equations": equations,
    "lives_with": lives_with,
    "kingdoms": kingdoms,
    "functions": functions,
    "relatives": relatives,
}
