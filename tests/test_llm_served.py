import subprocess
import sys
from pathlib import Path

import pytest
import torch
from inspect_ai.model import get_model

from circuits import BadInput
from circuits.files import write_atomically
from circuits.statistics import Interval
from retrieval_interp.checkpoints import CONFIG, WEIGHTS, config_json, save_tensors
from retrieval_interp.equations_task import EquationsTask
from retrieval_interp.language import language_model
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.run import ask, chosen
from retrieval_interp.model import build
from retrieval_interp.presets import Architecture
from tests.llm_servers import Oracle, oracle_server, transformers_server, write_random_model


def assert_at_chance(logs: Path) -> None:
    row = results(logs_in(logs)).iloc[0].to_dict()
    assert (row["exhausted"], row["failed"]) == (0, 0), row
    interval = Interval.of_share(row["right"], row["asked"], level=0.999)
    assert interval.low <= row["chance"] <= interval.high, row


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    write_random_model(folder)
    return folder


def test_a_random_model_on_a_real_server_comes_to_chance(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_API_KEY", "none")
    with transformers_server(random_model) as address:
        monkeypatch.setenv("LOCAL_BASE_URL", address)
        tasks = chosen(["equations"], [2], samples=24, chains=4, seed=0, attempts=200)
        model = f"openai-api/local/{random_model}"
        assert ask(tasks, [model], tmp_path, quiet=True, max_tokens=1, temperature=1.0).missing is None
    assert_at_chance(tmp_path)


def test_a_random_local_hugging_face_model_comes_to_chance(random_model: Path, tmp_path: Path) -> None:
    model = get_model("hf/random", model_path=str(random_model), device="cpu", batch_size=8, memoize=False)
    tasks = chosen(["equations"], [2], samples=20, chains=4, seed=0, attempts=200)
    assert ask(tasks, [model], tmp_path, quiet=True, max_tokens=1, temperature=1.0).missing is None
    assert_at_chance(tmp_path)


def test_an_oracle_on_a_server_is_always_right_whatever_its_rate_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_API_KEY", "none")
    with oracle_server() as address:
        monkeypatch.setenv("ORACLE_BASE_URL", address)
        tasks = chosen(["equations", "lives_with", "kingdoms", "functions", "relatives"], [3], 6, 4, 0, 3)
        assert ask(tasks, ["openai-api/oracle/any"], tmp_path, quiet=True).missing is None
    table = results(logs_in(tmp_path))
    assert table["right"].tolist() == [6] * 5
    assert Oracle.asked > 30


def test_a_server_that_is_not_there_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOWHERE_API_KEY", "none")
    monkeypatch.setenv("NOWHERE_BASE_URL", "http://127.0.0.1:9/v1")
    tasks = chosen(["kingdoms"], [1], 1, 4, 0, 1)
    missing = ask(tasks, ["openai-api/nowhere/any"], tmp_path, quiet=True, max_retries=0).missing
    assert missing is not None
    assert "openai-api/nowhere/any did not answer everything of retrieval_interp/kingdoms" in missing
    assert results(logs_in(tmp_path)).iloc[0]["failed"] == 1


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with a transformer that reads equations and has learned nothing."""
    folder, task = tmp_path_factory.mktemp("untrained"), EquationsTask(n_steps=2)
    model = build(task, Architecture(1, 2, 16, 8).config(task))
    write_atomically(folder / CONFIG, config_json(task, model.cfg, {}))
    save_tensors(folder / WEIGHTS, model.state_dict())
    return folder


def test_an_untrained_hooked_transformer_comes_to_chance(untrained: Path, tmp_path: Path) -> None:
    tasks = chosen(["equations"], [2], samples=24, chains=4, seed=0, attempts=200)
    assert ask(tasks, [f"hooked/{untrained}"], tmp_path, quiet=True, max_tokens=1).missing is None
    assert_at_chance(tmp_path)


def test_a_hooked_transformer_answers_the_same_at_temperature_zero(untrained: Path, tmp_path: Path) -> None:
    for logs in (tmp_path / "one", tmp_path / "two"):
        tasks = chosen(["equations"], [2], samples=5, chains=4, seed=0, attempts=1)
        ask(tasks, [f"hooked/{untrained}"], logs, quiet=True, temperature=0.0)
    one, two = (results(logs_in(tmp_path / name)) for name in ("one", "two"))
    assert one.equals(two)


def test_questions_that_do_not_fit_into_a_model_are_named(untrained: Path, tmp_path: Path) -> None:
    tasks = chosen(["equations"], [5], samples=1, chains=4, seed=0, attempts=1)
    missing = ask(tasks, [f"hooked/{untrained}"], tmp_path, quiet=True).missing
    assert missing is not None
    assert "does not know '" in missing


def test_a_model_directory_is_a_language_model_with_its_tokenizer(untrained: Path) -> None:
    model = language_model(str(untrained))
    assert model.to_str_tokens("a = 3\n", prepend_bos=False) == ["a", "=", "3", "\n"]
    tokens = model.to_tokens("a = 3\n", prepend_bos=False)
    assert model(tokens).shape == (1, 4, len(EquationsTask(n_steps=2).words))
    assert torch.isfinite(model(tokens)).all()


def test_models_that_read_no_text_or_do_not_exist_are_named() -> None:
    with pytest.raises(BadInput, match="one_layer: reads no text"):
        language_model("one_layer")
    with pytest.raises(BadInput, match="nosuchmodel: no model directory"):
        language_model("nosuchmodel")


def test_inspects_own_command_finds_the_tasks_and_the_models(untrained: Path, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("inspect")),
        "eval",
        "retrieval_interp/equations",
        "--display",
        "none",
    ]
    command += ["-T", "steps=2", "-T", "samples=3", "-T", "attempts=50", "--model", f"hooked/{untrained}"]
    done = subprocess.run([*command, "--log-dir", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    row = results(logs_in(tmp_path)).iloc[0]
    assert (row["formulation"], row["steps"], row["asked"]) == ("equations", 2, 3)
