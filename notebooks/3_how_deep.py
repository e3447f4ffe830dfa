# %% [markdown]
# # How deep must it be?
#
# To answer who the teacher of the teacher of A is, a transformer has to hop along facts. Every hop builds on the one
# before, so that hops take layers. How many? Here we count them: in theory, in a trained transformer, and in many.
#
# Runs top to bottom in about a minute on two cores.

# %% [markdown]
# ## In theory
#
# The paper's Theorem 1 is a bound: not fewer than log3(2D) layers for D hops. Information flow gives exact numbers, with
# the causal mask of a language model and without one (`retrieval_interp/depth.py` holds the proofs).

# %%
import pandas as pd

from retrieval_interp.theory.depth import depths
from retrieval_interp.theory.depth_page import depth_figure

pd.DataFrame(depths([1, 2, 3, 5, 8, 16, 100]))

# %%
depth_figure(depths(range(1, 65)))

# %% [markdown]
# Where do the numbers come from? A position may attend to those with whom it shares a piece of information (Assumption 1),
# and then knows what they know. Move the slider from layer to layer: with three hops, the query knows x3 after three.

# %%
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.information_flow import layers_until
from retrieval_interp.theory.flow_figure import spread_figure

layout = chain_layout(3)
order = ["query", *(f"pair{k}.{which}" for k in (1, 2, 3) for which in ("first", "second"))]
print("layers until the query knows x3:", layers_until(layout, "query", "x3", causal=True))
spread_figure(layout, order, causal=True)

# %% [markdown]
# Facts need not form a chain: any graph of them will do.

# %%
from retrieval_interp.theory.facts import load_facts
from retrieval_interp.models.library import data_folder

facts = load_facts(data_folder() / "facts" / "functions.yaml")
print(*facts.facts, sep="\n")
print("layers it takes, with the causal mask:", facts.layers(causal=True), " without:", facts.layers(causal=False))

# %% [markdown]
# ## In a trained transformer
#
# Transformer A has 12 layers for three hops. When does each symbol reach the query? We read the residual stream there,
# layer by layer: with the model's own output_roles, and with a linear regression fitted on other examples. 0.5 counts as read.
# Layers have numbers from 0 here, so that "2" is the third.

# %%
from circuits.flow.flow_check import flow_check
from retrieval_interp import load
from retrieval_interp.experiments.probe import arrival, possible
from retrieval_interp.experiments.probe_page import arrival_figure

model, task, circuit = load("transformer_a")
read = arrival(model, task, n_examples=512)
print("possible, by flow:  ", possible(task))
print("read from the model:", read.layers("own"))
arrival_figure(read, flow_check(circuit, task), possible(task))

# %% [markdown]
# It takes its time: it has more layers than it needs, and uses them.
#
# ## A bound is a statement about its assumptions
#
# One hop takes two layers: one to join a pair, one to find it. This model has one layer, eight heads and an MLP, and answers
# all the same.

# %%
shallow, one_hop, _ = load("one_layer")
fresh = one_hop.examples(1024, seed=1)
print(f"loss of a single layer: {one_hop.losses(shallow(fresh.inputs), fresh).mean():.4f}")

# %% [markdown]
# How? Most of its heads fetch fixed positions, whatever stands there, for the MLP to compare; one, L0H2, follows a role.

# %%
from circuits.model.attention import roles_or_positions

to_roles, to_position = roles_or_positions(shallow, fresh, "query")
pd.DataFrame(
    {
        "most attention to a role": to_roles[0, :, 1:].amax(dim=-1).numpy(),  # but for the query itself
        "most attention to a position": to_position[0].numpy(),
    },
    index=[f"L0H{head}" for head in range(shallow.cfg.n_heads)],
).round(2)

# %% [markdown]
# ## In many
#
# Figure 4 of the paper, made small: 36 models of 1 to 6 layers, with the implicit curriculum (asked for every symbol of the
# chain) and without (for the last one alone). Each dot is a model; the upright lines stand where flow allows it.

# %%
from retrieval_interp.figure4.figure4 import sentences
from retrieval_interp.figure4.figure4_page import loss_figure, parts_figure
from retrieval_interp.sweep.runs_table import read_runs

results = read_runs(data_folder() / "sweeps" / "figure4_laptop" / "runs.csv")
loss_figure(results)

# %%
parts_figure(results)

# %%
print(*sentences(results), sep="\n")

# %% [markdown]
# ## Exercises
#
# 1. How many layers does `chain_layout(5)` take with its steps in another order, say `chain_layout(5, [1, 2, 3, 4, 5])`? (The default has
#    the last step first, as the paper has it.)
# 2. Write down a graph of facts of your own (`data/facts/relatives.yaml` shows how) and count its layers.
# 3. In the one-layer model, take a head away (`circuits.run_ablated` with `Uniform`). Which positions go blind?
