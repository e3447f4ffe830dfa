# %% [markdown]
# # The paper: how many layers, and how heads emerge
#
# Who is the teacher of the teacher of A? A transformer answers this by going from fact to fact. Each retrieval step builds
# on the one before, so more steps take more layers. This notebook counts the layers: in theory, in a transformer that is made
# by hand, and in a trained one. Then it trains a small model and watches its heads emerge.
#
# The notebook runs in under a minute.

# %% [markdown]
# ## Layers in theory
#
# Theorem 1 of the paper is a lower bound: D retrieval steps take at least log3(2D) layers. Information flow gives the exact
# numbers. A position may attend only to positions with which it shares a piece of information (Assumption 1 of the paper), and
# then knows what they know. `retrieval_interp/theory/depth.py` holds the proofs.
#
# In the table, `hops` is D and `bound_paper` is the bound. `layers_full` is the number of layers without a mask,
# `layers_causal` with the causal mask of a language model. `layers_by_position` also has the causal mask, but heads may fetch
# pairs by their fixed positions, against Assumption 1.

# %%
import pandas as pd

from retrieval_interp import depth_figure, depths

pd.DataFrame(depths([1, 2, 3, 5, 8, 16, 100]))

# %%
depth_figure(depths(range(1, 65)))

# %% [markdown]
# ## A transformer that is made by hand
#
# The shallowest circuit for three steps has three layers of one head. The first layer joins the members of each pair. Then every
# layer doubles the number of steps that a pair knows. `compile_circuit` writes this circuit into the weights of a transformer.

# %%
from circuits.ground_truth import compile_circuit
from retrieval_interp import ChainTask, minimal_circuit

chains, shallowest = ChainTask(3), minimal_circuit(3)
compiled = compile_circuit(shallowest, chains)
drawn = chains.examples(64, seed=0)
print(*shallowest.paths, sep="\n")
print(f"{compiled.cfg.n_layers} layers; loss {chains.losses(compiled(drawn.inputs), drawn).mean():.4f}")

# %% [markdown]
# ## A trained transformer
#
# Transformer A has 12 layers for three retrieval steps. After which layer does the query hold each symbol? A logit lens
# reads the residual stream with the model's own final norm and unembedding. Layers are counted from 0, so layer 2 is the third.
# If nothing can be read, the error is 1.

# %%
from circuits.flow.flow_check import flow_check
from retrieval_interp import load

model, task, circuit = load("transformer_a")
print("the query knows it after layer, by the paths of A's circuit:", flow_check(circuit, task).known_at)
examples = task.examples(512, seed=1)
_, cache = model.run_with_cache(examples.inputs)
read = (model.unembed(model.ln_final(cache["resid_post", layer])) for layer in range(model.cfg.n_layers))
errors = [task.losses(outputs, examples).mean(dim=0).tolist() for outputs in read]
pd.DataFrame(errors, columns=task.loss_components).round(2)

# %% [markdown]
# The model has more layers than it needs, and uses more of them than it must.
#
# A bound rests on its assumptions. Under Assumption 1, one retrieval step takes two layers: one to join a pair, one to find it.
# The next model has a single layer with eight heads and an MLP. It solves the task all the same, because four of its heads
# fetch by position.

# %%
shallow, one_step, _ = load("one_layer")
fresh = one_step.examples(1024, seed=1)
print(f"loss of a single layer: {one_step.losses(shallow(fresh.inputs), fresh).mean():.4f}")

# %% [markdown]
# ## Watch heads emerge
#
# The paper (section 9) followed the attention paths of a 24-layer transformer through training: each path appears suddenly, one
# after the other, and each time a partial loss falls. (`retrieval-interp study emergence transformer_d` does this for our
# transformer D.) The model below retrieves over one step. It needs the two heads of an induction circuit: two layers with one
# head each. We train it with a checkpoint every 50 steps. A preset is a task, an architecture and a recipe, and keywords change
# any of their fields. If the folder already holds an unfinished run, `train` resumes it.

# %%
from retrieval_interp import train

changes = {"steps": 500, "batch": 64, "training_examples": 2**15, "lr": 2e-3, "warmup": 50, "checkpoint_every": 50}
mine, my_task, _ = train("induction", "runs/mine", compiled=False, **changes)

# %% [markdown]
# Move the slider to go through training.

# %%
from retrieval_interp.experiments.viewers import over_training
from retrieval_interp import through_training

over_training(through_training("runs/mine"), my_task.examples(4, seed=0))

# %% [markdown]
# The same in numbers. L0H0 joins the members of each pair. L1H0 leads from the query to its pair. A path has emerged at the first
# step at which its average attention exceeds 0.5; between checkpoints, attention is interpolated. Compare with the step at which
# the loss falls below 0.75, the loss of a guess among the candidates.

# %%
from circuits import Circuit
from retrieval_interp import emergence

induction = Circuit({"L0H0": {"pair1.second": "pair1.first"}, "L1H0": {"query": "pair1.second"}})
emerging = emergence("runs/mine", induction)
emerging.plot()

# %%
emerging.plot("losses")

# %% [markdown]
# Does a head *wait* for the one below? An ended study asked this by training with paths forced or forbidden (`studies/README.md`).
#
# ## Exercises
#
# 1. Which head emerges first, the lower or the upper one? Train with another `seed`. Could the upper head know earlier where to
#    look?
# 2. Train with `n_steps=2` and `n_layers=4` for 1,500 steps. In which order do x1 and x2 fall?
# 3. Make one head of the one-layer model uniform: `circuits.run_ablated(shallow, Circuit({"L0H0": "uniform"}), fresh)`. How much
#    does the loss rise?
