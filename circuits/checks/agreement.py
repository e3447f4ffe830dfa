"""Solves and agrees: does the circuit do the task, and does it do what the model does?

A circuit may solve what the model solves and still be no account of the model: it may answer right where the model is
wrong. Its outputs are therefore compared with the model's (the equivalence of Shi et al. 2024), on all examples and on
those that the model fails.
"""

from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.ablation import run_ablated
from circuits.checks.experiment import DECISIONS, MORE, Experiment, listed
from circuits.errors import BadInput
from circuits.given import losses_of
from circuits.losses.betting import decided
from circuits.losses.sample import blocks
from circuits.losses.sequential_test import OWN
from circuits.mechanisms.mechanism import Intact
from circuits.model.transformer import outputs_at_a_position, run, sequences_at_once
from circuits.results import Number, Result, Verdict
from circuits.settings import current
from circuits.task import Comparable, Examples, WithInstances


class Agreement(Result):
    """How far a circuit's outputs are from the model's.

    Attributes:
        verdicts: agrees on all examples, and on those that the model fails, if it fails a share of ``least``.
        apart: the average distance, as a share of the range; an example counts at most 1.
        n_failed: the instances that the model fails: their loss is ``failed`` of the range or more above the average.
        nearer: on these instances, the average of (distance from the model - loss) / (distance from the model + loss):
            below 0 if the circuit is nearer to the model's answers than to the right ones. None without any.
        correlation: the correlation of the losses of circuit and model over all examples; None if one does not vary.
    """

    verdicts: tuple[Verdict, ...]
    apart: Number
    n_failed: int
    nearer: float | None
    correlation: float | None


def solves(experiment: Experiment) -> Verdict:
    """Return whether the circuit does the task as well as the model, with every head replaced or idle."""
    circuit = experiment.circuit
    intact = [head for head in experiment.all_heads if head not in circuit.heads]
    named = [head for head, mechanism in circuit.heads.items() if mechanism == Intact()]
    replaced = f"{len(circuit.heads) - len(named)} heads" if intact or named else "every head"
    low = experiment.low("solves", f"With {replaced} replaced or idle the loss", experiment.combined)
    if named:
        said = f"{low.sentence} Named intact, so that nothing is said of what they do: {len(named)} ({listed(named)})."
        low = low.model_copy(update={"sentence": said})
    if not intact:
        return low
    what = "head intact and says nothing of it" if len(intact) == 1 else "heads intact and says nothing of them"
    said = f"{low.sentence} The circuit leaves {len(intact)} {what}: {listed(intact)}."
    return Verdict(name="solves", decision="undecided" if low.decision == "holds" else low.decision, sentence=said)


def agreement(experiment: Experiment) -> Agreement:
    """Compare the circuit's outputs with the model's on all examples, with every head replaced or idle.

    The distance is what the task says (``Comparable``), else the difference of the two losses. Failures are those of
    instances, if the task has instance losses; an example counts once, with the average over those that fail in it.
    Failures decide if their share is at least the least effect, whatever the number of examples.
    """
    settings, width, limit = current(), experiment.scale.width, experiment.threshold
    own, combined, apart = _instances(experiment)
    share = (apart.nanmean(dim=1) / width).clamp(max=1)
    decision = DECISIONS[experiment.test.decide(share, limit)]
    of = "outputs" if isinstance(experiment.task, Comparable) else "losses"
    said = f"The circuit's {of} are {share.nanmean().item():.4f} of the range from the model's"
    both = torch.stack([own.nanmean(dim=1), combined.nanmean(dim=1)])
    correlation = torch.corrcoef(both[:, ~both.isnan().any(dim=0)])[0, 1].item()
    alike = f" The errors correlate by {correlation:.2f}." if isfinite(correlation) else ""
    failed = own - own.nanmean() >= settings.failed * width
    each = ((apart - combined) / (apart + combined).clamp(min=1e-12)).clamp(-1, 1).where(failed, torch.nan)
    nearer = each[failed.any(dim=1)].nanmean(dim=1)
    n_failed, n_asked, average = int(failed.sum()), int((~own.isnan()).sum()), nearer.mean().item()
    of_all = f"{n_failed} of {n_asked}{' instances' if own.shape[1] > 1 else ' examples'}"
    rare = n_failed < settings.least * n_asked
    whose = "right" if average > 0 else "model's"
    to = f"nearer to the {whose} answers ({average:+.2f} between -1 and 1)"
    seldom = f"too few to count (below {settings.least:.0%}){f'; there the circuit is {to}' if n_failed else ''}"
    said += f"; the limit is {limit:.3g}.{alike}{f' The model fails {of_all}, {seldom}.' if rare else ''}"
    said += f" {MORE}" if decision == "undecided" else ""
    verdicts = [Verdict(name="agrees", decision=decision, sentence=said)]
    if not rare:
        on_failed = DECISIONS[decided(nearer, 0.0, settings.error)]
        said = f"The model fails {of_all}. There the circuit is {to}.{f' {MORE}' if on_failed == 'undecided' else ''}"
        verdicts.append(Verdict(name="agrees on the model's failures", decision=on_failed, sentence=said))
    return Agreement(
        verdicts=tuple(verdicts),
        apart=share.nanmean().item(),
        n_failed=n_failed,
        nearer=average if n_failed else None,
        correlation=correlation if isfinite(correlation) else None,
    )


@torch.no_grad()
def _instances(experiment: Experiment) -> Float[Tensor, "three example instance"]:
    """Return for every instance the losses of model and circuit, and their distance; NaN where none is asked for.

    Without instance losses, an example is one instance.

    Raises:
        BadInput: instance losses or differences have another shape, or are not finite where an instance is asked for.
    """
    model, task, test = experiment.model, experiment.task, experiment.test
    own, combined = (one.double().mean(dim=1)[:, None] for one in test.each([OWN, experiment.circuit]))
    known = getattr(task, "is_distance", False) and own.abs().max() <= 1e-3 * test.scale.width  # it is this model's
    if known or not isinstance(task, WithInstances | Comparable):
        return torch.stack([own, combined, (own - combined).abs()])
    n_positions, n_outputs = test.first.inputs.shape[1], outputs_at_a_position(model.cfg)
    at_once = sequences_at_once(model.cfg.n_heads, n_positions, 2 * n_outputs)
    parts = []
    for block in blocks(0, len(test.examples)):
        for start in range(block.start, block.stop, at_once):
            batch = test.examples.take(slice(start, min(start + at_once, block.stop)))
            outputs = run(model, batch), run_ablated(model, experiment.circuit, batch, experiment.averages)
            exact = [one.to(torch.promote_types(one.dtype, torch.float32)) for one in outputs]
            if isinstance(task, WithInstances):
                losses = [task.instance_losses(one, batch) for one in exact]
            else:
                losses = [losses_of(task, one, batch)[:, None] for one in exact]
            own = _averaged("instance losses", losses[0], batch)
            combined = _averaged("instance losses", losses[1], batch, own)
            apart = (own - combined).abs()
            if isinstance(task, Comparable):
                apart = _averaged("differences", task.differences(exact[1], exact[0], batch), batch, own)
            parts.append(torch.stack([own, combined, apart]))
    test.n_evaluations += 2 * len(test.examples)
    return torch.cat(parts, dim=1)


def _averaged(what: str, values: Tensor, examples: Examples, asked: Tensor | None = None) -> Tensor:
    """Return the average over components, ``[example, instance]``; NaN where the instance is not ``asked`` for."""
    expected = [len(examples), "instance" if asked is None else asked.shape[1], "component"]
    if values.ndim != 3 or any(n != m for n, m in zip(values.shape, expected, strict=True) if isinstance(m, int)):
        raise BadInput(
            f"the task's {what} have the shape {[*values.shape]}; expected [{', '.join(map(str, expected))}]"
        )
    average = values.double().nanmean(dim=2).cpu()
    average = average if asked is None else average.where(~asked.isnan(), torch.nan)
    if average.isinf().any() or (asked is not None and (average.isnan() & ~asked.isnan()).any()):
        raise BadInput(f"the task's {what} are NaN or infinite; expected finite numbers where an answer is asked for")
    return average
