"""Models and their weights, read from model directories."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open

from circuits.errors import BadInput
from circuits.model.transformer import Transformer, hooked_transformer
from circuits.utils.files import write_atomically
from circuits.utils.lazy import Deferred, torch
from retrieval_interp.models.machine import placed
from retrieval_interp.models.model_dir import (
    CONFIG,
    LOCK,
    STATE,
    WEIGHTS,
    architecture_from,
    read_config,
    resume_command,
    task_from,
)
from retrieval_interp.tasks.task import TrainableTask

building, safetensors_torch = Deferred("retrieval_interp.models.build"), Deferred("safetensors.torch")
# Constants in the state of a HookedTransformer; files from other code may lack them.
CONSTANTS = ("attn.mask", "attn.IGNORE")


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a safetensors file, atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # save_file would leave a temporary file behind if the process were killed.
    write_atomically(path, safetensors_torch.save(plain, dict(metadata or {})))


def load_tensors(path: Path, most: int | float = math.inf) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file of at most ``most`` numbers.

    The header is checked first, so that a larger file takes no memory. BadInput if it is larger, missing or damaged.
    """
    if (there := n_numbers(path)) > most:
        raise BadInput(f"{path}: {there} numbers do not fit the config; expected at most {most}")
    with _opened(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def n_numbers(path: Path) -> int:
    """Return the number of entries in a safetensors file, by its header; BadInput if it is missing or damaged."""
    with _opened(path, "numpy") as file:  # does not import PyTorch
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


@contextmanager
def _opened(path: Path, framework: str) -> Iterator[safe_open]:
    if not path.is_file():
        raise BadInput(f"{path}: no such file (expected weights in safetensors)")
    try:
        with safe_open(path, framework) as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path}: not a whole safetensors file ({error})") from error


def least_parameters(cfg: hooked_transformer.HookedTransformerConfig) -> int:
    """Return the number of weights in a model's matrices."""
    hidden = 0 if cfg.attn_only else cfg.d_mlp or 0
    layer = 4 * cfg.d_model * cfg.n_heads * cfg.d_head + 2 * cfg.d_model * hidden
    return cfg.n_layers * layer + cfg.d_model * (cfg.d_vocab + cfg.d_vocab_out)


def most_numbers(cfg: hooked_transformer.HookedTransformerConfig) -> int:
    """Return the largest allowed size of a weights file: with biases, norms, and masks, which some files contain."""
    return 2 * least_parameters(cfg) + cfg.n_layers * cfg.n_ctx**2 + 2**20


def fill(model: Transformer, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Load the weights read from ``path`` into a model, in its precision; BadInput if they do not fit it."""
    there = model.state_dict()
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    if foreign := sorted(set(tensors) - set(there)):
        raise BadInput(f"{path}: unexpected tensor {foreign[0]!r}; the weights do not fit the config")
    for name, parameter in there.items():
        if name not in tensors and not name.endswith(CONSTANTS) and name not in frozen:
            raise BadInput(f"{path}: tensor {name!r} is missing; the weights do not fit the config")
        tensor = tensors.get(name, parameter)
        if tensor.shape != parameter.shape:
            got, expected = list(tensor.shape), list(parameter.shape)
            raise BadInput(f"{path}: {name} is {got}; the config expects {expected}")
        if name.endswith(CONSTANTS):
            continue  # the model keeps its own constants
        if tensor.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            raise BadInput(f"{path}: {name} is {tensor.dtype}; expected floating-point weights of 16 to 64 bits")
        if not tensor.to(parameter.dtype).isfinite().all():
            raise BadInput(f"{path}: {name} holds NaN or infinite weights")
        there[name] = tensor
    model.load_state_dict(there, strict=True)


def _check_finished(folder: Path) -> None:
    """Raise BadInput for a run whose training has not ended, with its saved step and the command that continues it."""
    where, state = "", folder / STATE
    if (folder / WEIGHTS).exists() or not (state.exists() or (folder / LOCK).exists()):
        return
    if state.exists():
        with _opened(state, "numpy") as file:
            where = f", its saved state is that of step {(file.metadata() or {}).get('step')}"
    raise BadInput(f"{folder}: the run is not finished{where}; continue it with: {resume_command(folder)}")


def load_model(folder: Path, weights: Path | None = None) -> tuple[Transformer, TrainableTask]:
    """Load the model and the task of a model directory, or of a checkpoint with its config.

    The model is in evaluation mode, on the CPU in float32, or as ``on_machine`` says.

    Raises:
        BadInput: a file is missing or damaged, config and weights do not match, or the training has not ended.
    """
    config, path = read_config(folder), weights or folder / WEIGHTS
    if weights is None:
        _check_finished(folder)
    task = task_from(config, folder / CONFIG)
    n_numbers(path)  # fails early: importing TransformerLens takes seconds
    cfg = architecture_from(config, task, folder / CONFIG)
    tensors, _ = load_tensors(path, most_numbers(cfg))
    there = sum(tensor.numel() for tensor in tensors.values())
    if least_parameters(cfg) > there:  # before the model takes memory
        raise BadInput(f"{path}: {there} weights do not fit the config; expected at least {least_parameters(cfg)}")
    model = building.build(task, cfg)
    fill(model, tensors, path)
    return placed(model.eval()), task
