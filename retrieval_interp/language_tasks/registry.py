"""All language tasks by name."""

from __future__ import annotations

from circuits.errors import BadInput
from circuits.utils.lazy import transformers
from retrieval_interp.language_tasks.docstring import Docstring
from retrieval_interp.language_tasks.greater_than import GreaterThan
from retrieval_interp.language_tasks.induction import Induction
from retrieval_interp.language_tasks.ioi import IOI
from retrieval_interp.language_tasks.language_task import LanguageTask

LANGUAGE_TASKS: dict[str, type[LanguageTask]] = {task.name: task for task in (Induction, IOI, GreaterThan, Docstring)}


def check_name(name: str) -> None:
    """Check the name of a language task; BadInput if there is no such task."""
    if name not in LANGUAGE_TASKS:
        raise BadInput(f"unknown task {name!r}; expected one of {', '.join(LANGUAGE_TASKS)}")


def language_task(name: str, tokenizer: transformers.PreTrainedTokenizerBase, bos: str = "default") -> LanguageTask:
    """Return a language task for a tokenizer.

    Args:
        name: its name, such as ``ioi``.
        tokenizer: the tokenizer of the model.
        bos: what stands before every prompt: ``default``, what the tokenizer puts there, ``none``, or a token.

    Raises:
        BadInput: there is no such task, or no tokenizer.
    """
    check_name(name)
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
        raise BadInput(f"{name}: the tokenizer is {tokenizer!r:.60}; expected a tokenizer of transformers")
    return LANGUAGE_TASKS[name](tokenizer, bos)
