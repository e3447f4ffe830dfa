"""The training of one run of a sweep."""

import json
import time
from collections.abc import Callable

import torch

from retrieval_interp.models.build import build
from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.store import LEARNED, Result, Trained
from retrieval_interp.training.training import LOG_EVERY, VALIDATION_EXAMPLES, logged, short
from retrieval_interp.training.training_step import TrainingStep, choose_device, learning_rate, train_steps

LAST = 100  # final steps over which the validation loss is averaged (paper, section 7.1)
VALIDATE_LAST_EVERY = 10  # steps between two validations among these


def train_run(job: Job, progress: Callable[[float], None], device: str, weights: bool) -> Trained | Failure:
    """Train the run of a job, and return its result and log, or a failure if the loss diverges.

    Args:
        job: the job.
        progress: is called with the finished share, 0 to 1.
        device: a name for ``choose_device``.
        weights: whether to keep the weights.

    Raises:
        BadInput: the device is unknown or not usable.
    """
    started = time.perf_counter()
    task, recipe, seed = job.chosen.task, job.chosen.recipe, job.run.seed
    model = build(task, job.chosen.config, seed).to(choose_device(device), print_details=False)
    take_step = TrainingStep(model, task, recipe)
    take_step.compile()
    validation = task.examples(VALIDATION_EXAMPLES, 0).to(take_step.device)
    names = task.loss_components
    log: list[str] = []
    fell: dict[str, int | None] = dict.fromkeys(names)
    since, validated, n_validated = torch.zeros(len(names)), torch.zeros(len(names)), 0
    for step, losses, whole in train_steps(take_step, seed):
        since += losses.cpu()
        if recipe.steps - step < LAST and (recipe.steps - step) % VALIDATE_LAST_EVERY == 0:
            validated, n_validated = validated + take_step.validate(validation).cpu(), n_validated + 1
        if step % LOG_EVERY == 0 or step == recipe.steps:
            if not since.isfinite().all():
                return Failure(job.run, f"the loss became NaN or infinite by step {step}")
            means = logged(names, since / (step % LOG_EVERY or LOG_EVERY))
            log.append(json.dumps({"step": step, **means, "lr": short(learning_rate(recipe, step - 1))}) + "\n")
            for symbol, loss in means["components"].items() if whole else ():
                if loss < LEARNED and fell[symbol] is None:
                    fell[symbol] = step
            since.zero_()
            progress(step / recipe.steps)
    losses_by_symbol = dict(zip(names, (validated / max(1, n_validated)).tolist(), strict=True))
    seconds = round(time.perf_counter() - started, 1)
    result = Result(job.run.preset, seed, losses_by_symbol, fell, seconds, str(take_step.device))
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    return Trained(result, "".join(log), state if weights else None)
