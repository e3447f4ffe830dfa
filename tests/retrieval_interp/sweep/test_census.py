import json
from pathlib import Path

import pytest

from circuits import BadInput, Circuit, Head, OneHot, Previous, load_circuit
from retrieval_interp.census.census import FOUND, Census, Examined, Finding
from retrieval_interp.census.census_page import write_census
from retrieval_interp.census.census_table import UNIQUE, sentences, table
from retrieval_interp.census.properties import Held, properties, rules
from retrieval_interp.cli import main
from retrieval_interp.models.build import build
from retrieval_interp.models.library import load
from retrieval_interp.models.model_dir import CIRCUIT, WEIGHTS
from retrieval_interp.models.presets import preset
from retrieval_interp.models.provenance import metadata
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Result, Store, Trained
from tests.browser import opened

WALKS = Circuit(
    {
        Head(0, 0): Previous(),
        Head(1, 0): OneHot({"query": "pair1.second"}),
        Head(3, 0): OneHot({"query": "pair2.second"}),
    }
)
DOUBLES = Circuit(  # pair 2 stands before pair 1, which can take over what it knows
    {
        Head(0, 0): OneHot({"pair1.second": "pair1.first"}),
        Head(1, 0): OneHot({"pair2.second": "pair2.first"}),
        Head(2, 0): OneHot({"pair1.second": "pair2.second"}),
        Head(3, 0): OneHot({"query": "pair1.second"}),
    }
)


@pytest.fixture
def by_hand() -> list[Examined]:
    """Six models with D = 2: three that walk, one that doubles, one lost, one unsolved."""
    looked = {"unablated": 0.004, "explains": True, "content": 2, "divided": 1}
    unique = [("holds", 1, 3), ("fails", 4, 0), ("fails", 2, 1)]
    judged = {"accounts for the output": "holds", "complete": "undecided", "minimal": "holds"}
    statements = [judged, judged, {**judged, "minimal": "fails"}]
    walking = [
        Examined(Finding("tiny", seed, 0.05, True, True, seed != 2, statements[seed], 0.01, **looked, **found), WALKS)
        for seed, found in enumerate(dict(zip(UNIQUE, one, strict=True)) for one in unique)
    ]
    return [
        *walking,
        Examined(Finding("tiny", 3, 0.05, True, True, True, loss=0.02, unablated=0.004, content=3), DOUBLES),
        Examined(Finding("tiny", 4, 0.05, True, loss=0.3), None),
        Examined(Finding("tiny", 5, 0.05, False), None),
    ]


def test_the_table_says_of_every_circuit_what_it_does(by_hand: list[Examined]) -> None:
    rows = table(by_hand).set_index("seed")
    assert rows.loc[0, ["heads", "layers", "paths", "least"]].tolist() == [3, "0 1 3", 3, 3]
    assert rows.loc[0, ["joins_first", "walks", "flow_check"]].tolist() == [True, True, True]
    assert rows.loc[3, ["heads", "layers", "paths", "least"]].tolist() == [4, "0 1 2 3", 4, 3]
    assert rows.loc[3, ["joins_first", "walks", "flow_check"]].tolist() == [True, False, True]
    assert rows.loc[4:, "heads"].isna().all()
    assert rows.loc[1, [*UNIQUE]].tolist() == ["fails", 4, 0]
    assert rows.loc[3:, [*UNIQUE]].isna().all(axis=None)
    assert rows["canonical_form"].nunique() == 2
    assert rows["fails"].tolist() == ["", "", "minimal", "", "", ""]
    assert rows["undecided"].tolist() == ["complete"] * 3 + [""] * 3


def test_the_sentences_count(by_hand: list[Examined]) -> None:
    solved, judged, looking, heads, first, walks, kinds, unique = sentences(table(by_hand))
    assert "of 3 circuits, 1 are the only one, 2 are not, and 0 are undecided" in unique
    assert "for 2 models, up to 4 for one; for 1 of these no path is in all" in unique
    assert "minimal 1" in judged
    assert "complete 3" in judged
    assert "content heads: 2 in 3, 3 in 1. 3 of 9 have paths on some slots only. 3 of 4" in looking
    assert "3 of 4 [0.30, 0.95] have a loss of at most twice" in solved
    assert solved.startswith("tiny: 5 of 6 [0.44, 0.97] models solve their task.")
    assert "for 4 of these" in solved
    assert "and 3 of 4 [" in solved
    assert "useful heads: 3 in 3, 4 in 1. 3 of 4" in heads
    assert "in 4 of 4" in first
    assert "in 3 of 4" in walks
    assert "2 canonical forms; the most frequent, in 3 circuits: pair1.second -> pair1.first, pair2.second" in kinds


def test_properties_are_counted_among_the_models_that_solve_their_task(by_hand: list[Examined]) -> None:
    rows = properties(by_hand).set_index("property")
    counted = rows[["have_it", "undecided", "solved"]].T.to_dict("list")
    assert counted["the circuit explains the model"] == [3, "", 5]
    assert counted["it holds"] == [0, "0 1 3", 5]  # what is undecided does not hold
    assert counted["it is minimal"] == [2, "3", 5]
    assert counted["it is complete"] == [0, "0 1 2 3", 5]
    assert counted["its first layer with paths only joins the members of pairs"] == [4, "", 5]
    assert counted["only the query fetches, one symbol after another"] == [3, "", 5]
    assert counted["some content head has paths on some slots only"] == [3, "", 5]
    assert counted["it has the fewest heads that information flow allows"] == [3, "", 5]
    assert counted["it is the only one"] == [1, "3", 5]
    assert properties(by_hand[5:]).empty
    rule, exception, luck, undecided = rules(properties(by_hand))
    assert "90%" in rule
    assert (rule.endswith(": none."), exception.endswith(": none.")) == (True, True)
    assert luck.count(" of 5 ") == 7
    assert "it is complete (0 of 5 [0.00, 0.43], the interval reaches over the limit, undecided: seeds 0 1" in undecided


@pytest.mark.parametrize(
    ("have_it", "unknown", "verdict", "clear"),
    [
        *((50, 0, "rule", True), (45, 0, "rule", False), (45, 5, "rule", False), (44, 0, "luck", False)),
        *((44, 1, "undecided", False), (25, 19, "luck", True), (5, 0, "exception", False), (0, 50, "undecided", True)),
    ],
)
def test_a_property_of_nine_in_ten_models_is_a_rule_and_undecided_models_can_leave_it_open(
    have_it: int, unknown: int, verdict: str, clear: bool
) -> None:
    held = Held((True,) * have_it + (None,) * unknown + (False,) * (50 - have_it - unknown))
    assert (held.number, held.verdict, held.clear) == (have_it, verdict, clear)


@pytest.mark.slow
def test_the_page_shows_every_model_and_kind_offline(by_hand: list[Examined], tmp_path: Path) -> None:
    with opened(write_census(by_hand, 0, tmp_path, "by hand")) as (page, complaints):
        assert page.locator("#models tr").count() == 1 + 6
        assert page.locator("#canonical-forms tr").count() == 1 + 2
        assert page.locator("#properties tr").nth(1).locator("td").nth(2).text_content() == "3 of 5"
        assert page.locator("#canonical-forms tr").nth(1).locator("td").nth(1).text_content() == "3"
        assert page.locator("#heads .points path").count() == 2
        assert "task not solved" in (page.locator("#models").text_content() or "")
        columns = page.locator("#models tr").first.locator("th").all_inner_texts()
        each = [page.locator("#models tr").nth(row).locator("td") for row in (2, 4, 6)]
        place = columns.index("the only circuit?")
        assert [cells.count() for cells in each] == [len(columns)] * 3
        assert [cells.nth(place).inner_text() for cells in each] == ["fails", "", ""]
        assert complaints == []
    assert len((tmp_path / "census.csv").read_text().splitlines()) == 2 + 6


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two models of one preset: the trained one of the data folder, and one that has learned nothing."""
    store, chosen = Store(tmp_path / "store"), preset("induction")
    learned = load("induction").model.state_dict()
    untrained = build(chosen.task, chosen.config, 1).state_dict()
    for seed, weights in enumerate((learned, untrained)):
        result = Result("induction", seed, {"x1": 0.1}, {"x1": 100}, 1.0, "cpu")
        store.add(Trained(result, "{}\n", weights))
    return store


def census(store: Store, capsys: pytest.CaptureFixture[str], threshold: str = "0.1") -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["study", "census", str(store.folder), "--threshold", threshold, "--json"])
    out, errors = capsys.readouterr()
    return ended.value.code, out, errors


@pytest.mark.slow
def test_the_command_finds_the_circuit_of_every_model_that_has_one(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = census(store, capsys)
    document = json.loads(out)
    first, second = document["rows"]
    assert (code, document["failures"]) == (0, [])
    assert (first["solved"], first["found"], first["heads"]) == (True, True, 2)
    assert (second["solved"], second["found"], second["heads"]) == (False, False, None)
    (path,) = load_circuit(store.path(Run("induction", 0)) / CIRCUIT).paths
    assert str(path) == "L1H0 query -> pair1.second"  # what joins the pairs is an average, a path of a fixed pattern
    assert not (store.path(Run("induction", 1)) / CIRCUIT).exists()
    assert first["only_one"] in ("holds", "fails", "undecided")
    assert first["equivalents"] >= 1
    assert (second["only_one"], second["equivalents"], second["shared"]) == (None, None, None)


@pytest.mark.slow
def test_a_finding_says_of_which_weights_and_holds_for_one_circuit_alone(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert census(store, capsys)[0] == 0
    folder = store.path(Run("induction", 0))
    finding = json.loads((folder / FOUND).read_text())
    assert finding["metadata"] == metadata("induction, seed 0", load(folder).model)
    assert finding["circuit_sha256"] == load_circuit(folder / CIRCUIT).digest
    (folder / WEIGHTS).write_bytes((store.path(Run("induction", 1)) / WEIGHTS).read_bytes())
    code, _, errors = census(store, capsys)
    assert code == 2
    assert f"{folder / FOUND}: belongs to other weights" in errors
    (folder / WEIGHTS).unlink()
    (folder / CIRCUIT).write_text("heads:\n  L1H0: {query: pair1.first}\n")
    code, _, errors = census(store, capsys)
    assert code == 2
    assert f"{folder / CIRCUIT}: differs from the circuit that was found" in errors


def test_what_was_examined_is_not_examined_again(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in store.runs:
        Census(store, 0.1).add(Examined(Finding(run.preset, run.seed, 0.1, solved=False), None))
    monkeypatch.setattr("circuits.discover", None, raising=False)
    code, out, _ = census(store, capsys)
    assert (code, len(json.loads(out)["rows"])) == (0, 2)


def test_models_that_were_examined_may_lose_their_weights_and_their_sweep_goes_on(
    store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for run in store.runs:
        Census(store, 0.1).add(Examined(Finding(run.preset, run.seed, 0.1, solved=False), None))
    (store.path(Run("induction", 0)) / WEIGHTS).unlink()
    code, out, _ = census(store, capsys)
    assert (code, [row["seed"] for row in json.loads(out)["rows"]]) == (0, [0, 1])
    plan = tmp_path / "plan.yaml"
    plan.write_text("seeds: 2\npresets: [induction]\n")
    with pytest.raises(SystemExit) as ended:
        main(["study", "sweep", str(plan), "--weights", "--out", str(store.folder)])
    assert ended.value.code == 0


def test_a_model_that_cannot_be_examined_is_a_failure_and_the_others_go_on(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (store.path(Run("induction", 0)) / "model.safetensors").write_bytes(b"cut off")
    code, out, errors = census(store, capsys)
    assert code == 1
    assert [row["seed"] for row in json.loads(out)["rows"]] == [1]
    assert "induction, seed 0 failed: " in errors
    assert "not a whole safetensors file" in errors


OF_ANOTHER = '{"preset": "tiny", "seed": 0, "threshold": 0.1, "solved": true}'
WITH_ANOTHER = '{"preset": "induction", "seed": 0, "threshold": 0.05, "solved": true}'
SOLVED = '{"preset": "induction", "seed": 0, "threshold": 0.1, "solved": true'


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", '{"preset": "induction"}', OF_ANOTHER, WITH_ANOTHER, SOLVED.replace("0.1", '"0.1"') + "}"),
        *(SOLVED + field for field in (', "found": "no"}', ', "loss": "x"}', ', "loss": NaN}', ', "heads": 3}')),
        *(SOLVED.replace("true", "false") + ', "found": true}', SOLVED + ', "loss": 0.1, "holds": true}'),
        *(SOLVED + "}", SOLVED + ', "loss": -0.1}', SOLVED + ', "loss": 0.1, "evaluations": -1}'),
        SOLVED + ', "loss": 0.1, "circuit_sha256": "0"}',
        *(SOLVED + f', "loss": 0.1, "statements": {own}}}' for own in ('{"minimal": "yes"}', '{"minimum": "holds"}')),
    ],
)
def test_a_damaged_finding_is_named(store: Store, capsys: pytest.CaptureFixture[str], text: str) -> None:
    for run in store.runs:
        (store.path(run) / FOUND).write_text(text)
    code, out, errors = census(store, capsys)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert "census.json: " in errors
    assert "remove census.json to examine the model again" in errors


def test_a_store_without_weights_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "store")
    store.add(Trained(Result("tiny", 0, {"x1": 0.1, "x2": 0.1}, {"x1": 1, "x2": 2}, 1.0, "cpu"), "{}\n", None))
    code, _, errors = census(store, capsys)
    assert code == 2
    assert f"{store.folder}: no run has weights; sweep with --weights" in errors
    (store.folder / "tiny" / "notes").mkdir()
    code, _, errors = census(store, capsys)
    assert code == 2
    assert "notes: not a run" in errors
    (store.folder / "tiny" / "notes").rmdir()
    (store.folder / "huge" / "seed-0000").mkdir(parents=True)
    with pytest.raises(BadInput, match="store/huge: not the name of a preset"):
        _ = store.runs


@pytest.mark.parametrize("threshold", ["0", "-1", "nan", "inf"])
def test_a_threshold_that_is_none_is_refused_before_anything_is_searched(
    store: Store, capsys: pytest.CaptureFixture[str], threshold: str
) -> None:
    code, out, errors = census(store, capsys, threshold)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert "expected a number above 0" in errors


def found_in(store: Store, circuit: str) -> None:
    """Let a model have been examined, and this be its circuit."""
    folder = store.path(Run("induction", 0))
    (folder / FOUND).write_text(SOLVED + ', "found": true, "holds": true, "loss": 0.01}')
    (folder / CIRCUIT).write_text(circuit)


@pytest.mark.parametrize(
    ("circuit", "message"),
    [
        ("heads: {}", "no path"),
        ("heads:\n  L0H0: {pair7.second: pair7.first}\n", "unknown role 'pair7.second'"),
        ("heads:\n  L5H0: {query: pair1.first}\n", "L5H0 does not exist"),
        ("heads: [", "not YAML"),
    ],
)
def test_a_circuit_that_cannot_be_the_models_is_named(
    store: Store, capsys: pytest.CaptureFixture[str], circuit: str, message: str
) -> None:
    found_in(store, circuit)
    code, out, errors = census(store, capsys)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert str(store.path(Run("induction", 0)) / CIRCUIT) in errors
    assert message in errors


def test_a_run_of_other_settings_is_not_examined(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    config = store.path(Run("induction", 1)) / "config.json"
    config.write_text(config.read_text().replace('"steps": 3000', '"steps": 7'))
    code, _, errors = census(store, capsys)
    assert code == 2
    assert "other settings" in errors


def test_runs_without_weights_are_counted(by_hand: list[Examined]) -> None:
    first, *_ = sentences(table(by_hand), left_out=3)
    assert first.startswith("3 runs of this store have no weights")


def test_what_is_no_store_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["study", "census", str(tmp_path)])
    assert ended.value.code == 2
    assert f"{tmp_path}: is not the store of a sweep" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
