"""Access to a transformer. The seam is layers.py, to be read first; transformer.py says what is called a transformer.

- layers.py: all that the engine asks of a transformer, with the checks that it holds; here for a HookedTransformer
- bridge.py: the same for a TransformerBridge
- edits.py: the hooks by which a layer is changed
- block.py: the parts of GPT-2's layer
- state.py: what a model is at the moment, and what was learned of it
- patterns.py, windows.py: attention patterns, and the layers in which a position sees few others
- kept_run.py: KeptRun: a run from which others branch off at any layer and position
- batching.py: the number of sequences that run at once
- language.py: from_pretrained: a language model by its name
- hooked_transformer.py: HookedTransformer, whichever TransformerLens is installed; gpt2_like.py is that for 4
"""

from circuits.model.language import from_pretrained as from_pretrained
