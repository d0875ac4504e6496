"""JSON schema for the tests, straight from the specification: oneOf means exactly one.

    problem = violation(schema, value)      # None: the value satisfies the schema
"""
import re

TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and v == int(v),
}
ANNOTATIONS = {"title", "description", "$defs", "discriminator", "strict"}
BOUNDS = {
    "minimum": ("number", lambda v, n: v >= n), "maximum": ("number", lambda v, n: v <= n),
    "exclusiveMinimum": ("number", lambda v, n: v > n), "exclusiveMaximum": ("number", lambda v, n: v < n),
    "minLength": ("string", lambda v, n: len(v) >= n), "maxLength": ("string", lambda v, n: len(v) <= n),
    "pattern": ("string", lambda v, n: re.search(n, v)),
    "minItems": ("array", lambda v, n: len(v) >= n), "maxItems": ("array", lambda v, n: len(v) <= n),
    "required": ("object", lambda v, n: all(name in v for name in n)),
}
COUNTS = {"anyOf": lambda n, all: n >= 1, "oneOf": lambda n, all: n == 1, "allOf": lambda n, all: n == all}


def equal(a, b):
    """True is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return a == b


def violation(schema, value, root=None):
    root = schema if root is None else root
    if isinstance(schema, bool):
        return None if schema else "false"
    for key, rule in schema.items():
        problem = keyword_violation(schema, key, rule, value, root)
        if problem:
            return problem
    return None


def keyword_violation(schema, key, rule, value, root):
    if key in ANNOTATIONS:
        return None
    if key == "type":
        names = rule if isinstance(rule, list) else [rule]
        fits = any(TYPES[name](value) for name in names)
    elif key == "const":
        fits = equal(value, rule)
    elif key == "enum":
        fits = any(equal(value, one) for one in rule)
    elif key in BOUNDS:
        kind, holds = BOUNDS[key]
        fits = not TYPES[kind](value) or holds(value, rule)
    elif key in COUNTS:
        fits = COUNTS[key](sum(violation(part, value, root) is None for part in rule), len(rule))
    elif key == "$ref":
        target = root
        for step in rule.removeprefix("#").split("/")[1:]:
            target = target[step]
        fits = violation(target, value, root) is None
    elif key in ("properties", "additionalProperties"):
        return member_violation(schema, key, rule, value, root)
    elif key == "items":
        rest = value[len(schema.get("prefixItems", [])):] if isinstance(value, list) else []
        fits = all(violation(rule, item, root) is None for item in rest)
    elif key == "prefixItems":
        pairs = zip(rule, value) if isinstance(value, list) else []
        fits = all(violation(part, item, root) is None for part, item in pairs)
    else:
        raise AssertionError(f"the validator lacks {key}")
    return None if fits else f"{key}: {value!r}"


def member_violation(schema, key, rule, value, root):
    listed = schema.get("properties", {})
    for name, member in value.items() if isinstance(value, dict) else ():
        if (name in listed) != (key == "properties"):
            continue
        problem = violation(rule[name] if key == "properties" else rule, member, root)
        if problem:
            return f"{name}/{problem}"
    return None
