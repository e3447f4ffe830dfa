import json
import shutil
from fnmatch import fnmatch

import huggingface_hub
import pytest
from huggingface_hub import ModelCard, RepoUrl

from retrieval_interp import load
from retrieval_interp.models.library import data_folder
from retrieval_interp.publishing import sharing
from retrieval_interp.publishing.card import model_card
from tests.refusals import assert_refused


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The Hub as a local folder: one folder for each repository."""

    class Api:
        def create_repo(self, repo_id, exist_ok):
            (tmp_path / "hub" / repo_id).mkdir(parents=True, exist_ok=exist_ok)
            return RepoUrl(f"https://huggingface.co/{repo_id}")

        def upload_file(self, path_or_fileobj, path_in_repo, repo_id):
            (tmp_path / "hub" / repo_id / path_in_repo).write_bytes(path_or_fileobj)

        def upload_folder(self, folder_path, repo_id, allow_patterns):
            for path in folder_path.iterdir():
                if any(fnmatch(path.name, pattern) for pattern in allow_patterns):
                    shutil.copy(path, tmp_path / "hub" / repo_id / path.name)

    def snapshot_download(repo_id, allow_patterns):
        if not (tmp_path / "hub" / repo_id).is_dir():
            raise FileNotFoundError(f"404: {repo_id}\nmore lines")
        return str(tmp_path / "hub" / repo_id)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return tmp_path / "hub"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(
        data_folder() / "induction", tmp_path / "induction", ignore=shutil.ignore_patterns("README.md")
    )


def test_what_was_pushed_loads_by_its_address(hub, folder):
    (folder / "private-notes.txt").write_text("not to be shared")
    assert sharing.push(folder, "hf:someone/induction") == "https://huggingface.co/someone/induction"
    shared = {path.name for path in (hub / "someone" / "induction").iterdir()}
    assert "private-notes.txt" not in shared
    expected = {"config.json", "model.safetensors", "circuit.yaml", "circuit.patterns.safetensors", "log.jsonl"}
    assert shared >= {*expected, "README.md"}
    (model, task, circuit), (own, _, _) = load("hf:someone/induction"), load(folder)
    examples = task.examples(4, 0)
    assert model(examples.inputs).equal(own(examples.inputs))
    assert circuit is not None
    card = ModelCard.load(hub / "someone" / "induction" / "README.md")
    assert card.data.library_name == "transformer-lens"
    assert 'load("hf:someone/induction")' in card.text


def test_without_a_repository_or_a_connection_the_message_is_one_line(hub, monkeypatch, folder):
    assert_refused(r"hf:nobody/nothing: cannot be downloaded \(404: nobody/nothing\)$", load, "hf:nobody/nothing")

    class Api:
        def create_repo(self, repo_id, exist_ok):
            raise Exception("Name or service not known\nmore lines")  # what an HTTP library raises is no OSError

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert_refused(r"hf:a/b: cannot be uploaded \(Name or service not known\)$", sharing.push, folder, "hf:a/b")


def test_nothing_is_pushed_of_a_folder_without_a_whole_model(hub, folder):
    (folder / "model.safetensors").write_bytes(b"cut off")
    assert_refused("not a whole safetensors file", sharing.push, folder, "hf:someone/broken")
    assert_refused("expected an address like hf:owner/name", sharing.push, folder, "someone/induction")
    assert not hub.exists()


def test_the_card_says_how_the_model_was_made_its_losses_and_its_circuit():
    folder = data_folder() / "transformer_a"
    config, report = (json.loads((folder / name).read_text()) for name in ("config.json", "report.json"))
    card = model_card(folder, "transformer_a")
    assert config["made"]["command"] in card
    loss = config["made"]["exported"][f"loss_{config['made']['exported']['precision']}"]
    assert f"{loss['mean']:.5f} ± {loss['standard_error']:.5f}" in card
    assert f"({', '.join(f'{name} {value:.4f}' for name, value in loss['components'].items())})" in card
    assert f"the circuit **{report['decision']}**" in card
    assert "has paths in 3 layers" in card
    assert "takes at least 3 layers (the paper's bound, log3(2D), is 1.63)" in card
    assert all(f"| L{layer}H0 |" in card for layer in range(12))
    assert "; stopped at step 7200;" in model_card(data_folder() / "paper/figure4_ic_4_seed_0", "four_layers")
    sentences = [verdict["sentence"] for statement in report["statements"] for verdict in statement["verdicts"]]
    assert all(sentence in card for sentence in sentences)


def test_a_model_of_unknown_origin_gets_a_card_too(folder):
    config = json.loads((folder / "config.json").read_text())
    del config["made"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "circuit.yaml").unlink()
    (folder / "report.json").unlink()
    card = model_card(folder, "found/somewhere")
    assert "# somewhere" in card
    assert "Not known yet" in card


MADE = {"precision": "float32", "loss_float32": {"mean": 1}}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", {"made": {"exported": {"precision": 3}}}, "lacks what a card needs"),
        ("config.json", {"made": {"exported": MADE}}, "lacks what a card needs"),
        ("report.json", {"schema_version": 8}, "not a report of `validate`"),
        ("report.json", {"schema_version": 7}, "a report of schema 7"),
    ],
)
def test_a_config_or_report_that_lacks_something_is_one_line(folder, file, content, message):
    old = json.loads((folder / "config.json").read_text()) if file == "config.json" else {}
    (folder / file).write_text(json.dumps({**old, **content}))
    assert_refused(message, model_card, folder, "induction")


def test_a_model_whose_circuit_was_not_found_says_so_on_its_card(folder):
    (folder / "circuit.yaml").unlink(missing_ok=True)
    report = json.loads((data_folder() / "transformer_a" / "report.json").read_text())
    patterns = "circuit.patterns.safetensors"
    (folder / patterns).write_bytes((data_folder() / "transformer_a" / patterns).read_bytes())
    report["combined"]["loss"]["mean"] = report["discovery"]["combined"]["loss"]["mean"] = 0.371
    report["discovery"]["combined"]["decision"] = "above"  # so it was not found
    (folder / "report.json").write_text(json.dumps(report))
    card = model_card(folder, "found/somewhere")
    assert f"tried {len(report['discovery']['trials'])} changes" in card
    assert "a loss of 0.37 on 1024 fresh examples" in card


@pytest.mark.parametrize("name", [path.parent.name for path in data_folder().glob("*/config.json")])
def test_the_card_of_a_shipped_model_is_what_is_written_today(name):
    folder = data_folder() / name
    assert (folder / "README.md").read_text(encoding="utf-8") == model_card(folder, name)
