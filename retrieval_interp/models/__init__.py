"""Transformers: presets, weights, loading.

- presets.py: every model of the paper, and small ones, with their recipes
- build.py: VectorTransformer: HookedTransformers over vectors, and over words
- model_dir.py: what a model directory holds
- checkpoints.py: weights as safetensors
- library.py: load: a model by name, path or address
- hub.py: model directories from the Hugging Face Hub
- language.py: language models by name
- provenance.py: metadata: weights hash, device, versions
"""
