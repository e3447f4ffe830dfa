"""The command that says whether a circuit is the only one, and its page."""

import json

import pytest

from circuits import Circuit, Head, OneHot
from circuits.discovery.equivalence import equivalence
from circuits.ground_truth.compile import compile_circuit
from retrieval_interp.cli import main
from retrieval_interp.experiments.equivalence_page import write_equivalence
from retrieval_interp.ground_truth.chains import ChainProblem
from tests.browser import opened


@pytest.fixture(scope="module")
def found():
    """A path and its backup."""
    heads = {"L0H0": {"pair1.second": "pair1.first"}, "L1H0": {"query": "pair1.second"}}
    circuit = Circuit({**heads, "L2H0": {"query": "pair1.second"}})
    known = Circuit(heads).with_head(Head(2, 0), OneHot({"pair1.first": "identity"}, "identity"))
    return equivalence(compile_circuit(circuit, ChainProblem(1)), ChainProblem(1), known, n_examples=64)


@pytest.mark.slow
def test_the_page_shows_every_path_of_every_circuit_without_a_network(tmp_path, found):
    page = write_equivalence(found, "micro", tmp_path, "retrieval-interp study ...")
    assert (tmp_path / "equivalence.csv").read_text().splitlines()[0] == "# retrieval-interp study ..."
    with opened(page) as (page, complaints):
        assert page.locator("#sentences li").count() == len(found.sentences())
        assert page.locator("#paths-table tr").count() == 1 + 3
        assert page.locator("#paths-table").inner_text().count("1 of 2") == 2
        assert page.locator("#circuits .main-svg").count() > 0
        assert complaints == []


@pytest.mark.slow
def test_the_command_prints_one_document_and_its_exit_code_tells_the_decision(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["study", "equivalence", "induction", "--examples", "256", "--threshold", "0.1", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert ended.value.code == (0 if document["decision"] == "holds" else 1)
    assert document["command"] == "retrieval-interp study equivalence induction --examples 256 --seed 0 --threshold 0.1"


def test_a_circuit_with_a_high_loss_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["study", "equivalence", "induction", "--examples", "64", "--threshold", "0.001"])
    assert ended.value.code == 2
    assert "expected one clearly below 0.001" in capsys.readouterr().err
