"""Equivalent circuits, in compiled models whose minimal circuits are known.

With all heads replaced nothing looks for the members of pairs, so that a path that joins them is only needed
if it carries a symbol.
"""

from dataclasses import replace

import pytest

from circuits import AttentionPath, BadInput, Circuit, Head, OneHot
from circuits.discovery.equivalence import _Search, equivalence
from circuits.ground_truth.compile import compile_circuit
from retrieval_interp.ground_truth.chains import ChainProblem

ONE, TWO = ChainProblem(1), ChainProblem(2)
LOW, HIGH, BACKUP = (Head(layer, 0) for layer in range(3))
JOIN, ANSWER = OneHot({"pair1.second": "pair1.first"}), OneHot({"query": "pair1.second"})
JOINS = AttentionPath(LOW, "pair1.second", "pair1.first")
ANSWERS, BACKS_UP = (AttentionPath(head, "query", "pair1.second") for head in (HIGH, BACKUP))
PLANTED = Circuit({LOW: JOIN, HIGH: ANSWER})
KNOWN = PLANTED.with_head(BACKUP, OneHot({"pair1.first": "identity"}, "identity"))


@pytest.fixture(scope="module")
def single():
    return compile_circuit(PLANTED, ONE, n_layers=3)


@pytest.fixture(scope="module")
def backed_up():
    return compile_circuit(PLANTED.with_head(BACKUP, ANSWER), ONE, n_layers=3)


def test_a_model_without_a_backup_has_one_circuit(single):
    found = equivalence(single, ONE, KNOWN, n_examples=128)
    assert [one.paths for one in found.circuits] == [{ANSWERS}]
    assert found.decision == "holds"
    assert found.all_sets
    assert found.not_needed == (JOINS,)
    assert found.sentences()[0].startswith("The circuit is the only one")
    assert f"None needs {JOINS} with all heads replaced" in found.sentences()[1]


def test_a_circuit_is_the_only_one_only_if_all_sets_were_run(single):
    """A set can pass although a larger one fails, so what larger sets rule out is not known to fail."""
    found = equivalence(single, ONE, KNOWN, n_examples=128, most_sets=3)
    assert [one.paths for one in found.circuits] == [{ANSWERS}]
    assert (found.all_sets, found.searched_all, found.undecided) == (False, True, ())
    assert found.decision == "undecided"
    assert found.sentences()[0].startswith("No other circuit was found.")


@pytest.mark.parametrize("most_sets", [1024, 7])
def test_a_model_with_a_backup_has_the_two_known_circuits(backed_up, most_sets):
    """All sets are run, or only those that other sets do not rule out."""
    found = equivalence(backed_up, ONE, KNOWN, n_examples=128, most_sets=most_sets)
    assert [one.paths for one in found.circuits] == [{ANSWERS}, {BACKS_UP}]
    assert all(one.loss.mean < 1e-6 and one.loss.n_examples == 128 for one in found.circuits)
    assert (found.decision, found.all_sets, found.searched_all) == ("fails", most_sets == 1024, True)
    assert found.shared == ()
    assert found.in_some == (ANSWERS, BACKS_UP)
    assert [*map(str, found.replacements)] == [f"{ANSWERS} can be replaced with {BACKS_UP}"]
    assert found.sentences()[0].startswith("The circuit is not the only one: 2 circuits of 1 path are minimal")


def test_a_circuit_that_has_a_path_and_its_backup_is_two_circuits(backed_up):
    found = equivalence(backed_up, ONE, PLANTED.with_head(BACKUP, ANSWER), n_examples=128)
    assert [one.paths for one in found.circuits] == [{ANSWERS}, {BACKS_UP}]
    assert found.decision == "fails"


def test_a_symbol_that_comes_by_two_ways_makes_two_circuits():
    """The first member of pair 2 is x1, too: if the pair is joined, the head that fetches x2 brings x1 along."""
    low = OneHot({"pair1.second": "pair1.first", "pair2.second": "pair2.first"})
    circuit = Circuit({LOW: low, HIGH: ANSWER, BACKUP: {"query": "pair2.second"}})
    found = equivalence(compile_circuit(circuit, TWO), TWO, circuit, n_examples=128)
    last = AttentionPath(BACKUP, "query", "pair2.second")
    joins = AttentionPath(LOW, "pair2.second", "pair2.first")
    assert {one.paths for one in found.circuits} == {frozenset({ANSWERS, last}), frozenset({joins, last})}
    assert found.shared == (last,)
    assert found.sentences()[1] == f"All of them have {last}."
    assert found.not_needed == (JOINS,)


def test_a_search_that_is_cut_short_says_so_and_finds_circuits_by_exchange(backed_up):
    found = equivalence(backed_up, ONE, KNOWN, n_examples=128, most_sets=1)
    assert not found.searched_all
    assert "larger sets would have been too many" in found.bound
    assert {ANSWERS} in [one.paths for one in found.circuits]
    assert found.decision == ("fails" if len(found.circuits) > 1 else "undecided")


def test_a_set_that_an_exchange_cannot_decide_leaves_open_what_contains_it(backed_up, monkeypatch):
    """The query's path alone is a circuit. If nobody can tell, the circuit with one more path may not be minimal."""
    decided = _Search._decided

    def in_doubt(self, sets):
        each = zip(sets, decided(self, sets), strict=True)
        return [replace(own, decision="undecided") if one == {ANSWERS} else own for one, own in each]

    monkeypatch.setattr(_Search, "_decided", in_doubt)
    found = equivalence(backed_up, ONE, PLANTED, n_examples=128, most_sets=1)
    assert not found.searched_all
    assert found.undecided == (frozenset({ANSWERS}),)
    with_answer = [one for one in found.circuits if ANSWERS in one.paths]
    assert with_answer
    assert not any(one in found.clear for one in with_answer)


def test_of_two_overlapping_paths_the_circuits_own_stays(backed_up):
    """The circuit leads the query to another role in the backup head: the path that attention shows cannot be added."""
    more = PLANTED.with_head(BACKUP, OneHot({"query": "pair1.first"}))
    found = equivalence(backed_up, ONE, more, n_examples=128)
    assert BACKS_UP in found.left_out
    assert str(BACKS_UP) in found.sentences()[-1]


def test_a_circuit_with_a_high_loss_is_refused(single):
    with pytest.raises(BadInput, match=r"expected one clearly below 0\.05"):
        equivalence(single, ONE, PLANTED.with_head(HIGH, OneHot({"query": "pair1.first"})), n_examples=64)


def test_numbers_and_tables_are_plain(backed_up):
    found = equivalence(backed_up, ONE, KNOWN, n_examples=128)
    document = found.to_json()
    assert document["decision"] == "fails"
    assert document["in_some"] == {str(ANSWERS): 1, str(BACKS_UP): 1}
    assert document["not_needed"] == [str(JOINS)]
    assert found.table()["path"].tolist() == [str(ANSWERS), str(BACKS_UP)]


def test_a_circuit_with_an_undecided_part_may_not_be_minimal(backed_up):
    """By hand: of the two circuits, a part of one is undecided. Then nobody knows whether the other is the only one."""
    found = equivalence(backed_up, ONE, KNOWN, n_examples=128)
    one, other = found.circuits
    doubtful = replace(found, circuits=(one, replace(other, paths=other.paths | {JOINS})), undecided=(other.paths,))
    assert doubtful.clear == (one,)
    assert doubtful.decision == "undecided"
    assert [circuit["has_undecided_part"] for circuit in doubtful.to_json()["circuits"]] == [False, True]
    assert "1 of the 2 contain one, and may not be minimal" in " ".join(doubtful.sentences())
