"""Running the tasks with Inspect; questions that its logs already answer are not asked again."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval_set
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.log import read_eval_log_sample_summaries
from inspect_ai.model import Model, get_model
from rich.text import Text

from circuits.errors import BadInput
from retrieval_interp.llm.results import logs_in, path_of, read_header
from retrieval_interp.llm.tasks import TASKS
from retrieval_interp.prompts import FORMULATIONS, formulation
from retrieval_interp.prompts.chains import AnyLength

RETRIES = 6  # of a request that gets no response, at growing intervals


def chosen(formulations: Sequence[str], steps: Sequence[int] | None, **options: int) -> list[Task]:
    """Return the tasks of figure 2.

    Args:
        formulations: the names of the formulations.
        steps: the numbers of steps of equations and lives-with; None: the paper's, 1 to 10 and 5.
        **options: ``samples``, ``chains``, ``seed`` and ``attempts``, for every task.

    Raises:
        BadInput: a formulation is unknown, a number is out of range, or there are steps that no formulation takes.
    """
    names = dict.fromkeys(formulation(name).name for name in formulations)
    own = {name: steps for name in names if steps and issubclass(FORMULATIONS[name], AnyLength)}
    if steps and not own:
        formulation(next(iter(names)), steps[0])  # says that it takes none
    sizes = [(name, n) for name in names for n in own.get(name, range(1, 11) if name == "equations" else [None])]
    return [TASKS[name](steps=n, **options) for name, n in sizes]


def set_damaged_aside(logs: Path) -> list[Path]:
    """Rename the logs in a folder that cannot be read, so that Inspect ignores them, and return their new paths."""
    aside = []
    for path in sorted(logs_in(logs)) if logs.is_dir() else ():
        try:
            read_header(path)
        except Exception:  # Inspect raises many types for a damaged file
            aside.append(path.rename(path.with_name(f"{path.name}.damaged")))
    return aside


def ask(
    tasks: Sequence[Task], models: Sequence[str | Model], logs: Path, quiet: bool, **config: Any
) -> tuple[list[Path], str | None]:
    """Ask every model the questions that the logs do not answer yet, with progress on standard error.

    Args:
        tasks: the tasks.
        models: models, or their names in Inspect, such as ``openai/gpt-4o`` or ``hooked/NAME``.
        logs: the folder of Inspect's logs.
        quiet: whether to hide the progress.
        config: other arguments of ``inspect_ai.eval_set``, such as ``max_tokens`` and ``temperature``.

    Returns:
        Inspect's logs that hold the answers, including logs of earlier runs; and the reason why some questions have no
        answer yet, None if all have one.

    Raises:
        BadInput: a model does not exist, or its key is missing.
        KeyboardInterrupt: the user interrupted; finished answers are in the logs.
    """
    try:
        with redirect_stdout(sys.stderr):
            done, evaluated = eval_set(
                list(tasks),
                log_dir=str(logs),
                log_dir_allow_dirty=True,
                model=[get_model(model) for model in models],
                display="none" if quiet else "rich",
                retry_attempts=0,
                retry_immediate=False,
                # An error does not stop the other questions; the next run asks the failed ones again.
                fail_on_error=True,
                continue_on_fail=True,
                log_samples=True,
                **{"max_retries": RETRIES, **config},
            )
    except PrerequisiteError as error:
        raise BadInput(Text.from_markup(str(error.message)).plain.removeprefix("ERROR: ")) from error
    except (ValueError, OSError) as error:
        raise BadInput(f"{', '.join(map(str, models))}: cannot be asked ({error})") from error
    # Inspect catches Ctrl-C, and may then report success for the remaining logs.
    if len(evaluated) < len(tasks) * len(models) or any(log.status == "cancelled" for log in evaluated):
        raise KeyboardInterrupt
    paths = [path_of(log.location) for log in evaluated]
    if done:
        return paths, None
    failed = next(log for log in evaluated if log.status != "success")
    errors = [failed.error.message] if failed.error else []
    errors += [sample.error for sample in read_eval_log_sample_summaries(failed.location) if sample.error]
    reason = errors[0].strip().splitlines()[0] if errors else failed.status
    return paths, f"{failed.eval.model} did not answer all questions of {failed.eval.task} ({reason[:300]})"
