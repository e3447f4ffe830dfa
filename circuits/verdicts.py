"""The outcome of every step of a validation, in a sentence."""

from collections.abc import Sequence
from dataclasses import replace

from circuits.circuit import Head
from circuits.faithfulness import Faithfulness
from circuits.loss import Loss
from circuits.merging import MERGED_HEADS
from circuits.statements import Verdict
from circuits.validation_report import HeadResult, Merge, PathResult, ValidationReport

SHOWN = 3  # sets of heads that a sentence names


def verdicts(report: ValidationReport) -> tuple[Verdict, ...]:
    """The verdicts of all steps, from what was measured; single paths are held against the report's level."""
    threshold, level, paths, combined = report.threshold, report.level, report.paths, report.combined
    own = [head for head in report.circuit.useful_heads if report.circuit.heads[head].own]
    return (
        _low("unablated", "The model's own loss", report.full, threshold),
        _step_3(report.heads, threshold),
        _step_4([head for head in report.content.alone if head not in report.circuit.heads]),
        _low("step 5", "With all heads replaced the loss", combined, threshold),
        _faithful(report.faithfulness, len(report.content.alone), threshold),
        _complete(report.faithfulness, threshold),
        _step_6(paths, combined, level),
        _rivals(paths, combined, level),
        _merges(report.merges, paths, combined, level, own),
    )


def _low(step: str, what: str, loss: Loss, threshold: float) -> Verdict:
    below = loss.mean < threshold
    sentence = f"{what} is {loss}, {'below' if below else 'not below'} the threshold {threshold:g}."
    if not loss.near(threshold):
        return Verdict(step, "passed" if below else "failed", sentence)
    sentence += " That is within three standard errors: chance could decide it, take more examples."
    return Verdict(step, "undetermined", sentence)


def _step_3(heads: Sequence[HeadResult], threshold: float) -> Verdict:
    wrong = [f"{h.head} ({h.simplest} would do, {h.hypothesis} does not)" for h in heads if h.alone == "fails"]
    open_ = [str(h.head) for h in heads if h.alone == "undetermined" and h.simplest is None]
    near = [str(h.head) for h in heads if h.alone == "undetermined" and h.simplest]
    holding = sum(h.alone == "holds" for h in heads)
    sentence = (
        f"With one head replaced alone the loss stays below the threshold {threshold:g} "
        f"for {holding} of {len(heads)} named heads."
    )
    if wrong:
        sentence += f" Wrong: {', '.join(wrong)}."
    if open_:
        sentence += f" No mechanism tried does so for {', '.join(open_)}, which only step 5 can judge."
    if near:
        sentence += f" Too near to the threshold to say, take more examples: {', '.join(near)}."
    return Verdict("step 3", "failed" if wrong else "undetermined" if open_ or near else "passed", sentence)


def _step_4(unnamed: Sequence[Head]) -> Verdict:
    if not unnamed:
        return Verdict("step 4", "passed", "Every head of the model has a mechanism.")
    some = ", ".join(map(str, unnamed[:6])) + (" ..." if len(unnamed) > 6 else "")
    return Verdict("step 4", "failed", f"{len(unnamed)} heads of the model have no mechanism: {some}.")


def _step_6(paths: Sequence[PathResult], combined: Loss, level: float) -> Verdict:
    low = f"{level:.3g}"
    if combined.mean >= level:
        sentence = f"Cannot be judged: even with every path in place the loss is not below {low}."
        return Verdict("step 6", "failed", sentence)
    if not paths:
        return Verdict("step 6", "passed", "The circuit has no path, so none is superfluous.")
    superfluous, undecided, enabling = (
        [str(p.path) for p in paths if p.needed == how] for how in ("no", "undecided", "enabling")
    )
    if superfluous:
        sentence = (
            f"Not needed: {'; '.join(superfluous)}. With such a row uniform or identity the loss stays below {low}."
        )
        return Verdict("step 6", "failed", sentence)
    if undecided:
        sentence = f"Too near to {low} to say whether it is needed, take more examples: {'; '.join(undecided)}."
        return Verdict("step 6", "undetermined", sentence)
    weak = [str(p.path) for p in paths if p.weak]
    direct = len(paths) - len(enabling)
    sentence = (
        f"The whole circuit needs {direct} of {len(paths)} paths: without any one of those the loss exceeds {low}."
    )
    if enabling:
        sentence += (
            f" With all attention prescribed nothing is missed without {'; '.join(enabling)}, "
            "but heads above that are left to attend by themselves then go astray."
        )
    if weak:
        sentence += f" Least needed (below {2 * level:.3g}): {'; '.join(weak)}."
    return Verdict("step 6", "passed", sentence)


def _faithful(found: Faithfulness, n_heads: int, threshold: float) -> Verdict:
    if len(found.heads) == n_heads:
        sentence = f"All {n_heads} heads are the circuit's: there are no others to ablate, so this says nothing."
        return Verdict("faithful", "passed", sentence)
    others = f"{', '.join(f'{one.ablation} {one.circuit}' for one in found.by_ablation if one is not found.judged)}"
    what = (
        f"With the circuit's {len(found.heads)} heads intact and all others ablated ({found.judged.ablation}) the loss"
    )
    verdict = _low("faithful", what, found.judged.circuit, threshold)
    return replace(verdict, sentence=f"{verdict.sentence} Other ablations: {others}.")


def _complete(found: Faithfulness, threshold: float) -> Verdict:
    if not found.taken_out:
        return Verdict("complete", "failed", "The circuit has no head with a path; nothing can be taken out of it.")
    apart = [out for out in found.taken_out if out.apart(threshold)]
    open_ = [out for out in found.taken_out if not out.apart(threshold) and not out.alike(threshold)]
    n = len(found.taken_out)
    if apart:
        worst = "; ".join(
            f"without {', '.join(map(str, out.heads))} circuit {out.circuit}, model {out.model}"
            for out in apart[:SHOWN]
        )
        helped = all(out.difference.mean > 0 for out in apart)
        sentence = (
            f"{'Heads outside do its work too: for' if helped else 'For'} {len(apart)} of {n} sets of its heads, "
            f"ablated in the circuit and in the model, the losses differ: {worst}."
        )
        return Verdict("complete", "failed", sentence)
    widest = f"{abs(found.taken_out[0].difference.mean):.4f}, without {', '.join(map(str, found.taken_out[0].heads))}"
    if open_:
        sentence = (
            f"Too near to say for {len(open_)} of {n} sets of its heads, take more examples; the most is {widest}."
        )
        return Verdict("complete", "undetermined", sentence)
    sentence = f"Whichever of {n} sets of its heads are ablated, circuit and model differ by less than {threshold:g}"
    return Verdict("complete", "passed", f"{sentence}; the most is {widest}.")


def _rivals(paths: Sequence[PathResult], combined: Loss, level: float) -> Verdict:
    low = f"{level:.3g}"
    better = [f"{p.path} ({role} {p.redirected[role]})" for p in paths for role in p.better]
    if better:
        sentence = f"Another target gives a lower loss than the circuit's: {'; '.join(better)}."
        return Verdict("rivals", "failed", sentence)
    tried = sum(len(p.redirected) for p in paths)
    if combined.mean >= level:
        return Verdict("rivals", "undetermined", f"Cannot be judged: the circuit itself is not below {low}.")
    if not tried:
        sentence = "No path that is needed could be led elsewhere to compare."
        return Verdict("rivals", "undetermined" if paths else "passed", sentence)
    as_good = [f"{p.path} ({', '.join(p.rivals)})" for p in paths if p.rivals]
    if as_good:
        return Verdict(
            "rivals", "undetermined", f"Another target keeps the loss below {low}, or near to it: {'; '.join(as_good)}."
        )
    sentence = f"Led to any other role ({tried} redirections), no path keeps the loss below {low}."
    return Verdict("rivals", "passed", sentence)


def _merges(
    merges: Sequence[Merge], paths: Sequence[PathResult], combined: Loss, level: float, own: Sequence[Head]
) -> Verdict:
    low = f"{level:.3g}"
    if combined.mean >= level:
        return Verdict("merges", "undetermined", f"Cannot be judged: the circuit itself is not below {low}.")
    if own:
        sentence = f"Nobody can say whether one head could do the work of two: not of {', '.join(map(str, own))}."
        return Verdict("merges", "undetermined", sentence)
    if not merges:
        sentence = (
            "No two heads that are needed can be one: there is one at most, or they lead a role to different places."
        )
        return Verdict("merges", "passed", sentence)
    fewer = [f"{merge} ({merge.loss})" for merge in merges if merge.loss.mean < level]
    near = any(merge.loss.near(level) for merge in merges)
    if fewer:
        sentence = f"Fewer heads would do; the loss stays below {low}: {'; '.join(fewer)}."
        return Verdict("merges", "undetermined", sentence)
    best = merges[0]
    if near:
        sentence = f"Too near to {low} to say whether fewer heads would do, take more examples: {best} ({best.loss})."
        return Verdict("merges", "undetermined", sentence)
    sentence = f"Of {len(merges)} ways to let one head do the work of two none keeps the loss below {low}: the best is "
    sentence += f"{best} ({best.loss})."
    n_needed = len({path.path.head for path in paths if path.needed == "directly"})
    if n_needed > MERGED_HEADS:
        sentence += f" Only the {MERGED_HEADS} of {n_needed} heads were tried that would be missed least."
    return Verdict("merges", "passed", sentence)
