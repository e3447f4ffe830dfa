"""Transformers: presets, architectures, weights, and loading.

- presets.py: the models of the paper and smaller ones, with their recipes
- build.py: VectorTransformer, TokenTransformer: HookedTransformers over vectors and over tokens
- model_dir.py: the files of a model directory, and its config
- checkpoints.py: models and weights from safetensors files
- library.py: load: a model by name, path or address
- hub.py: model directories from the Hugging Face Hub
- language.py: language models by name
- provenance.py: metadata: weights hash, device, versions
"""
