# %% [markdown]
# # Watch heads emerge
#
# A circuit forms during training. The paper (section 9) followed the attention paths of a 24-layer transformer, its
# transformer D, through training. In the paper, each path appears suddenly, one after the other, and each time a partial
# loss falls. This notebook first looks at the transformer D of this project. Then it trains a small model twice and watches
# its heads.
#
# The notebook runs in about a minute on two cores.

# %%
from retrieval_interp import emergence, load

model, task, circuit = load("transformer_d")
followed = emergence("transformer_d", circuit)
print(f"attention along {len(circuit.paths)} paths, from {followed.source}")

# %% [markdown]
# ## When did each path emerge?
#
# A path has emerged at the first step at which its average attention exceeds 0.5.

# %%
followed.table().sort_values("step").round(2)

# %%
followed.plot("losses")

# %%
followed.plot("emerged")

# %% [markdown]
# The paper makes four observations about its transformer D. Are they true of this one?
#
# - **i**: after slow learning, an induction head, which fetches x1, emerges first and abruptly.
# - **ii**: quickly after, a head above it fetches x2 and reuses the first head.
# - **iii**: each further head drives down the next partial loss, in order.
# - **iv**: the last head emerges much later than the one before.

# %%
from retrieval_interp import observations

for observation in observations(followed):
    print(observation.name, observation.decision, "-", observation.sentence)

# %% [markdown]
# ## Watch
#
# Four checkpoints from these steps come with the toolkit. Move the slider. The average attention of L4H0 from the query to
# `pair1.second`, which holds x1, rises from 0.1 to 0.5 over 240 steps.

# %%
from circuits import over_training
from retrieval_interp import through_training

fetches = next(path for path in circuit.paths if (path.source, path.target) == ("query", "pair1.second"))
print(fetches)
examples = task.examples(4, seed=0)
over_training(through_training("transformer_d"), examples, layer=fetches.head.layer)

# %% [markdown]
# ## Train your own
#
# The model below retrieves over one step. It needs the two heads of an induction circuit: two layers with one head each. We
# train it with a checkpoint every 50 steps. A preset is a task, an architecture and a recipe. `retrieval-interp models
# presets` lists them, and keywords change any of their fields. If the folder already holds an unfinished run, `train`
# resumes it.

# %%
from pathlib import Path

from retrieval_interp import train

changes = {"steps": 500, "batch": 64, "training_examples": 2**15, "lr": 2e-3, "warmup": 50, "checkpoint_every": 50}
runs = [Path("runs") / f"mine-{seed}" for seed in range(2)]
for seed, run in enumerate(runs):
    train("induction", run, seed=seed, compiled=False, **changes)

# %% [markdown]
# The two seeds stand side by side and share one slider. Click a head to lock it. It stays locked while you move the slider.

# %%
from circuits import side_by_side

mine, my_task, _ = load(runs[0])
my_examples = my_task.examples(4, seed=0)
side_by_side({run.name: over_training(through_training(run), my_examples) for run in runs})

# %% [markdown]
# The same in numbers, for the first run. L0H0 joins the members of each pair. L1H0 leads from the query to its pair. Both
# paths pass an attention of 0.5 around step 200; the checkpoints are 50 steps apart. Around the same time the loss falls
# below 0.75, the loss of a guess among the candidates.

# %%
from circuits import Circuit

induction = Circuit({"L0H0": {"pair1.second": "pair1.first"}, "L1H0": {"query": "pair1.second"}})
emerging = emergence(runs[0], induction)
emerging.plot()

# %%
emerging.plot("losses")

# %% [markdown]
# The command line does the same. `retrieval-interp train PRESET --out RUN` trains a model, `retrieval-interp study emergence
# RUN` writes these figures as one page, and `retrieval-interp view RUN --training` writes the viewer. Does a head *wait* for
# the one below? An ended study asked this by training with paths forced or forbidden (`studies/README.md`).
#
# ## Exercises
#
# 1. Which head emerges first in your two runs, the lower or the upper one? Could the upper head know earlier where to look?
# 2. Train with `n_steps=2` and `n_layers=4` for 1,500 steps. In which order do x1 and x2 fall?
# 3. Find the path of transformer D that emerged last. What is its partial loss before and after?
