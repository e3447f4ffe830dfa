"""HookedTransformer and its config, whichever TransformerLens is installed.

TransformerLens 3.9 has them. TransformerLens 4 has neither; there they are those of gpt2_like.py, which have the same
names, hook points and weights, for GPT-2's architecture.
"""

try:
    from transformer_lens import HookedTransformer, HookedTransformerConfig
except ImportError:
    from circuits.model.gpt2_like import HookedTransformer, HookedTransformerConfig

__all__ = ["HookedTransformer", "HookedTransformerConfig"]
