"""Language models by name, the toolkit's own and pretrained ones, and language models on a task."""

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.model.language import from_pretrained
from circuits.model.transformer import Transformer
from retrieval_interp.language_tasks.language_task import Metric
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.language_tasks.registry import check_name, language_task
from retrieval_interp.models import library, smollm2
from retrieval_interp.models.machine import chosen


def language_model(name: str) -> Transformer:
    """Load a model that reads text, with its tokenizer, on any version of TransformerLens.

    Args:
        name: a model directory with a tokenizer; ``hf:owner/name``; a model that comes with the toolkit; ``smollm2``,
            whose weights a package has; or whatever ``circuits.model.from_pretrained`` loads, such as ``gpt2`` or a
            folder in Hugging Face's format.

    Raises:
        BadInput: there is no such model, it has no tokenizer, or TransformerLens does not support it.
    """
    if name != smollm2.NAME and not library.is_ours(name):
        return from_pretrained(name, **chosen())
    model: Transformer = library.load(name).model
    if model.tokenizer is None:
        raise BadInput(f"{name}: reads no text; expected a model with a tokenizer")
    return model


def on_task(
    name: str, task: str, metric: str | None = None, bos: str = "default", circuit: Circuit | None = None
) -> tuple[Transformer, MetricTask]:
    """Load a language model, and return it with a language task as a task.

    Args:
        name: as for ``language_model``.
        task: the name of a language task, such as ``ioi``.
        metric: ``kl``, ``logit_difference`` or ``probability``; by default that of the task.
        bos: what stands before every prompt: ``default``, what the model's tokenizer puts there, ``none``, or a token.
        circuit: a circuit that must fit both; it is checked before the model is measured.

    Raises:
        BadInput: there is no such model, task or metric; the task does not fit the model's tokenizer; or the circuit
            does not fit.
        Unsolved: the model does not do the task.
    """
    check_name(task)
    if metric is not None and metric not in [*Metric]:
        raise BadInput(f"unknown metric {metric!r}; expected {', '.join(Metric)}")
    model = language_model(name)
    prompts = language_task(task, model.tokenizer, bos)
    if circuit is not None:
        circuit.check(prompts.examples(2, 0).roles, model.cfg.n_layers, model.cfg.n_heads)
    return model, MetricTask.of(model, prompts, None if metric is None else Metric(metric))
