from circuits import Head
from circuits.averages import Averages
from circuits.discovery.observed_paths import ObservedPaths
from retrieval_interp import load


def test_heads_that_look_at_the_lines_of_other_chains_are_seen_to_do_so():
    model, task, _ = load("equations")
    examples = task.examples(64, seed=3)
    three = [Head(4, head) for head in range(3)]
    average = Averages.of(model, examples).patterns
    seen = ObservedPaths(model, examples, {head: average[head] for head in three})
    looked = {number: set() for number in range(4)}  # at which lines, by the number of the chain's own variable
    for head in three:
        for (source, target), row in seen.rows[head].items():
            if source == "pair1.second":
                assert row.condition.group == "variable"
                for number in row.condition.labels:
                    looked[number].add(target)
    # Each of the three looks at another one of the three lines that are not the chain's own.
    others = {number: {f"{name}.second" for name in "efgh" if name != "efgh"[number]} for number in range(4)}
    assert looked == others
