# %% [markdown]
# # Watch heads emerge
#
# A circuit is not there from the beginning. The paper (section 9) followed the attention paths of a 24-layer transformer,
# its transformer D, through training: each appears suddenly, one after the other, and with each a partial loss falls.
# First we look at the transformer D that was trained here; then we train a small model, twice, and watch its heads.
#
# Runs top to bottom in about a minute on two cores.

# %%
from pathlib import Path

from retrieval_interp import load

from retrieval_interp.models import library
from retrieval_interp.experiments.emergence import emergence

folder = library.find("transformer_d")
model, task, circuit = load("transformer_d")
followed = emergence(folder, circuit)
print(f"attention along {len(circuit.paths)} paths, from {followed.source}")

# %% [markdown]
# ## When did each path appear?
#
# A path has emerged at the first step at which its average attention exceeds 0.5.

# %%
followed.table().sort_values("step").round(2)

# %%
from retrieval_interp.experiments.emergence_page import emerged_figure, loss_figure, path_figure

loss_figure(followed)

# %%
emerged_figure(followed)

# %% [markdown]
# The paper made four observations of its own transformer D. Do they hold of this one?

# %%
from retrieval_interp.experiments.observations import observations

for observation in observations(followed):
    print(observation.name, observation.verdict, "-", observation.sentence)

# %% [markdown]
# ## Watch
#
# Four checkpoints of the steps in between come with the toolkit. Move the slider: the layer that fetches the first symbol
# finds its pattern within 240 steps.

# %%
from circuits import over_training
from retrieval_interp.models.checkpoints import through_training

fetches = next(path for path in circuit.paths if (path.source, path.target) == ("query", "pair1.second"))
print(fetches)
examples = task.examples(4, seed=0)
over_training(through_training(folder), examples, layer=fetches.head.layer)

# %% [markdown]
# ## Train your own
#
# An induction head, the circuit of one hop: two layers of one head, with a checkpoint every 50 steps. A preset is a task,
# an architecture and a recipe. `retrieval-interp models presets` lists them; keywords change any of their fields. A run
# that is in the folder already goes on where it stopped.

# %%
from retrieval_interp import train

changes = {"steps": 500, "batch": 64, "training_examples": 2**15, "lr": 2e-3, "warmup": 50, "checkpoint_every": 50}
runs = [Path("runs") / f"mine-{seed}" for seed in range(2)]
for seed, run in enumerate(runs):
    train("induction", run, seed=seed, compiled=False, **changes)

# %% [markdown]
# Two seeds side by side, with one slider for both. Lock a head in each with a click: it stays locked while you move
# through the training.

# %%
from circuits import side_by_side

mine, my_task, _ = load(runs[0])
my_examples = my_task.examples(4, seed=0)
side_by_side({run.name: over_training(through_training(run), my_examples) for run in runs})

# %% [markdown]
# The same in numbers. One head joins the members of pairs, the other leads from the query to its pair. They emerge together,
# within a few steps of each other, and the loss falls from the 0.75 of a guess.

# %%
from circuits import Circuit, Head, OneHot

induction = Circuit(
    {Head(0, 0): OneHot({"pair1.second": "pair1.first"}), Head(1, 0): OneHot({"query": "pair1.second"})}
)
emerging = emergence(runs[0], induction)
path_figure(emerging)

# %%
loss_figure(emerging)

# %% [markdown]
# `retrieval-interp train PRESET --out RUN` trains from the command line, `retrieval-interp study emergence RUN` writes all of this
# as one page, `retrieval-interp view RUN --training` the viewer. Whether a head *waits* for the one below is another
# question: `retrieval-interp study interventions` trains with paths forced on, or forbidden ([what came of it](../docs/results.md)).
#
# ## Exercises
#
# 1. Which comes first in your two runs, the lower head or the upper one? Can the upper one know where to look before?
# 2. Train with `RetrievalTask(n_steps=2)` and four layers, for 1,500 steps. In which order do x1 and x2 fall?
# 3. In transformer D, find the path that emerged last. What is its partial loss before and after?
