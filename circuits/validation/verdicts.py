"""The outcome of every step of a validation, in one sentence each."""

from collections.abc import Sequence
from dataclasses import replace

from circuits.checks.faithfulness import Faithfulness
from circuits.checks.heads_alone import HeadResult
from circuits.checks.merging import MERGED_HEADS, Merge
from circuits.checks.removals import PathResult
from circuits.checks.statements import Verdict
from circuits.circuit import Head
from circuits.losses.loss import Loss
from circuits.validation.validation_report import ValidationReport

SHOWN = 3  # the most sets of heads that a sentence lists


def verdicts(report: ValidationReport) -> tuple[Verdict, ...]:
    """Return the verdicts of all steps; single paths are tested against the strict threshold."""
    threshold, paths, combined = report.threshold, report.paths, report.combined
    strict, n_heads = report.strict_threshold, len(report.content_or_position.alone)
    own = [head for head in report.circuit.heads_with_paths if not report.circuit.heads[head].builtin]
    return (
        _low("unablated", "The unablated loss", report.unablated, threshold),
        _step_3(report.heads, threshold),
        _step_4([head for head in report.content_or_position.alone if head not in report.circuit.heads]),
        _low("step 5", "With all heads replaced the loss", combined, threshold),
        _faithful(report.faithfulness, n_heads, threshold),
        _complete(report.faithfulness, threshold),
        _step_6(paths, combined, strict),
        _alternative_targets(paths, combined, strict),
        _merges(report.merges, paths, combined, strict, own),
    )


def _low(step: str, what: str, loss: Loss, threshold: float) -> Verdict:
    below = loss.mean < threshold
    sentence = f"{what} is {loss}, {'below' if below else 'not below'} the threshold {threshold:g}."
    if not loss.near(threshold):
        return Verdict(step, "passed" if below else "failed", sentence)
    sentence += " It is within three standard errors of the threshold, so the outcome is undecided. Take more examples."
    return Verdict(step, "undetermined", sentence)


def _step_3(heads: Sequence[HeadResult], threshold: float) -> Verdict:
    wrong = [f"{h.head} ({h.simplest} is enough, {h.hypothesis} is not)" for h in heads if h.alone == "fails"]
    open_ = [str(h.head) for h in heads if h.alone == "undetermined" and h.simplest is None]
    near = [str(h.head) for h in heads if h.alone == "undetermined" and h.simplest]
    holding = sum(h.alone == "holds" for h in heads)
    sentence = f"Replaced alone, {holding} of {len(heads)} named heads keep the loss below the threshold {threshold:g}."
    if wrong:
        sentence += f" The hypothesis is wrong for {', '.join(wrong)}."
    if open_:
        sentence += f" No mechanism does so for {', '.join(open_)}. Only step 5 can test these heads."
    if near:
        sentence += f" The loss is too close to the threshold to decide for {', '.join(near)}. Take more examples."
    return Verdict("step 3", "failed" if wrong else "undetermined" if open_ or near else "passed", sentence)


def _step_4(unnamed: Sequence[Head]) -> Verdict:
    if not unnamed:
        return Verdict("step 4", "passed", "Every head of the model has a mechanism.")
    some = ", ".join(map(str, unnamed[:6])) + (" ..." if len(unnamed) > 6 else "")
    return Verdict("step 4", "failed", f"{len(unnamed)} heads of the model have no mechanism: {some}.")


def _step_6(paths: Sequence[PathResult], combined: Loss, strict: float) -> Verdict:
    low = f"{strict:.3g}"
    if combined.mean >= strict:
        sentence = f"Not tested: with every path in place the loss is not below {low}."
        return Verdict("step 6", "failed", sentence)
    if not paths:
        return Verdict("step 6", "passed", "The circuit has no path, so no path is redundant.")
    redundant, undecided, indirect = (
        [str(p.path) for p in paths if p.needed == how] for how in ("no", "undecided", "indirectly")
    )
    if redundant:
        sentence = (
            f"These paths are not needed: {'; '.join(redundant)}. "
            f"The loss stays below {low} when the row of one of them is made uniform or identity."
        )
        return Verdict("step 6", "failed", sentence)
    if undecided:
        sentence = f"It is undecided whether these paths are needed: {'; '.join(undecided)}. Take more examples."
        return Verdict("step 6", "undetermined", sentence)
    weak = [str(p.path) for p in paths if p.weak]
    direct = len(paths) - len(indirect)
    sentence = (
        f"The circuit needs {direct} of {len(paths)} paths directly: without any one of them the loss exceeds {low}."
    )
    if indirect:
        sentence += (
            f" It needs {'; '.join(indirect)} indirectly: without the path the loss exceeds the threshold only when "
            "the heads above are intact."
        )
    if weak:
        sentence += f" The loss stays below {2 * strict:.3g} without {'; '.join(weak)}."
    return Verdict("step 6", "passed", sentence)


def _faithful(found: Faithfulness, n_heads: int, threshold: float) -> Verdict:
    if len(found.heads) == n_heads:
        sentence = f"The circuit has all {n_heads} heads, so there is no other head to ablate."
        return Verdict("faithful", "passed", sentence)
    others = f"{', '.join(f'{one.ablation} {one.circuit}' for one in found.by_ablation if one is not found.standard)}"
    n, ablation = len(found.heads), found.standard.ablation
    what = (
        f"With the circuit's {'head' if n == 1 else f'{n} heads'} intact and all others ablated ({ablation}) the loss"
    )
    verdict = _low("faithful", what, found.standard.circuit, threshold)
    return replace(verdict, sentence=f"{verdict.sentence} Other ablations: {others}.")


def _complete(found: Faithfulness, threshold: float) -> Verdict:
    if not found.knockouts:
        return Verdict("complete", "failed", "The circuit has no head with a path, so none can be knocked out.")
    apart = [out for out in found.knockouts if out.apart(threshold)]
    open_ = [out for out in found.knockouts if not out.apart(threshold) and not out.alike(threshold)]
    n = len(found.knockouts)
    if apart:
        worst = "; ".join(
            f"without {', '.join(map(str, out.heads))} circuit {out.circuit} and model {out.model}"
            for out in apart[:SHOWN]
        )
        helped = all(out.difference.mean > 0 for out in apart)
        sentence = (
            f"For {len(apart)} of {n} knockouts, circuit and model differ in loss by {threshold:g} or "
            f"more: {worst}." + (" Heads outside the circuit do part of its work." if helped else "")
        )
        return Verdict("complete", "failed", sentence)
    widest = f"{abs(found.knockouts[0].difference.mean):.4f}, without {', '.join(map(str, found.knockouts[0].heads))}"
    if open_:
        sentence = (
            f"For {len(open_)} of {n} knockouts it is undecided whether circuit and model differ in loss by "
            f"{threshold:g} or more. Take more examples. The largest difference is {widest}."
        )
        return Verdict("complete", "undetermined", sentence)
    sentence = f"In no knockout ({n} tested) do circuit and model differ in loss by {threshold:g} or more."
    return Verdict("complete", "passed", f"{sentence} The largest difference is {widest}.")


def _alternative_targets(paths: Sequence[PathResult], combined: Loss, strict: float) -> Verdict:
    low = f"{strict:.3g}"
    better = [f"{p.path} ({role} {p.retargeted[role]})" for p in paths for role in p.better_targets]
    if better:
        sentence = f"Another target gives a lower loss: {'; '.join(better)}."
        return Verdict("alternative targets", "failed", sentence)
    tried = sum(len(p.retargeted) for p in paths)
    if combined.mean >= strict:
        return Verdict(
            "alternative targets", "undetermined", f"Not tested: the loss of the circuit is not below {low}."
        )
    if not tried:
        sentence = "No needed path has another possible target."
        return Verdict("alternative targets", "undetermined" if paths else "passed", sentence)
    as_good = [f"{p.path} ({', '.join(p.alternative_targets)})" for p in paths if p.alternative_targets]
    if as_good:
        return Verdict(
            "alternative targets",
            "undetermined",
            f"Another target keeps the loss below {low}, or close to it: {'; '.join(as_good)}.",
        )
    sentence = f"No path keeps the loss below {low} when it is retargeted to another role ({tried} were tried)."
    return Verdict("alternative targets", "passed", sentence)


def _merges(
    merges: Sequence[Merge], paths: Sequence[PathResult], combined: Loss, strict: float, own: Sequence[Head]
) -> Verdict:
    low = f"{strict:.3g}"
    if combined.mean >= strict:
        return Verdict("merges", "undetermined", f"Not tested: the loss of the circuit is not below {low}.")
    if own:
        sentence = f"Not tested: heads with a mechanism of your own cannot be merged ({', '.join(map(str, own))})."
        return Verdict("merges", "undetermined", sentence)
    if not merges:
        sentence = (
            "No two needed heads can be merged: there is at most one, or they lead the same role to different targets."
        )
        return Verdict("merges", "passed", sentence)
    fewer = [f"{merge} ({merge.loss})" for merge in merges if merge.loss.mean < strict]
    near = any(merge.loss.near(strict) for merge in merges)
    if fewer:
        sentence = f"Fewer heads are enough. The loss stays below {low} after merging {'; '.join(fewer)}."
        return Verdict("merges", "undetermined", sentence)
    best = merges[0]
    if near:
        sentence = f"Undecided whether merging {best} keeps the loss below {low} ({best.loss}). Take more examples."
        return Verdict("merges", "undetermined", sentence)
    sentence = (
        f"None of {len(merges)} merges of two heads keeps the loss below {low}. The best is {best} ({best.loss})."
    )
    n_needed = len({path.path.head for path in paths if path.needed == "directly"})
    if n_needed > MERGED_HEADS:
        sentence += f" Only the {MERGED_HEADS} least costly of {n_needed} heads were tried."
    return Verdict("merges", "passed", sentence)
