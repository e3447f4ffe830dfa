"""Access to a transformer: its layers, its attention patterns, and their averages.

- transformer.py: Transformer: what is called one, a HookedTransformer or a TransformerBridge
- layers.py: the seam: all that the engine asks of a transformer, with the checks that it holds
- hooked.py, bridge.py: the two kinds of transformer behind the seam
- block.py: the parts of a HookedTransformer's block: values, attention output, MLP
- windows.py: windows: the layers in which a position sees only some positions before it
- patterns.py: attention patterns, layer by layer
- kept_run.py: KeptRun: a run from which others branch off at any layer and position
- batching.py: the number of sequences that run at once
- language.py: from_pretrained: a language model by its name
- hooked_transformer.py: HookedTransformer, whichever TransformerLens is installed
- gpt2_like.py: its substitute for TransformerLens 4
"""

from circuits.model.language import from_pretrained as from_pretrained
