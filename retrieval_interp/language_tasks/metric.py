"""Metrics of language tasks, as losses: the share of what the unablated model does that an ablation takes.

    logit_difference    1 - d / d of the unablated model; d is the right answer's logit minus the wrong one's
    probability         1 - p / p of the unablated model; p is the probability of the right answer
    kl                  the KL divergence from the unablated model's outputs, divided by the KL divergence with all
                        heads replaced by their average patterns

With several right or wrong answers, their logits are joined by log-sum-exp: d is then the log of the odds. The loss of
the unablated model is 0, on average. The averages of the unablated model are
measured once, on examples of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jaxtyping import Float
from torch.utils.weak import WeakTensorKeyDictionary

from circuits.ablation import evaluate
from circuits.averages import averages
from circuits.circuit import Circuit
from circuits.errors import BadInput, Unsolved
from circuits.given import stream_seed
from circuits.losses.loss import Loss
from circuits.model.layers import layers
from circuits.model.transformer import Transformer
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.lazy import torch
from retrieval_interp.language_tasks.language_task import END, NONE, LanguageTask, at_end

UNABLATED_EXAMPLES = 512  # for the averages of the unablated model


class Metric(StrEnum):
    """What is measured at the end of a prompt."""

    logit_difference = "logit_difference"
    probability = "probability"
    kl = "kl"


@dataclass(frozen=True)
class MetricTask:
    """A language task for one model, as a ``circuits.Task``. With ``kl``, the unablated model runs on every batch.

    Attributes:
        task: the task.
        model: the model.
        metric: the metric.
        whole: the metric's average for the unablated model; for ``kl``, when all heads have their average patterns.
    """

    task: LanguageTask
    model: Transformer
    metric: Metric
    whole: float
    _read: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary, init=False, compare=False)

    @classmethod
    def of(
        cls, model: Transformer, task: LanguageTask, metric: Metric = Metric.logit_difference, seed: int = 0
    ) -> MetricTask:
        """Measure the unablated model, and return the task as a task.

        Args:
            model: a language model.
            task: the task.
            metric: the metric.
            seed: the seed of the examples that the unablated model is measured on.

        Raises:
            BadInput: the model has a smaller vocabulary than the tokenizer, or is too short for the prompts.
            Unsolved: the model does not do the task: its logit difference is not clearly above 0. With ``kl`` it need
                not do it, but its heads must matter.
        """
        examples = task.examples(UNABLATED_EXAMPLES, stream_seed(seed, "unablated")).to(next(model.parameters()).device)
        length = examples.inputs.shape[1]
        if model.cfg.n_ctx < length:
            raise BadInput(f"{task.name}: the prompts have {length} tokens; the model reads {model.cfg.n_ctx}")
        if model.cfg.d_vocab < len(task.tokenizer):
            raise BadInput(f"the model has {model.cfg.d_vocab} tokens; its tokenizer has {len(task.tokenizer)}")
        if metric == Metric.kl:
            raw = cls(task, model, metric, 1.0)
            means = averages(model, cls(task, model, Metric.probability, 1.0), seed).patterns
            (lost,) = evaluate(model, raw, examples, [Circuit(means)])
            if not lost.mean() > 0:
                raise Unsolved(f"{task.name}: the model's outputs are the same without its heads; expected others")
            return cls(task, model, metric, lost.mean().item())
        wholes = {}
        for one in (Metric.logit_difference, metric):
            (losses,) = evaluate(model, cls(task, model, one, 1.0), examples, [Circuit()])
            wholes[one] = Loss.of(1 - losses, (one,))
        does = wholes[Metric.logit_difference]
        if not does.mean > current().sure * does.standard_error:
            said = f"the model does not do {task.name}: its logit difference is {does}"
            raise Unsolved(f"{said}; expected clearly above 0")
        return cls(task, model, metric, wholes[metric].mean)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the task."""
        return self.task.roles

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The name of the metric."""
        return (self.metric.value,)

    @property
    def output_roles(self) -> tuple[str, ...]:
        """The role at which the answer is read."""
        return (END,)

    @property
    def read_at(self) -> Mapping[str, str]:
        """The role at which the metric is read."""
        return {self.metric.value: END}

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` prompts.

        Raises:
            BadInput: as for the task.
        """
        return self.task.examples(n, seed)

    @torch.no_grad()
    def _unablated(self, examples: Examples) -> Float[torch.Tensor, "batch instance d_vocab"]:
        """Return the unablated model's log-probabilities; those of a batch are kept as long as the batch."""
        if examples.inputs not in self._read:
            opened = layers(self.model, examples)
            residual = opened.embed()
            for layer in range(self.model.cfg.n_layers):
                residual = opened.block(layer, residual)
            at = at_end(residual, examples)
            logits = opened.read(at.flatten(0, 1)).unflatten(0, at.shape[:2])
            self._read[examples.inputs] = logits.float().log_softmax(dim=-1)
        return self._read[examples.inputs]

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return the share that is lost, of every example, averaged over its instances."""
        logits = at_end(outputs, examples)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.metric == Metric.kl:
            expected, actual = self._unablated(examples), logits.log_softmax(dim=-1)
            apart = (expected.exp() * (expected - actual)).sum(dim=-1)
            return apart.mean(dim=1, keepdim=True) / self.whole
        if self.metric == Metric.probability:
            logits = logits.log_softmax(dim=-1)
        right, wrong = _joined(logits, examples.targets).unbind(dim=2)
        kept = right.exp() if self.metric == Metric.probability else right - wrong
        return 1 - kept.mean(dim=1, keepdim=True) / self.whole


def _joined(
    logits: Float[torch.Tensor, "batch instance d_out"], tokens: torch.Tensor
) -> Float[torch.Tensor, "batch instance side"]:
    """Return the log-sum-exp of the logits of the right tokens, and of the wrong ones."""
    chosen = logits[:, :, None].expand(-1, -1, 2, -1).gather(3, tokens.clamp(min=0))
    return chosen.masked_fill(tokens == NONE, -torch.inf).logsumexp(dim=3)
