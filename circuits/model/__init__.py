"""Access to a transformer. layers.py has all that the engine asks of one, with the hooks that change a layer and the
checks that it holds; read it first. A TransformerBridge is opened by bridge.py, and hooked_transformer.py has the
HookedTransformer of whichever TransformerLens is installed.
"""

from circuits.model.language import from_pretrained as from_pretrained
