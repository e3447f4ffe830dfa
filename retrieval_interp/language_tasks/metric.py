"""Metrics of language tasks, as losses: how far an ablation is from the unablated model.

    kl                  the KL divergence of the answers from the unablated model's, in nats
    logit_difference    1 - d / d of the unablated model; d is the right answer's logit minus the wrong one's
    probability         1 - p / p of the unablated model; p is the probability of the right answer

With several right or wrong answers, their logits are joined by log-sum-exp: d is then the log of the odds. The loss of
the unablated model is 0, on average. All are two-sided: an ablation with a larger logit difference than the model's is
not the model either. Beside every loss stand three measures: the logit difference, how often the most likely token is
right (top-1), and the KL divergence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from jaxtyping import Float

from circuits.ablation import evaluate
from circuits.averages import averages
from circuits.circuit import Circuit
from circuits.errors import BadInput, Unsolved
from circuits.given import stream_seed
from circuits.losses.loss import Mean
from circuits.mechanisms.mechanism import Idle
from circuits.model.layers import Layers, layers
from circuits.model.transformer import Transformer, sequences_at_once
from circuits.task import Examples
from circuits.utils.lazy import torch, transformers
from retrieval_interp.language_tasks.language_task import END, NONE, LanguageTask, Metric, TokenAnswers, at_end, exact

MEASURED_ON = 128  # prompts on which the model is measured with and without its heads
MEASURES = ("logit difference", "top-1", "KL")


@dataclass(frozen=True)
class MetricTask(TokenAnswers):
    """A language task for one model, as a ``circuits.Task``.

    Attributes:
        task: the task.
        model: the model.
        metric: the metric.
        whole: the metric's average for the unablated model; 1 for ``kl``.
        apart: the KL divergence with all heads idle, in nats.
    """

    task: LanguageTask
    model: Transformer
    metric: Metric
    whole: float
    apart: float = 1.0
    _seen: dict[bytes, torch.Tensor] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, model: Transformer, task: LanguageTask, metric: Metric | None = None, seed: int = 0) -> MetricTask:
        """Measure the model with and without its heads, and return the task as a task.

        Args:
            model: a language model.
            task: the task.
            metric: the metric; by default that of the task.
            seed: the seed of the examples that the model is measured on.

        Raises:
            BadInput: the model has a smaller vocabulary than the tokenizer, or is too short for the prompts.
            Unsolved: the model does not do the task: on the same prompts, its logit difference is not clearly above 0
                and that without its heads. With ``kl`` it need not do it, but its heads must matter.
        """
        metric = Metric(metric or task.metric)
        examples = task.examples(MEASURED_ON, stream_seed(seed, "unablated")).to(next(model.parameters()).device)
        length = examples.inputs.shape[1]
        if model.cfg.n_ctx < length:
            raise BadInput(f"{task.name}: the prompts have {length} tokens; the model reads {model.cfg.n_ctx}")
        if model.cfg.d_vocab < len(task.tokenizer):
            raise BadInput(f"the model has {model.cfg.d_vocab} tokens; its tokenizer has {len(task.tokenizer)}")
        raw = cls(task, model, metric, 1.0)
        means = averages(model, raw, seed, MEASURED_ON)
        all_idle = Circuit(dict.fromkeys(means.patterns, Idle()))
        numbers = _Numbers(raw, (*MEASURES, *((Metric.probability.value,) if metric == Metric.probability else ())))
        own, none = evaluate(model, numbers, examples, [Circuit(), all_idle], averages=means)
        does, lost = Mean.of(own[:, 0]), Mean.of(own[:, 0] - none[:, 0])
        apart = none[:, 2].mean().item()
        if not apart > 0:
            raise Unsolved(f"{task.name}: the model's outputs are the same without its heads; expected others")
        if metric != Metric.kl and not (lost.positive and does.positive):
            said = f"its logit difference is {does}, and {Mean.of(none[:, 0])} without its heads"
            raise Unsolved(f"the model does not do {task.name}: {said}; expected clearly more, and above 0")
        whole = {Metric.kl: 1.0, Metric.logit_difference: does.mean}
        return cls(task, model, metric, whole[metric] if metric in whole else own[:, 3].mean().item(), apart)

    @property
    def tokenizer(self) -> transformers.PreTrainedTokenizerBase:
        """The tokenizer of the task."""
        return self.task.tokenizer

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

    @property
    def two_sided(self) -> bool:
        """True: more than the model's own logit difference is not the model's either."""
        return True

    @property
    def measures(self) -> tuple[str, ...]:
        """The numbers beside every loss."""
        return MEASURES

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` prompts; BadInput if as for the task."""
        return self.task.examples(n, seed)

    @property
    def is_distance(self) -> bool:
        """Whether the metric says how far outputs are from the model's: nothing else has to."""
        return self.metric == Metric.kl

    @torch.no_grad()
    def _unablated(self, examples: Examples) -> Float[torch.Tensor, "batch instance d_vocab"]:
        """Return the unablated model's log-probabilities.

        The last residual stream of every prompt is kept, as long as no weight of the model is replaced or changed.
        """
        keys = self._keys(examples)
        new = [place for place, key in enumerate(keys) if key not in self._seen]
        at_once = sequences_at_once(self.model.cfg.n_heads, examples.inputs.shape[1])
        for start in range(0, len(new), at_once):
            places = torch.tensor(new[start : start + at_once], device=examples.inputs.device)
            opened = layers(self.model, examples.take(places))
            residual = opened.embed()
            for layer in range(self.model.cfg.n_layers):
                residual = opened.block(layer, residual)
            self.saw_unablated(opened, residual)
        at = torch.stack([self._seen[key] for key in keys])
        logits = layers(self.model, examples).read(at.flatten(0, 1)).unflatten(0, at.shape[:2])
        return logits.float().log_softmax(dim=-1)

    def saw_unablated(self, opened: Layers, residual: Float[torch.Tensor, "batch pos d_model"]) -> None:
        """Keep what leaves the last layer of the unablated model, which the engine has just run, on some prompts."""
        if opened.model is self.model:
            self._seen.update(zip(self._keys(opened.examples), at_end(residual, opened.examples), strict=True))

    def _keys(self, examples: Examples) -> list[bytes]:
        state = repr([(one.data_ptr(), one._version) for one in self.model.parameters()]).encode()
        tokens, there = examples.inputs, examples.roles.tokens(examples.inputs.shape[1])
        both = zip(tokens.cpu().numpy(), there.cpu().numpy(), strict=True)
        return [sha256(state + one.tobytes() + valid.tobytes()).digest() for one, valid in both]

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return how far the answers are from the model's, for every example, averaged over its instances."""
        logits = exact(at_end(outputs, examples))
        if self.metric == Metric.kl:
            return self._apart(logits, examples).mean(dim=1, keepdim=True)
        if self.metric == Metric.probability:
            right, _ = _joined(logits.log_softmax(dim=-1), examples.targets).unbind(dim=2)
            return 1 - right.exp().mean(dim=1, keepdim=True) / self.whole
        return 1 - _difference(logits, examples).mean(dim=1, keepdim=True) / self.whole

    def measured(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch measure"]:
        """Return the logit difference, whether the most likely token is right, and the KL divergence in nats."""
        logits = exact(at_end(outputs, examples))
        right = (logits.argmax(dim=-1, keepdim=True) == examples.targets[:, :, 0]).any(dim=-1)
        each = _difference(logits, examples), right.to(logits), self._apart(logits, examples)
        return torch.stack([one.mean(dim=1) for one in each], dim=1)

    def differences(
        self,
        outputs: Float[torch.Tensor, "batch pos d_out"],
        others: Float[torch.Tensor, "batch pos d_out"],
        examples: Examples,
    ) -> Float[torch.Tensor, "batch instance component"]:
        """Return the KL divergence of outputs from others; but for ``kl``, as a share of that with all heads idle.

        So it has the unit of the loss. An example is one instance: its losses are averaged over instances, too.
        """
        expected, actual = (exact(at_end(one, examples)).log_softmax(dim=-1) for one in (others, outputs))
        unit = 1.0 if self.metric == Metric.kl else self.apart
        return ((expected.exp() * (expected - actual)).sum(dim=-1) / unit).mean(dim=1)[:, None, None]

    def _apart(
        self, logits: Float[torch.Tensor, "batch instance d_vocab"], examples: Examples
    ) -> Float[torch.Tensor, "batch instance"]:
        expected, actual = self._unablated(examples), logits.log_softmax(dim=-1)
        return (expected.exp() * (expected - actual)).sum(dim=-1)


class _Numbers:
    """A task whose loss components are the measures, and the probability of a right answer if it is asked for."""

    def __init__(self, task: MetricTask, names: tuple[str, ...]) -> None:
        self.task, self.roles, self.output_roles = task, task.roles, task.output_roles
        self.loss_components, self.examples, self.saw_unablated = names, task.examples, task.saw_unablated

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        measured = self.task.measured(outputs, examples)
        return torch.cat([measured, 1 - self.task.losses(outputs, examples)], dim=1)[:, : len(self.loss_components)]


def _difference(
    logits: Float[torch.Tensor, "batch instance d_vocab"], examples: Examples
) -> Float[torch.Tensor, "batch instance"]:
    right, wrong = _joined(logits, examples.targets).unbind(dim=2)
    return right - wrong


def _joined(
    logits: Float[torch.Tensor, "batch instance d_out"], tokens: torch.Tensor
) -> Float[torch.Tensor, "batch instance side"]:
    """Return the log-sum-exp of the logits of the right tokens, and of the wrong ones."""
    chosen = logits[:, :, None].expand(-1, -1, 2, -1).gather(3, tokens.clamp(min=0))
    return chosen.masked_fill(tokens == NONE, -torch.inf).logsumexp(dim=3)
