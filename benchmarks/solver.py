"""Answers questions from their text alone; knows nothing of how they were made.

Every line is split into the words that a reader would take for names. ``solve`` follows them; it is what shows that a
question can be answered, and only in one way.
"""

import re


def solve(prompt: str) -> str:
    """The answer.

    Raises:
        ValueError: the text is no question of a known kind, or has no answer.
    """
    *facts, question = prompt.split("\n")
    asked = question.split("? ")[0]
    if match := re.fullmatch(r"What is the value of (\w+)\((\w+)\)", asked):
        known = dict(line.split(" = ") for line in facts)
        return known[f"{known[match[1]]}({known[match[2]]})"]
    if match := re.fullmatch(r"What is the value of (\w+)", asked):
        return _follow(dict(line.split(" = ") for line in facts), match[1])
    if match := re.fullmatch(r"Who has (\w+)", asked):
        told = (re.fullmatch(r"(\w+) (?:lives in|believe in|eat|contains|causes) (\w+)\.", line) for line in facts)
        return _follow({_stem(m[2]): _stem(m[1]) for m in told if m}, _stem(match[1])).capitalize()
    if match := re.fullmatch(r"Where does (\w+) live", asked):
        if "works as" not in prompt:
            return _follow(dict(re.split(" lives in | lives with ", line) for line in facts), match[1])
        return _relatives(prompt, match[1])
    raise ValueError(f"not a known question: {question}")


def _follow(known: dict[str, str], at: str) -> str:
    seen = {at}
    while at in known:
        at = known[at]
        if at in seen:
            raise ValueError(f"{at} leads back to itself")
        seen.add(at)
    return at


def _stem(word: str) -> str:
    """What is common to a kingdom and its people, a belief and its believers, a meat at the start of a line."""
    return re.sub(r"(ism|ists|ns)$", "", word).lower().removesuffix("a") if len(word) > 3 else word.lower()


def _relatives(prompt: str, who: str) -> str:
    def told(pattern: str) -> str:
        found = re.findall(pattern, prompt, re.MULTILINE)
        if len(found) != 1:
            raise ValueError(f"{len(found)} lines say {pattern}")
        return str(found[0])

    job = told(rf"^{who} works as an? (\w+)\.$")
    kin = told(rf"^{job.capitalize()}s live with their (\w+)s\.$")
    host = told(rf"^{who}s {kin} is (\w+)\.$")
    return told(rf"^{host} lives in (\w+)\.$")
