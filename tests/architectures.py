"""Small language models with random weights, of every architecture that is tested: made from configs, no download."""

from importlib.metadata import version
from typing import Any

import pytest
import torch
import transformers
from transformer_lens.model_bridge import TransformerBridge

VOCABULARY, LENGTH = 31, 12
SIZES = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_head": 8, "n_ctx": 32, "d_vocab": VOCABULARY, "d_mlp": 48}
FALCON = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDTHS = {**FALCON, "intermediate_size": 48, "max_position_embeddings": 32}
GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
GROUPED = {**WIDTHS, "num_key_value_heads": 2}
WINDOW = {"head_dim": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
NEO = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 32}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
HEADS = {"gpt2": "LMHeadModel"}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT),
    "llama": ("Llama", GROUPED),
    "qwen2": ("Qwen2", GROUPED),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 8}),
    "gemma2": ("Gemma2", {**GROUPED, **WINDOW}),
    "gemma3": ("Gemma3", {**GROUPED, **WINDOW}),
    "neox": ("GPTNeoX", WIDTHS),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": 4}),
    "olmo2": ("Olmo2", GROUPED),
    "mixtral": ("Mixtral", {**GROUPED, **EXPERTS}),
    "bloom": ("Bloom", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "mpt": ("Mpt", {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 32}),
    "falcon": ("Falcon", FALCON),
    "falcon_alibi": ("Falcon", {**FALCON, "alibi": True}),
    "falcon_rw": ("Falcon", {**FALCON, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}),
    "gptbigcode": ("GPTBigCode", GPT),
    "opt": ("OPT", {**WIDTHS, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "gptj": ("GPTJ", {**GPT, "rotary_dim": 4}),
}
WITH_WINDOWS: dict[str, tuple[str, dict[str, Any]]] = {  # for the tests of windows only
    "gpt_neo": ("GPTNeo", {**NEO, "attention_types": [[["global", "local"], 1]], "window_size": 4}),
    "qwen2_window": ("Qwen2", {**GROUPED, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
}


def huggingface_model(name: str) -> transformers.PreTrainedModel:
    """A model of this architecture, with random weights from seed 0."""
    kind, sizes = {**CONFIGS, **WITH_WINDOWS}[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}TextConfig" if name == "gemma3" else f"{kind}Config")
    model = getattr(transformers, kind + HEADS.get(name, "ForCausalLM"))(
        config(**sizes, bos_token_id=1, eos_token_id=2, pad_token_id=0, attn_implementation="eager")
    )
    return shaken(model).eval()


def shaken(model: Any) -> Any:
    """The model, with random numbers added to all weights, biases and norms, too."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def bridge(name: str) -> TransformerBridge:
    """The model of this architecture as a TransformerBridge."""
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    model = huggingface_model(name)
    return build_bridge_from_module(model, type(model).__name__, hf_config=model.config)


TRANSFORMER_LENS_4 = int(version("transformer-lens").split(".")[0]) >= 4
ONLY_3 = pytest.mark.skipif(TRANSFORMER_LENS_4, reason="needs the HookedTransformer of TransformerLens 3")


def native_bridge() -> TransformerBridge:
    """TransformerLens's own architecture as a TransformerBridge, with random weights."""
    from transformer_lens.config import TransformerBridgeConfig

    torch.manual_seed(0)
    kind = {"act_fn": "gelu_new", "positional_embedding_type": "standard", "architecture": "TransformerLensNative"}
    config = TransformerBridgeConfig(**SIZES, **kind)
    return shaken(TransformerBridge.boot_native(config, device="cpu", dtype=torch.float32)).eval()
