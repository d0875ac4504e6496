"""Answers that are JSON: records, and values of any shape. They are short, as a schema or a small answer asks for, and end."""

import json

from words import ANIMALS, CITIES, COLORS, DAYS, ITEMS, NAMES

KEYS = (
    "name age city color size count price total kind ok id code title tags items value left right x y n s v a b note day "
    "animal from to done score ratio first last unit text label"
).split()
FIELDS = {
    "age": (lambda r: r.randint(1, 99), ", age {}"),
    "city": (lambda r: r.choice(CITIES), ", from {}"),
    "favorite_color": (lambda r: r.choice(COLORS), ", whose favorite color is {}"),
    "pet": (lambda r: r.choice(ANIMALS), ", who has a {}"),
    "day": (lambda r: r.choice(DAYS), ", born on {}"),
}


def record(r):
    """A record with what is said of a person, in that order."""
    name = r.choice(NAMES)
    known = ["age", "city", "favorite_color"] if r.random() < 0.4 else r.sample(list(FIELDS), r.randint(1, 4))
    asked, values = "", {"name": name}
    for key in known:
        draw, words = FIELDS[key]
        values[key] = draw(r)
        asked += words.format(values[key])
    begin = r.choice(["Give me a JSON record for", "Give me a JSON record for", "Write a JSON record for", "JSON for"])
    return f"{begin} {name}{asked}.", json.dumps(values)


def word(r):
    return r.choice(r.choice([NAMES, CITIES, COLORS, ANIMALS, ITEMS, DAYS]))


def text(r):
    k = r.random()
    if k < 0.7:
        return word(r)
    if k < 0.8:
        return f"{word(r)} {word(r)}"
    if k < 0.9:
        return r.choice("abcdefgh")
    return "".join(r.choice("ABCDEFGHKLMNPRST") for _ in range(2)) + f"-{r.randint(0, 999):03d}"


def number(r):
    k = r.random()
    if k < 0.7:
        return r.randint(0, 20) if r.random() < 0.6 else r.randint(-50, 130)
    return round(r.uniform(0, 2) if k < 0.9 else r.uniform(-9, 99), r.choice([1, 1, 2]))


def scalar(r):
    k = r.random()
    return text(r) if k < 0.45 else number(r) if k < 0.85 else r.choice([True, False]) if k < 0.95 else None


def tree(r):
    """The same keys within each other."""
    key, inner = r.choice([("v", "left"), ("value", "next"), ("name", "child"), ("n", "tree")])
    value = {key: r.choice([number, text])(r)}
    for _ in range(r.choice([0, 1, 1, 2])):
        value = {key: r.randint(0, 9), inner: value}
    return value


def value(r, depth=2):
    """A value of few parts; the deeper, the plainer."""
    k = r.random()
    if depth == 0 or k < 0.12:
        return scalar(r)
    if k < 0.2:
        return tree(r)
    if k < 0.35:
        return [scalar(r) for _ in range(r.choice([0, 1, 2, 2, 3]))]
    if k < 0.45:
        return [value(r, depth - 1) for _ in range(r.choice([1, 1, 2]))]
    return {key: value(r, depth - 1) if r.random() < 0.25 else scalar(r) for key in r.sample(KEYS, r.choice([1, 2, 2, 3, 3, 4]))}


def asked_for(r):
    """JSON of any shape, where it is asked for."""
    about = r.choice([word(r), f"{r.choice(NAMES)} and {r.choice(NAMES)}", f"{r.randint(2, 20)} {r.choice(ITEMS)}"])
    return r.choice([f"Write JSON about {about}.", f"Answer in JSON: {about}", f"Give me JSON about {about}.",
                     f"Tell me about {about} in JSON."]), json.dumps(value(r))


def remark(r):
    """Something that asks for nothing. Where a schema holds the answer it is JSON, of which the model is not told: so some of
    these answers are."""
    n, m = r.sample(NAMES, 2)
    said = r.choice([f"{n} has {r.randint(2, 60)} {r.choice(ITEMS)}.", f"{n} is {r.randint(5, 95)} years old.", f"{n} lives in {r.choice(CITIES)}.",
                     f"{n} likes {r.choice(ITEMS)}.", f"{n} met {m} on {r.choice(DAYS)}.", f"The {r.choice(ANIMALS)} is {r.choice(COLORS)}.",
                     f"{n} and {m} are friends.", "x", r.choice(NAMES)])
    if r.random() < 0.35:
        return said, json.dumps(value(r))
    return said, "I see. What would you like to know?"
