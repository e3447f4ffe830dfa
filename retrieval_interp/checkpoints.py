"""Models and training states on disk: safetensors for weights, plain JSON for everything else.

A model directory holds ``config.json`` and ``model.safetensors`` (HookedTransformer's keys), and where they
exist ``circuit.yaml`` and ``log.jsonl``. Training adds ``state.safetensors`` (to resume from) and
``checkpoints/step-*.safetensors``.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from circuits.errors import BadInput
from circuits.files import read_text, write_atomically
from retrieval_interp.any_task import Task
from retrieval_interp.model import build
from retrieval_interp.tasks import describe, task_of

CONFIG, WEIGHTS, CIRCUIT, LOG = "config.json", "model.safetensors", "circuit.yaml", "log.jsonl"
STATE, CHECKPOINTS = "state.safetensors", "checkpoints"
FORMAT = 1

# The fields that say what the model computes; the rest of HookedTransformerConfig keeps its defaults.
ARCHITECTURE_FIELDS = (
    *("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "attn_only", "act_fn"),
    *("n_ctx", "d_vocab", "d_vocab_out", "normalization_type", "eps"),
)
# Constants that HookedTransformer keeps in its state; files by other code may leave them out.
CONSTANTS = ("attn.mask", "attn.IGNORE")


def checkpoint_path(run: Path, step: int) -> Path:
    """Where a run keeps the weights of a step."""
    return run / CHECKPOINTS / f"step-{step:07d}.safetensors"


def checkpoints(run: Path) -> dict[int, Path]:
    """The checkpoints that a run has kept, by their steps, in rising order.

    Raises:
        BadInput: there is a file among them whose name tells no step.
    """
    found = {}
    for path in sorted((run / CHECKPOINTS).glob("step-*.safetensors")):
        try:
            found[int(path.stem.removeprefix("step-"))] = path
        except ValueError:
            raise BadInput(f"{path}: expected a name like step-0000080.safetensors") from None
    return dict(sorted(found.items()))


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors as safetensors, whole or not at all.

    Raises:
        BadInput: they cannot be written.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Not by save_file, whose own temporary file would stay if the process were killed.
    write_atomically(path, save(plain, dict(metadata or {})))


def load_tensors(path: Path, most: int | float = math.inf) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file, if by its header it has ``most`` numbers or fewer.

    Raises:
        BadInput: missing, cut off, not safetensors, or more numbers than that; no memory is taken for them then.
    """
    if not path.is_file():
        raise BadInput(f"{path}: no such file (expected weights in safetensors)")
    try:
        with safe_open(path, framework="pt") as file:
            names = [*file.keys()]
            there = sum(math.prod(file.get_slice(name).get_shape()) for name in names)
            if there > most:
                raise BadInput(f"{path}: {there} numbers do not fit the config, by which there are {most} at most")
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path}: not a whole safetensors file ({error})") from error


def config_json(task: Task, cfg: HookedTransformerConfig, made: Mapping[str, Any]) -> str:
    """A model directory's config: the task, the architecture, and how the model was made."""
    architecture = {field: getattr(cfg, field) for field in ARCHITECTURE_FIELDS}
    if cfg.attn_only:
        architecture["d_mlp"] = None  # TransformerLens fills it in all the same
    document = {"format": FORMAT, "task": describe(task), "architecture": architecture, "made": dict(made)}
    return json.dumps(document, indent=2) + "\n"


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a model directory, as it stands in the file.

    Raises:
        BadInput: the folder or the file is missing, or holds no such config.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such model directory")
    path = folder / CONFIG
    text = read_text(path, "the config of a model directory")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({error})") from error
    sections = ("task", "architecture")
    if not isinstance(config, dict) or not all(isinstance(config.get(section), dict) for section in sections):
        raise BadInput(f"{path}: expected an object with the sections 'task' and 'architecture'")
    if not isinstance(config.get("made", {}), dict):
        raise BadInput(f"{path}: 'made' is {type(config['made']).__name__}; expected an object")
    if config.get("format") != FORMAT:
        raise BadInput(f"{path}: format is {config.get('format')!r}; this version reads {FORMAT}")
    return config


def task_from(config: Mapping[str, Any], path: Path) -> Task:
    """The task of a config that was read from ``path``."""
    try:
        return task_of(config["task"])
    except ValueError as error:
        raise BadInput(f"{path}: bad task ({error})") from error


def architecture_from(config: Mapping[str, Any], task: Task, path: Path) -> HookedTransformerConfig:
    """The TransformerLens config of a config that was read from ``path``, checked against its task."""
    section = config["architecture"]
    unknown = sorted(set(section) - set(ARCHITECTURE_FIELDS))
    if unknown:
        raise BadInput(f"{path}: unknown architecture field {unknown[0]!r}")
    expected = {"d_vocab": task.d_input, "d_vocab_out": task.d_output, "n_ctx": task.n_positions}
    for field, value in expected.items():
        if section.get(field) != value:
            raise BadInput(f"{path}: {field} is {section.get(field)!r}; the task needs {value}")
    attention_only = section.get("attn_only", False)
    expected_types: dict[str, tuple[str, bool]] = {
        field: ("a whole number from 1 to 65536", _is_size(section.get(field)))
        for field in ("n_layers", "n_heads", "d_model", "d_head", *(() if attention_only is True else ("d_mlp",)))
    }
    expected_types["attn_only"] = ("true or false", isinstance(attention_only, bool))
    activation = section.get("act_fn")
    supported = attention_only is True or (isinstance(activation, str) and activation in SUPPORTED_ACTIVATIONS)
    expected_types["act_fn"] = (f"one of {', '.join(SUPPORTED_ACTIVATIONS)}", supported)
    normalization = section.get("normalization_type", "LN")
    expected_types["normalization_type"] = ("LN, LNPre or null", normalization in ("LN", "LNPre", None))
    eps = section.get("eps", 1e-5)
    expected_types["eps"] = ("a number above 0", isinstance(eps, float) and 0 < eps < 1)
    for field, (wanted, right) in expected_types.items():
        if not right:
            raise BadInput(f"{path}: {field} is {section.get(field)!r}; expected {wanted}")
    try:
        return HookedTransformerConfig(**section, device="cpu", dtype=torch.float32)
    except Exception as error:  # TransformerLens raises whatever its own checks raise
        raise BadInput(f"{path}: bad architecture ({error})") from error


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**16


def least_parameters(cfg: HookedTransformerConfig) -> int:
    """How many weights a model has in its matrices alone."""
    hidden = 0 if cfg.attn_only else cfg.d_mlp or 0
    layer = 4 * cfg.d_model * cfg.n_heads * cfg.d_head + 2 * cfg.d_model * hidden
    return cfg.n_layers * layer + cfg.d_model * (cfg.d_vocab + cfg.d_vocab_out)


def most_numbers(cfg: HookedTransformerConfig) -> int:
    """How many numbers a file with a model's weights may hold: with biases, norms, and masks that some keep too."""
    return 2 * least_parameters(cfg) + cfg.n_layers * cfg.n_ctx**2 + 2**20


def fill(model: HookedTransformer, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Put the weights read from ``path`` into a model, converted to its precision.

    Raises:
        BadInput: keys or shapes do not fit the model, or a weight is not finite.
    """
    own = model.state_dict()
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    filled: dict[str, Tensor] = {}
    foreign = sorted(set(tensors) - set(own))
    if foreign:
        raise BadInput(f"{path}: unexpected tensor {foreign[0]!r}; the weights do not fit the config")
    for name, parameter in own.items():
        if name not in tensors:
            if name.endswith(CONSTANTS) or name in frozen:
                continue
            raise BadInput(f"{path}: tensor {name!r} is missing; the weights do not fit the config")
        tensor = tensors[name]
        if tensor.shape != parameter.shape:
            got, expected = list(tensor.shape), list(parameter.shape)
            raise BadInput(f"{path}: {name} is {got}; the config expects {expected}")
        if name.endswith(CONSTANTS):
            continue  # constants: the model keeps its own
        if tensor.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            raise BadInput(f"{path}: {name} is {tensor.dtype}; expected floating-point weights of 16 to 64 bits")
        if not tensor.to(parameter.dtype).isfinite().all():
            raise BadInput(f"{path}: {name} holds NaN or infinite weights")
        filled[name] = tensor
    model.load_state_dict({**own, **filled}, strict=True)


def load_model(folder: Path, weights: Path | None = None) -> tuple[HookedTransformer, Task]:
    """The model and the task of a model directory, in fp32 and in evaluation mode.

    Args:
        folder: the model directory.
        weights: another safetensors file for the same architecture, for example a checkpoint.

    Raises:
        BadInput: something is missing, cut off, of another format, or does not fit together.
    """
    config = read_config(folder)
    task = task_from(config, folder / CONFIG)
    cfg = architecture_from(config, task, folder / CONFIG)
    path = weights or folder / WEIGHTS
    tensors, _ = load_tensors(path, most_numbers(cfg))
    there = sum(tensor.numel() for tensor in tensors.values())
    if least_parameters(cfg) > there:  # before memory is taken for a model that its weights cannot fill
        raise BadInput(f"{path}: {there} weights do not fit the config, which needs {least_parameters(cfg)} and more")
    model = build(task, cfg)
    fill(model, tensors, path)
    return model.eval(), task


def through_training(run: Path | str) -> Iterator[tuple[int, HookedTransformer]]:
    """Every checkpoint of a run with its step: always the same model, so that one is in memory.

    Raises:
        BadInput: the run has none, or one of them is damaged or does not fit the config.
    """
    run = Path(run)
    kept = checkpoints(run)
    if not kept:
        raise BadInput(f"{run}: holds no {CHECKPOINTS}/step-*.safetensors, as training keeps them")
    first, *others = kept.items()
    model, _ = load_model(run, first[1])
    yield first[0], model
    for step, path in others:
        fill(model, load_tensors(path, most_numbers(model.cfg))[0], path)
        yield step, model
