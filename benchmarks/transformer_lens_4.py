"""Checkpoints written here, loaded in TransformerLens 4, which knows no HookedTransformer any more.

    python -m benchmarks.transformer_lens_4 write FOLDER              where this toolkit is installed
    python benchmarks/transformer_lens_4.py compare FOLDER            where TransformerLens 4 is; exits 1 above 1e-5

The first writes, for each transformer of the toolkit, eight inputs and what it answers to them; the second answers
them with a TransformerBridge. ``bridge`` is how to load a model directory there; it needs nothing of this toolkit.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

TOLERANCE = 1e-5
N_EXAMPLES = 8


def bridge(folder: Path) -> Any:
    """The model of a model directory as a TransformerBridge of TransformerLens 4."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    architecture = json.loads((folder / "config.json").read_text())["architecture"]
    fields = {name: value for name, value in architecture.items() if value is not None}
    if fields.get("act_fn") == "gelu_pytorch_tanh":
        fields["act_fn"] = "gelu_new"  # another name for the same function
    own = {"positional_embedding_type": "standard", "architecture": "TransformerLensNative"}
    config = TransformerBridgeConfig(**fields, **own)
    model = TransformerBridge.boot_native(config, device="cpu", dtype=torch.float32)
    weights = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    model.load_state_dict(convert_tl_checkpoint(weights, config), strict=True)
    model.eval()
    return model


@torch.no_grad()
def answers(model: Any, folder: Path, inputs: Tensor) -> Tensor:
    """What it answers; vectors are embedded here, as it reads tokens or what stands in their place."""
    if not inputs.is_floating_point():
        return model(inputs)
    W_E = load_file(folder / "model.safetensors")["embed.W_E"].float()
    found = model.original_model(inputs_embeds=inputs @ W_E)
    return getattr(found, "logits", found)


@torch.no_grad()
def write(folder: Path) -> None:
    from retrieval_interp import load
    from retrieval_interp.models.library import data_folder

    folder.mkdir(parents=True, exist_ok=True)
    for config in sorted(data_folder().glob("*/config.json")):
        model, task, _ = load(config.parent)
        inputs = task.examples(N_EXAMPLES, seed=1).inputs
        save_file(
            {"inputs": inputs, "outputs": model(inputs).contiguous()}, folder / f"{config.parent.name}.safetensors"
        )
        (folder / f"{config.parent.name}.txt").write_text(str(config.parent.resolve()))


def compare(folder: Path) -> dict[str, float]:
    """For every transformer the largest difference between the two."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        own = Path(path.with_suffix(".txt").read_text())
        said = load_file(path)
        found[path.stem] = (answers(bridge(own), own, said["inputs"]) - said["outputs"]).abs().max().item()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    if arguments.what == "write":
        write(arguments.folder)
        return
    from importlib.metadata import version

    found = compare(arguments.folder)
    if not found:
        parser.error(f"{arguments.folder} holds no answers; expected what `write` has left there")
    said = {name: version(name) for name in ("torch", "transformer-lens")}
    if arguments.json:
        print(json.dumps({**said, "largest_differences": found}, indent=2))
    else:
        for name, difference in found.items():
            print(f"{name}: {difference:.1e}")
    sys.exit(0 if max(found.values()) <= TOLERANCE else 1)


if __name__ == "__main__":
    main()
