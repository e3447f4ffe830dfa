"""Answer questions from their text alone, independently of the code that makes them.

``solve`` splits every line into names and follows them. It shows that a question has exactly one answer.
"""

import re


def solve(prompt: str) -> str:
    """Return the answer of a question.

    Raises:
        KeyError: a symbol is not defined.
        ValueError: the text is not a question of a known kind, or has no answer.
    """
    *facts, question = prompt.split("\n")
    asked = question.split("? ")[0]
    if match := re.fullmatch(r"What is the value of (\w+)\((\w+)\)", asked):
        known = dict(line.split(" = ") for line in facts)
        return known[f"{known[match[1]]}({known[match[2]]})"]
    if match := re.fullmatch(r"What is the value of (\w+)", asked):
        return _follow(dict(line.split(" = ") for line in facts), match[1])
    if match := re.fullmatch(r"Who has (\w+)", asked):
        matches = (re.fullmatch(r"(\w+) (?:lives in|believe in|eat|contains|causes) (\w+)\.", line) for line in facts)
        return _follow({_stem(m[2]): _stem(m[1]) for m in matches if m}, _stem(match[1])).capitalize()
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
    """Return the common stem of a kingdom and its people, of a belief and its believers, or of a capitalised word."""
    return re.sub(r"(ism|ists|ns)$", "", word).lower().removesuffix("a") if len(word) > 3 else word.lower()


def _relatives(prompt: str, who: str) -> str:
    def the_one(pattern: str) -> str:
        found = re.findall(pattern, prompt, re.MULTILINE)
        if len(found) != 1:
            raise ValueError(f"{len(found)} lines match {pattern}; expected one")
        return str(found[0])

    job = the_one(rf"^{who} works as an? (\w+)\.$")
    kin = the_one(rf"^{job.capitalize()}s live with their (\w+)s\.$")
    host = the_one(rf"^{who}s {kin} is (\w+)\.$")
    return the_one(rf"^{host} lives in (\w+)\.$")
