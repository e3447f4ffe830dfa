# %% [markdown]
# # How many layers does it take?
#
# Who is the teacher of the teacher of A? A transformer answers this by going from fact to fact. Each retrieval step builds
# on the one before, so more steps take more layers. This notebook counts the layers in theory, in one trained transformer,
# and in many.
#
# The notebook runs in about a minute on two cores.

# %% [markdown]
# ## In theory
#
# Theorem 1 of the paper is a lower bound: D retrieval steps take at least log3(2D) layers. Information flow gives the exact
# numbers. `retrieval_interp/theory/depth.py` holds the proofs. In the table, `hops` is D, the number of retrieval steps, and
# `bound_paper` is the bound. `layers_full` is the number of layers without a mask, and `layers_causal` with the causal mask of
# a language model. `layers_by_position` also has the causal mask, but heads may fetch pairs by their fixed positions, against
# Assumption 1 (below).

# %%
import pandas as pd

from retrieval_interp import depth_figure, depths

pd.DataFrame(depths([1, 2, 3, 5, 8, 16, 100]))

# %%
depth_figure(depths(range(1, 65)))

# %% [markdown]
# Where do the numbers come from? A position may attend only to positions with which it shares a piece of information
# (Assumption 1 of the paper). It then knows what they know. Move the slider from layer to layer: with three retrieval steps,
# the query knows x3 after three layers.

# %%
from retrieval_interp import chain_layout, layers_until, spread_figure

layout = chain_layout(3)
order = ["query", *(f"pair{k}.{which}" for k in (1, 2, 3) for which in ("first", "second"))]
print("layers until the query knows x3:", layers_until(layout, "query", "x3", causal=True))
spread_figure(layout, order, causal=True)

# %% [markdown]
# The facts do not have to form a chain. Any graph of facts works.

# %%
from retrieval_interp import data_folder, load_facts

facts = load_facts(data_folder() / "facts" / "functions.yaml")
print(*facts.facts, sep="\n")
print("layers with the causal mask:", facts.layers(causal=True), " without:", facts.layers(causal=False))

# %% [markdown]
# ## In one trained transformer
#
# Transformer A has 12 layers for three retrieval steps. After which layer does the query hold each symbol? A logit lens
# reads the residual stream with the model's own final norm and unembedding. Layers are counted from 0, so layer 2 is the third.

# %%
from circuits import flow_check
from retrieval_interp import load

model, task, circuit = load("transformer_a")
earliest = {symbol: layers_until(task.layout, "query", symbol, causal=True) - 1 for symbol in task.loss_components}
print("after which layer any circuit could know it, by information flow:", earliest)
print("after which layer this circuit does, on the slots that its paths cover:", flow_check(circuit, task).known_at)
examples = task.examples(512, seed=1)
_, cache = model.run_with_cache(examples.inputs)
outputs = (model.unembed(model.ln_final(cache["resid_post", layer])) for layer in range(model.cfg.n_layers))
errors = [task.losses(own, examples).mean(dim=0).tolist() for own in outputs]
pd.DataFrame(errors, columns=task.loss_components).round(2)

# %% [markdown]
# If nothing can be read, the error is 1; x1 can be read after layer 2, x2 after layer 4 and x3 after layer 8. The model has
# more layers than it needs, and uses more of them than it must.
#
# ## A bound rests on its assumptions
#
# Under Assumption 1, one retrieval step takes two layers: one to join a pair, one to find it. The next model has a single
# layer with eight heads and an MLP. It solves the task all the same.

# %%
shallow, one_step, _ = load("one_layer")
fresh = one_step.examples(1024, seed=1)
print(f"loss of a single layer: {one_step.losses(shallow(fresh.inputs), fresh).mean():.4f}")

# %% [markdown]
# How does it do that? In four of its eight heads (L0H0, L0H1, L0H3, L0H5), the query gives 0.99 or more of its attention to a
# fixed position: the second member of the pair in one slot. In L0H2 it attends to a role, wherever this stands: the first
# member of its own pair. The MLP combines what they bring.

# %%
from circuits import roles_or_positions

to_roles, to_position = roles_or_positions(shallow, fresh, "query")
pd.DataFrame(
    {
        "most attention to another role": to_roles[0, :, 1:].amax(dim=-1).numpy(),
        "most attention to a position": to_position[0].numpy(),
    },
    index=[f"L0H{head}" for head in range(shallow.cfg.n_heads)],
).round(2)

# %% [markdown]
# ## In many trained transformers
#
# This is a small version of the paper's figure 4: 36 models with 1 to 6 layers. Half of them have the implicit curriculum,
# that is, they are asked for every symbol of the chain. The others are asked for the last symbol alone. Each dot is a model.
# The vertical lines mark the least number of layers with which a symbol can be known, by information flow.

# %%
from retrieval_interp import figure4_figure, figure4_table, read_runs

runs = read_runs(data_folder() / "sweeps" / "figure4_laptop" / "runs.csv")
figure4_figure(runs)

# %%
figure4_table(runs).drop(columns="family").round(3)

# %% [markdown]
# ## Exercises
#
# 1. The default order of the pairs is the paper's, with the last step first. How many layers does `chain_layout(5)` take in
#    another order, such as `chain_layout(5, [1, 2, 3, 4, 5])`?
# 2. Write a graph of facts of your own (see `data/facts/relatives.yaml`) and count its layers.
# 3. Make one head of the one-layer model uniform: `circuits.run_ablated(shallow, Circuit({"L0H0": "uniform"}), fresh)`. In
#    which slots does the loss rise?
