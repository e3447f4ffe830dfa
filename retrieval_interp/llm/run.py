"""Running the tasks with Inspect: its logs are the store, and whatever they hold is not asked again."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
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

RETRIES = 6  # of one question to a model that does not answer, at growing distances


def chosen(
    formulations: Sequence[str], steps: Sequence[int], samples: int, chains: int, seed: int, attempts: int
) -> list[Task]:
    """The tasks of figure 2: equations with every number of steps, the other formulations as they are in the paper.

    Raises:
        BadInput: an unknown formulation, or an impossible size.
    """
    formulations = [name.replace("-", "_") for name in formulations]
    unknown = [name for name in formulations if name not in FORMULATIONS]
    if unknown:
        raise BadInput(f"unknown formulation {unknown[0]!r}; expected all, or some of {', '.join(FORMULATIONS)}")
    shared: dict[str, Any] = {"samples": samples, "chains": chains, "seed": seed, "attempts": attempts}
    sizes: list[tuple[str, dict[str, Any]]] = []
    for name in dict.fromkeys(formulations):
        sizes += [(name, {"steps": n}) for n in steps] if name == "equations" else [(name, {})]
    for name, size in sizes:
        formulation(name, chains=chains, **size)  # refuses what is impossible before any question is made
    return [TASKS[name](**size, **shared) for name, size in sizes]


@dataclass(frozen=True)
class Asked:
    """What came of asking.

    Attributes:
        logs: Inspect's logs of what was to be asked, those of earlier runs that hold it among them.
        missing: why some questions have no answer yet; None where all have one.
    """

    logs: tuple[Path, ...]
    missing: str | None


def set_damaged_aside(logs: Path) -> list[Path]:
    """Rename the logs in a folder that cannot be read, so that they stand in nobody's way; returns their new names."""
    aside = []
    for path in sorted(logs_in(logs)) if logs.is_dir() else ():
        try:
            read_header(path)
        except Exception:  # whatever Inspect makes of a damaged file
            aside.append(path.rename(path.with_name(f"{path.name}.damaged")))
    return aside


def ask(tasks: Sequence[Task], models: Sequence[str | Model], logs: Path, quiet: bool, **config: Any) -> Asked:
    """Ask every model everything that the logs do not hold yet; progress goes to standard error.

    Args:
        tasks: what to ask.
        models: models, or Inspect's names of them: ``openai/gpt-4o``, or ``hooked/NAME`` for a HookedTransformer.
        logs: folder of Inspect's logs.
        quiet: without progress.
        config: whatever else ``inspect_ai.eval_set`` takes, such as ``max_tokens`` and ``temperature``.

    Raises:
        BadInput: a model that does not exist, or without its key.
        KeyboardInterrupt: the user stopped it; whatever was answered is in the logs.
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
                # Everything is asked even if something fails, and what failed is asked again by the next run.
                fail_on_error=True,
                continue_on_fail=True,
                log_samples=True,
                **{"max_retries": RETRIES, **config},
            )
    except PrerequisiteError as error:
        said = error.message if isinstance(error.message, str) else str(error.message)
        raise BadInput(Text.from_markup(said).plain.removeprefix("ERROR: ")) from error
    except (ValueError, OSError) as error:
        raise BadInput(f"{', '.join(map(str, models))}: cannot be asked ({error})") from error
    # Inspect catches Ctrl-C, and may call what is left a success.
    if len(evaluated) < len(tasks) * len(models) or any(log.status == "cancelled" for log in evaluated):
        raise KeyboardInterrupt
    where = tuple(path_of(log.location) for log in evaluated)
    if done:
        return Asked(where, None)
    failed = next(log for log in evaluated if log.status != "success")
    errors = [failed.error.message] if failed.error else []
    errors += [sample.error for sample in read_eval_log_sample_summaries(failed.location) if sample.error]
    reason = errors[0].strip().splitlines()[0] if errors else failed.status
    return Asked(where, f"{failed.eval.model} did not answer everything of {failed.eval.task} ({reason[:300]})")
