"""Access to a transformer. The seam is layers.py, to be read first; transformer.py says what is called a transformer,
in which layers a position sees few others, and how many sequences run at once.

- layers.py: all that the engine asks of a transformer, with the hooks that change a layer and the checks that it holds;
  here for a HookedTransformer
- bridge.py: the same for a TransformerBridge
- block.py: the parts of GPT-2's layer
- state.py: what a model is at the moment, and what was learned of it
- kept_run.py: KeptRun: a run from which others branch off at any layer and position
- language.py: from_pretrained: a language model by its name
- hooked_transformer.py: HookedTransformer, whichever TransformerLens is installed; gpt2_like.py is that for 4
"""

from circuits.model.language import from_pretrained as from_pretrained
