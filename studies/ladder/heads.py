"""Which heads of SmolLM2 do the highest rung that it does, and where do they look on the first that it does not?

``python -m studies.ladder.heads``. Done is a list of names that is repeated; not done is a fact that is begun
again (two facts, one step). ``heads.csv`` has the attention of every head from the end to where the answer stands;
``ablated.csv`` the answers with some heads at their average patterns. README.md has what was found.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from circuits import Circuit, evaluate, load_circuit
from circuits.attention import role_attention
from circuits.averages import averages
from circuits.roles import Roles
from circuits.task import Examples
from retrieval_interp import load
from retrieval_interp.language_tasks.induction import Induction
from retrieval_interp.language_tasks.language_task import END, LanguageTask, Metric, answers, drawn
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.language_tasks.template import token_ids
from retrieval_interp.models.machine import on_machine
from retrieval_interp.prompts.words import CITIES, NAMES

HERE = Path(__file__).parent
N, SEED, DRAWS = 128, 11, 5
WORDS = 13  # of a list and its repetition, so that all texts have one length
INDUCTION = HERE.parents[1] / "data/smollm2/induction/circuit.yaml"


@dataclass(frozen=True)
class RepeatedList(LanguageTask):
    """ "Ann, Bob, Eve, Tom, Ann, Bob," -> Eve: the end is a comma, as the token before every name."""

    name = "repeated_list"
    roles = ("earlier", "next", END)
    metric = Metric.logit_difference

    def draw(self, n, rng):
        """Draw ``n`` lists of 7 to 10 names, repeated up to one of them; no name is in a list twice."""
        names = self.single_tokens("names", NAMES, "Eve, ", least=2 * WORDS)
        clean, other = torch.stack(drawn(rng, names.values(), n, 2 * WORDS), dim=1).split(WORDS, dim=1)
        listed, place = torch.from_numpy(rng.integers(7, 11, n))[:, None], torch.arange(WORDS)
        again = place >= listed
        words = clean.gather(1, torch.where(again, place - listed, place))
        comma = token_ids(self.tokenizer, "Eve,", bos="none")[0][-1]
        both = [
            torch.stack([one, torch.full_like(one, comma)], dim=2).flatten(1)
            for one in (words, torch.where(again, words, other))
        ]
        at = WORDS - 1 - listed  # the last name that is repeated
        wrong = torch.where(at + 2 < listed, at + 2, 0)
        positions = {"earlier": 2 * at + 1, "next": 2 * at + 2, END: torch.full_like(at, 2 * WORDS - 1)}
        roles = Roles.of({role: where[:, 0] for role, where in positions.items()})
        return Examples(both[0], answers(words.gather(1, at + 1)[:, 0], words.gather(1, wrong)[:, 0]), roles, both[1])


@dataclass(frozen=True)
class BegunFact(LanguageTask):
    """ "Ann lives in Rome. Bob lives in Oslo. Ann lives in" -> Rome; or "Ann: Rome. Bob: Oslo. Ann:"."""

    name = "begun_fact"
    roles = ("name", "right", "wrong", "again", END)
    metric = Metric.logit_difference
    link: str = " lives in"

    def draw(self, n, rng):
        """Draw ``n`` texts, half of them about the last fact."""
        names = [" " + one for one in self.single_tokens("names", NAMES, "Eve lives in Rome. ")]
        cities = [" " + one for one in self.single_tokens("cities", CITIES, f"Eve{self.link} ")]
        rows, places, targets = [], [], []
        for i in range(n):
            (a, b), (x, y) = rng.choice(names, 2, False), rng.choice(cities, 2, False)
            asked = i % 2  # 1: the last fact
            text = f"{a}{self.link}{x}.{b}{self.link}{y}.{(a, b)[asked]}{self.link}"
            rows.append(token_ids(self.tokenizer, text, bos="none")[0])
            fact = len(token_ids(self.tokenizer, f"{a}{self.link}{x}.", bos="none")[0])
            city, other, end = asked * fact + fact - 2, (1 - asked) * fact + fact - 2, len(rows[-1]) - 1
            places.append((asked * fact, city, other, 2 * fact, end))
            targets.append([token_ids(self.tokenizer, f"in{(x, y)[k]}", bos="none")[0][-1] for k in (asked, 1 - asked)])
        right, wrong = torch.tensor(targets).T
        where = dict(zip(self.roles, torch.tensor(places).T, strict=True))
        return Examples(torch.tensor(rows), answers(right, wrong), Roles.of(where))


def where_heads_look(model, repeated, facts):
    """Every head: attention from the end to the answer in the list; to both cities, by which fact is asked about."""
    listed = role_attention(model, repeated)[..., 2, 1]
    looks = {"list: next": listed}
    for last, some in {"last fact": slice(1, None, 2), "fact before": slice(0, None, 2)}.items():
        seen = role_attention(model, facts.take(torch.arange(N)[some]))
        looks |= {f"{last}: right city": seen[..., 4, 1], f"{last}: wrong city": seen[..., 4, 2]}
    induction = {*load_circuit(INDUCTION).looking}
    for layer, index in np.ndindex(*listed.shape):
        yield {"head": f"L{layer}H{index}", "in the induction circuit": (layer, index) in induction} | {
            name: round(one[layer, index].item(), 3) for name, one in looks.items()
        }


def ablated(model, tasks):
    """The share of the model's logit difference on the same prompts with some heads at their average patterns."""
    induction = [*load_circuit(INDUCTION).looking]
    for task in tasks:
        means, examples = averages(model, task, SEED, 256), task.examples(N, SEED)
        heads = [*means.patterns]
        roles = task.task.roles
        answer = roles.index("next" if "next" in roles else "right")
        shown = role_attention(model, task.examples(N, SEED + 1))[..., roles.index(END), answer]
        most = sorted(heads, key=lambda head: -shown[head])[: len(induction)]
        sets = {"induction circuit": induction, "most attention to the answer": most} | {
            f"random {k}": random.Random(k).sample([head for head in heads if head not in induction], len(induction))
            for k in range(DRAWS)
        }
        fixed = [Circuit({head: means.patterns[head] for head in some}) for some in sets.values()]
        alone = [Circuit({h: p for h, p in means.patterns.items() if h not in some}) for some in sets.values()]
        left = 1 - evaluate(model, task, examples, [Circuit(), *fixed, *alone], averages=means).mean(dim=2)
        own, share = left[0], (left.mean(dim=1) / left[0].mean())[1:, None]  # left: [circuit, example]
        errors = ((left[1:] - share * own) / own.mean()).std(dim=1) / len(examples) ** 0.5  # of a ratio, paired
        shares, deviations = (one.reshape(2, -1).T.tolist() for one in (share, errors))
        for (name, some), (lost, stays), (lost_se, stays_se) in zip(sets.items(), shares, deviations, strict=True):
            yield {
                "task": task.task.name + getattr(task.task, "link", ""),
                "heads": name,
                "share left without them": lost,
                "its se": lost_se,
                "share kept by them alone": stays,
                "their se": stays_se,
                "logit difference": own.mean().item() * task.whole,
                "which": " ".join(map(str, sorted(some))),
            }


if __name__ == "__main__":
    with on_machine():
        model = load("smollm2").model
    repeated, facts = RepeatedList(model.tokenizer), BegunFact(model.tokenizer)
    print(repeated.shown(), facts.shown(), sep="\n")
    task = MetricTask.of(model, repeated, seed=SEED)
    print(f"the model's logit difference on the list: {task.whole:.2f}")
    looks = pd.DataFrame(where_heads_look(model, repeated.examples(N, SEED), facts.examples(N, SEED)))
    looks.to_csv(HERE / "heads.csv", index=False)
    print(looks.sort_values("list: next", ascending=False).head(16).to_string())
    others = [BegunFact(model.tokenizer, link=link) for link in ("", ":")] + [Induction(model.tokenizer)]
    table = pd.DataFrame(ablated(model, [task, *(MetricTask.of(model, one, seed=SEED) for one in others)]))
    table.to_csv(HERE / "ablated.csv", index=False, float_format="%.3f")
    print(table.round(2).to_string())
