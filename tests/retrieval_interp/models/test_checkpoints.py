import json

import pytest
import torch
from safetensors.torch import save_file

from retrieval_interp import RetrievalTask, VectorTransformer, load
from retrieval_interp.models.checkpoints import load_model, load_tensors, save_tensors
from retrieval_interp.models.model_dir import config_json
from retrieval_interp.models.presets import Architecture
from retrieval_interp.tasks.retrieval import StepOrder
from tests.limits import MIB, peak, reset
from tests.refusals import assert_refused

TASK = RetrievalTask(n_steps=2, n_chains=2, step_order=StepOrder.FIRST_FIRST)


def saved(path, model):
    path.mkdir()
    (path / "config.json").write_text(config_json(TASK, model.cfg, {}))
    save_tensors(path / "model.safetensors", model.state_dict())
    return path


@pytest.fixture
def folder(tmp_path):
    model = VectorTransformer(Architecture(n_layers=1, n_heads=2, d_model=16, d_head=8).config(TASK), seed=4)
    return saved(tmp_path / "model", model)


def edit(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


# Without MLPs, which would be most of its weights.
@pytest.mark.parametrize("shape", [Architecture(1, 2, 16, 8), Architecture(2, 1, 64, 4, mlp=False)], ids=str)
def test_a_saved_model_computes_the_same_after_loading_also_in_half_precision(tmp_path, shape):
    model, x = VectorTransformer(shape.config(TASK), seed=4), TASK.examples(3, 0).inputs
    loaded, task = load_model(saved(tmp_path / "model", model))
    assert task == TASK
    assert torch.equal(loaded(x), model(x))
    tensors, _ = load_tensors(tmp_path / "model" / "model.safetensors")
    save_tensors(tmp_path / "model" / "model.safetensors", {name: t.half() for name, t in tensors.items()})
    assert load_model(tmp_path / "model")[0].W_E.equal(tensors["embed.W_E"].half().float())


def test_files_by_other_code_may_leave_out_hooked_transformers_constants(folder):
    tensors, _ = load_tensors(folder / "model.safetensors")
    kept = {name: t for name, t in tensors.items() if not name.endswith(("mask", "IGNORE", "W_pos"))}
    save_file(kept, folder / "model.safetensors")
    assert load_model(folder)[0](TASK.examples(3, 0).inputs).isfinite().all()


def test_load_takes_a_path_and_gives_the_circuit_where_there_is_one(folder):
    assert load(folder).circuit is None
    (folder / "circuit.yaml").write_text("heads:\n  L0H0: uniform\n")
    model, task, circuit = load(str(folder))
    assert (model.cfg.n_layers, task.n_steps, len(circuit.heads)) == (1, 2, 1)


def add(folder, name, tensor):
    tensors, _ = load_tensors(folder / "model.safetensors")
    save_tensors(folder / "model.safetensors", {**tensors, name: tensor})


def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


INVALID = "config.json: not the config of a model directory .Invalid JSON"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json: no such file"),
        (lambda f: (f / "config.json").write_text(""), "config.json: the file is empty"),
        (lambda f: cut_off(f / "config.json"), INVALID),
        (lambda f: (f / "config.json").write_text(f'{{"format": {"1" * 5000}}}'), INVALID),
        (lambda f: (f / "config.json").write_text("[1]"), "not the config of a model directory"),
        (lambda f: edit(f, lambda c: c.update(format=99)), "format is 99: Input should be 1"),
        (lambda f: edit(f, lambda c: c["task"].update(n_steps="two")), "bad task"),
        (lambda f: edit(f, lambda c: c["task"].update(n_steps=3)), "d_vocab_out is 8; the task needs 12"),
        (lambda f: edit(f, lambda c: c["architecture"].update(n_layers=-1)), "n_layers is -1"),
        (lambda f: edit(f, lambda c: c["architecture"].update(colour="red")), "bad architecture .colour is 'red'"),
        (lambda f: edit(f, lambda c: c["architecture"].update(act_fn="magic")), "act_fn is 'magic'"),
        (lambda f: edit(f, lambda c: c["architecture"].update(d_mlp="wide")), "d_mlp is 'wide'"),
        (lambda f: edit(f, lambda c: c["architecture"].update(d_mlp=None)), "d_mlp is missing"),
        (lambda f: edit(f, lambda c: c["architecture"].update(attn_only="no")), "attn_only is 'no'"),
        (lambda f: edit(f, lambda c: c["architecture"].update(eps=[1])), "eps: "),
        (lambda f: edit(f, lambda c: c["architecture"].update(n_layers=2)), "weights do not fit the config"),
        (lambda f: edit(f, lambda c: c["architecture"].update(n_layers=65536)), "do not fit the config"),
        (lambda f: edit(f, lambda c: c["architecture"].update(d_model=8)), "the config expects"),
        (lambda f: edit(f, lambda c: c["task"].update(n_steps=10**9)), "n_steps is 1000000000"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors: no such file"),
        (lambda f: cut_off(f / "model.safetensors"), "not a whole safetensors file"),
        (lambda f: save_file({"foreign": torch.zeros(1)}, f / "model.safetensors"), "do not fit the config"),
        (lambda f: add(f, "foreign", torch.zeros(1)), "unexpected tensor 'foreign'"),
        (lambda f: add(f, "blocks.0.ln1.b", torch.full((16,), float("nan"))), r"blocks.0.ln1.b holds NaN"),
        (lambda f: add(f, "embed.W_E", torch.ones(8, 16, dtype=torch.int64)), r"embed.W_E is torch.int64"),
    ],
)
def test_a_damaged_model_directory_is_one_clear_line(folder, damage, message):
    damage(folder)
    assert_refused(message, load_model, folder)


def huge(path, length, claimed=None):
    """A safetensors file of so many GiB, which takes no place on the disk."""
    header = json.dumps({"foreign": {"dtype": "F32", "shape": [length * 2**28], "data_offsets": [0, length * 2**30]}})
    with path.open("wb") as file:
        file.write((claimed or len(header)).to_bytes(8, "little") + header.encode())
        file.truncate(8 + len(header) + length * 2**30)


@pytest.mark.parametrize(
    ("claimed", "message"),
    [(None, "4294967296 numbers do not fit the config"), (2**33, "not a whole safetensors"), (2**63, "not a whole")],
)
def test_no_memory_is_taken_for_what_a_header_claims(folder, claimed, message):
    huge(folder / "model.safetensors", 16, claimed)
    before = reset()
    assert_refused(message, load_model, folder)
    assert peak() - before < 128 * MIB


def test_an_unknown_name_lists_the_transformers_that_come_with_the_toolkit():
    assert_refused(r"nor a transformer that comes with the toolkit \(.*transformer_a", load, "transformer_z")
