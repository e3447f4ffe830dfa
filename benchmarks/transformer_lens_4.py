"""Load this toolkit's checkpoints in TransformerLens 4, which has no HookedTransformer.

    python -m benchmarks.transformer_lens_4 write FOLDER      with this toolkit installed
    python benchmarks/transformer_lens_4.py compare FOLDER    with TransformerLens 4 installed; exits with 1 above 1e-5

``write`` saves eight inputs and the outputs for each transformer of the toolkit. ``compare`` computes the outputs with
a TransformerBridge. ``bridge`` loads a model directory in TransformerLens 4 without this toolkit.
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
    """Load a model directory as a TransformerBridge of TransformerLens 4."""
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
def outputs(model: Any, folder: Path, inputs: Tensor) -> Tensor:
    """Return the outputs; vectors are embedded here, because the bridge reads tokens or embeddings."""
    if not inputs.is_floating_point():
        return model(inputs)
    W_E = load_file(folder / "model.safetensors")["embed.W_E"].float()
    found = model.original_model(inputs_embeds=inputs @ W_E)
    return getattr(found, "logits", found)


@torch.no_grad()
def write(folder: Path) -> None:
    """Write the inputs and outputs of every transformer of the toolkit."""
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
    """Return for every transformer the largest difference between the outputs."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        own = Path(path.with_suffix(".txt").read_text())
        written = load_file(path)
        found[path.stem] = (outputs(bridge(own), own, written["inputs"]) - written["outputs"]).abs().max().item()
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
        parser.error(f"{arguments.folder} holds no outputs; run `write` first")
    versions = {name: version(name) for name in ("torch", "transformer-lens")}
    if arguments.json:
        print(json.dumps({**versions, "largest_differences": found}, indent=2))
    else:
        for name, difference in found.items():
            print(f"{name}: {difference:.1e}")
    sys.exit(0 if max(found.values()) <= TOLERANCE else 1)


if __name__ == "__main__":
    main()
