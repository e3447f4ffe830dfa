"""Models of Inspect that say what a test wants, and the task of equations asked of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

from inspect_ai import eval as evaluate
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolChoice, ToolInfo

from retrieval_interp.llm.tasks import TASKS
from tests.solver import solve


def said(text: str) -> ModelOutput:
    output = ModelOutput.from_content("mockllm", text)
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else Inspect fetches a tokenizer
    return output


def mock(answers: list[str | Exception] | Callable[[str], str]) -> Model:
    """A model of Inspect that gives these answers in turn, or one to each question."""
    left: Iterator[str | Exception] | None = iter(answers) if isinstance(answers, list) else None

    def respond(
        input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        answer = next(left) if left is not None else answers(input[-1].text)  # type: ignore[operator]
        if isinstance(answer, Exception):
            raise answer
        return said(answer)

    return get_model("mockllm/model", custom_outputs=respond, memoize=False)


def run(model: Model, tmp_path: Path, **sizes: int) -> EvalLog:
    return evaluate(TASKS["equations"](**sizes), model=model, log_dir=str(tmp_path), display="none", max_samples=1)[0]


def wrong(question: str) -> str:
    return str((int(solve(question)) + 1) % 4)
