"""Same loss, another circuit: all minimal circuits of a model that are about as small as the smallest one.

A circuit is a set of candidate paths: those of a known circuit, and those that attention shows. All heads are replaced.
It counts if its loss is below the threshold by more than three standard errors, and if no smaller set that does is part
of it. So of a path and its backup, each makes a circuit of its own.

Sets are run by size, the smallest first. If there are few sets, all are run. If there are many, the sets that lack one
or two of all candidates are run first. If such a set fails, no circuit lacks these paths: this takes for granted that a
set fails if a set that contains it does. What then is still possible is run, up to a number of sets. If there would be
more, the search goes on from the known circuit: paths that are not needed are removed, one path is exchanged for
another, and so on from every circuit that is found. Then there may be circuits that were not found, and a circuit that
was found may contain a smaller one that lacks several of its paths at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from circuits.checks.content_or_position import mean_examples, mean_patterns
from circuits.circuit import AttentionPath, Circuit
from circuits.discovery.candidate_paths import CandidatePaths
from circuits.discovery.equivalence_result import Equivalence, EquivalentCircuit, Paths
from circuits.discovery.observed_paths import ObservedPaths
from circuits.entrance import entrance
from circuits.errors import BadInput, whole
from circuits.losses.loss import Loss
from circuits.losses.sample import Sample, stream_seed
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.model.transformer import Transformer
from circuits.problem import Problem
from circuits.utils.progress import Progress, shown

MORE = 2  # paths that a circuit may have more than the smallest one
MOST_SETS = 1024  # sets of paths that are run, without those that rule out others
LISTED = 10**6  # sets that are looked at before any is run


@entrance
def equivalence(
    model: Transformer,
    problem: Problem,
    circuit: Circuit,
    *,
    n_examples: int = 512,
    threshold: float = 0.05,
    seed: int = 0,
    more: int = MORE,
    most_sets: int = MOST_SETS,
    progress: Progress | None = None,
) -> Equivalence:
    """Find all minimal circuits with a loss below the threshold, and say whether the given one is the only one.

    Args:
        model: any HookedTransformer or TransformerBridge.
        problem: the model's task; all examples have the same length.
        circuit: a circuit of the model, such as discovery finds; heads that it does not name get their average pattern.
        n_examples: the number of examples of every loss; clear ones take fewer.
        threshold: a loss below it counts as low; the paper uses 0.05.
        seed: the seed of all examples.
        more: the most paths that a circuit may have more than the smallest one.
        most_sets: the most sets of paths to run; the result says if there were more.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: the circuit does not fit the model, or its loss with all heads replaced is not clearly below the
            threshold; or a number is out of range.
    """
    more, most_sets = whole("the number of more paths", more, 0, 10), whole("the most sets", most_sets, 1, 10**6)
    sample = Sample(problem, n_examples, stream_seed(seed, "equivalence"), next(model.parameters()).device)
    test = SequentialTest(model, problem, sample, threshold)
    circuit.check(sample.roles, model.cfg.n_layers, model.cfg.n_heads)
    with shown(progress, "equivalent circuits") as progress:
        means = mean_patterns(model, problem, seed)
        complete = Circuit({**means, **circuit.heads})
        (loss,) = test.measure([complete])
        if loss.mean >= threshold or loss.near(threshold):
            raise BadInput(
                f"the circuit's loss with all heads replaced is {loss}; expected one clearly below {threshold:g}"
            )
        progress(0.05)
        observed = ObservedPaths(model, mean_examples(model, problem, seed), means, complete.useful_heads)
        search = _Search(test, CandidatePaths(complete, observed, sample.roles), more, most_sets)
        progress(0.1)
        search.run(progress)
        found = search.result(loss)
        progress(1.0)
    return found


class _Search:
    """The search; ``found`` and ``open`` are the sets whose loss is below the threshold, or too close to it."""

    def __init__(self, test: SequentialTest, candidates: CandidatePaths, more: int, most_sets: int) -> None:
        self.test, self.candidates, self.more, self.most_sets = test, candidates, more, most_sets
        self.found: list[Paths] = []
        self.open: list[Paths] = []
        self.all_sets = 2 ** len(candidates.paths) <= most_sets
        self.n_sets, self.searched_to, self.searched_all = 0, 0, True
        self.every = frozenset(candidates.paths) if self.all_sets else self._most()

    def run(self, progress: Progress) -> None:
        """Run the sets by size, until they are larger than the smallest circuit by more than ``more``."""
        cuts = [] if self.all_sets else self._cuts()
        left = self.most_sets
        for size in range(len(self.every) + 1):
            if self.found and size > len(self.found[0]) + self.more:
                break
            sets = self._sets(size, cuts)
            if sets is None or len(sets) > left:
                self.searched_all = False
                self._exchange(left)
                break
            for paths, decided in zip(sets, self._decided(sets), strict=True):
                if decided.decision != "above":
                    (self.found if decided.decision == "below" else self.open).append(paths)
            left -= len(sets)
            self.searched_to = size
            progress(0.1 + 0.9 * size / len(self.every))

    def _exchange(self, left: int) -> None:
        """Find circuits by exchange, from the known circuit on: remove what is not needed, put one path for another."""
        queue = [self._shrunk(frozenset(self.candidates.own))]
        seen: set[Paths] = set()
        while queue and left > 0:
            start = queue.pop(0)
            self.found.append(start)
            new = dict.fromkeys(
                start - {gone} | {added} for gone in sorted(start) for added in sorted(self.every - start)
            )
            sets = [one for one in new if one not in seen and not any(own <= one for own in self.found)][:left]
            seen.update(sets)
            left -= len(sets)
            for paths, decided in zip(sets, self._decided(sets), strict=True):
                if decided.decision == "undecided":
                    self.open.append(paths)
                if decided.decision == "below":
                    shrunk = self._shrunk(paths)
                    if shrunk not in (*self.found, *queue):
                        queue.append(shrunk)
        found = [*dict.fromkeys([*self.found, *queue])]
        self.found = [one for one in found if not any(other < one for other in found)]
        fewest = min(map(len, self.found))
        self.found = [one for one in self.found if len(one) <= fewest + self.more]

    def _shrunk(self, paths: Paths) -> Paths:
        """Remove paths, each time the one without which the loss is lowest, while the loss is below the threshold."""
        while paths:
            fewer = [paths - {path} for path in sorted(paths)]
            decided = [*zip(self._decided(fewer), fewer, strict=True)]
            self.open += [one for own, one in decided if own.decision == "undecided"]
            low = [(own.loss.mean, one) for own, one in decided if own.decision == "below"]
            if not low:
                break
            paths = min(low, key=lambda one: one[0])[1]
        return paths

    def _sets(self, size: int, cuts: Sequence[Paths]) -> list[Paths] | None:
        """Return the sets of a size that have a path of every cut and contain no circuit; None if they are too many."""
        needed = frozenset[AttentionPath]().union(*(cut for cut in cuts if len(cut) == 1))
        free = sorted(self.every - needed)
        if size < len(needed):
            return []
        if comb(len(free), size - len(needed)) > LISTED:
            return None
        sets = (needed.union(chosen) for chosen in combinations(free, size - len(needed)))
        return [one for one in sets if all(one & cut for cut in cuts) and not any(own <= one for own in self.found)]

    def _cuts(self) -> list[Paths]:
        """Return the single paths, and the pairs of other paths, without which all others together clearly fail."""
        single = self._failing(frozenset([path]) for path in self.every)
        free = sorted(self.every.difference(*single))
        return [*single, *self._failing(map(frozenset, combinations(free, 2)))]

    def _failing(self, cuts: Iterable[Paths]) -> list[Paths]:
        """Return those cuts without which all others fail; the known circuit does not, so it has a path of each."""
        tried = [cut for cut in cuts if not cut.isdisjoint(self.candidates.own)]
        decided = self._decided([self.every - cut for cut in tried])
        return [cut for cut, one in zip(tried, decided, strict=True) if one.decision == "above"]

    def _most(self) -> Paths:
        """Return all candidates, or if these together fail, the circuit's paths and all that can be added to them."""
        every = frozenset(self.candidates.paths)
        if self._decided([every])[0].decision == "below":
            return every
        chosen = frozenset(self.candidates.own)
        for path in self.candidates.paths:
            if self._decided([chosen | {path}])[0].decision == "below":
                chosen |= {path}
        return chosen

    def _decided(self, sets: Sequence[Paths]) -> list[DecidedLoss]:
        """Return for every set the decision on it, in the best of its ways."""
        each = [self.candidates.ways(one) for one in sets]
        decided = self.test.test({(place, way): own for place, ways in enumerate(each) for way, own in ways.items()})
        self.n_sets += len(sets)
        rank = ("below", "undecided", "above")
        return [
            min((decided[place, way] for way in ways), key=lambda one: (rank.index(one.decision), one.loss.mean))
            for place, ways in enumerate(each)
        ]

    def _best(self, paths: Paths) -> EquivalentCircuit:
        """Return a set as a circuit, in the way with the lowest loss."""
        ways = [*self.candidates.ways(paths).values()]
        loss, circuit = min(zip(self.test.measure(ways), ways, strict=True), key=lambda one: one[0].mean)
        return EquivalentCircuit(paths, circuit, loss)

    def result(self, own_loss: Loss) -> Equivalence:
        """Return the result; ``own_loss`` is the loss of the known circuit."""
        circuits = sorted(map(self._best, self.found), key=lambda one: (len(one.paths), one.loss.mean))
        excluded = (path for path in self.candidates.paths if path not in self.every)
        return Equivalence(
            own=self.candidates.own,
            circuits=tuple(circuits),
            undecided=tuple(one for one in dict.fromkeys(self.open) if not any(own <= one for own in self.found)),
            candidates=tuple(path for path in self.candidates.paths if path in self.every),
            left_out=(*self.candidates.left_out, *excluded),
            own_loss=own_loss,
            threshold=self.test.threshold,
            more=self.more,
            all_sets=self.all_sets,
            searched_to=self.searched_to,
            searched_all=self.searched_all,
            n_sets=self.n_sets,
            n_evaluations=self.test.n_evaluations,
        )
