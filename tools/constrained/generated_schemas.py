"""JSON schemas made at random, the same for the same seed, of the kinds that constrained output has to keep.

    for number in range(1000):
        schema = generated_schemas.make(number)

Every schema is valid in draft 2020-12. Most have values; some have none.
"""
import random

NAMES = ["a", "ab", "b", "kind", "x-1", "é", "n\"q", "deep", ""]
WORDS = ["red", "green", "a", "", "é\n", "\"", "null", "1"]
PATTERNS = ["^[a-z]{2,4}$", "[0-9]", "^(a|bc)*$", "^x", "y$", "^[^a]{1,3}$", "^\\S+$", "\\d{2}", "^.{2}$", "(?i)^ok$",
            "^\\w+$", "a.*b", "^(?!ab)[a-c]+$"]
FORMATS = ["date", "ipv4", "ipv6", "uuid", "email", "date-time", "time", "regex"]
BOUNDS = [-7, -1, 0, 1, 3, 12, 130, 0.25, -2.5, 99.5, 1000, 12345678901234567890, -1e20, 1e25, 2.5e-7]
STEPS = [1, 2, 3, 7, 10, 0.5, 0.25, 0.1, 2.5, 100]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.definitions = {}

    def some(self, chance):
        return self.random.random() < chance

    def pick(self, values):
        return self.random.choice(values)

    def schema(self, depth):
        kinds = [self.string, self.number, self.integer, self.listed, self.plain]
        if depth > 0:
            kinds += [self.array, self.object, self.object, self.either, self.all_of, self.conditional, self.reference]
        return self.pick(kinds)(depth)

    def plain(self, _):
        return self.pick([{"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}, {}, True,
                          {"type": ["integer", "boolean"]}, {"type": "string"}, {"type": "number"}])

    def listed(self, _):
        values = [self.pick(WORDS), self.pick(WORDS), self.random.randint(-3, 1200), None, True, [1, "a"], {"k": [{}]},
                  1.5]
        if self.some(0.3):
            return {"const": self.pick(values)}
        some = []
        for value in self.random.sample(values, self.random.randint(1, 4)):
            if value not in some:
                some.append(value)
        return {"enum": some}

    def string(self, _):
        schema = {"type": "string"}
        if self.some(0.35):
            schema["pattern"] = self.pick(PATTERNS)
        elif self.some(0.2):
            schema["format"] = self.pick(FORMATS)
        if self.some(0.3):
            schema["minLength"] = self.random.randint(0, 4)
        if self.some(0.4):
            schema["maxLength"] = schema.get("minLength", 0) + self.random.randint(0, 6)
        if self.some(0.1):
            schema["not"] = self.pick([{"enum": ["red", ""]}, {"pattern": "^a"}, {"maxLength": 1}])
        return schema

    def bounds(self, schema):
        low, high = sorted([self.pick(BOUNDS), self.pick(BOUNDS)])
        if self.some(0.5):
            schema[self.pick(["minimum", "exclusiveMinimum"])] = low
        if self.some(0.5):
            schema[self.pick(["maximum", "exclusiveMaximum"])] = high
        if self.some(0.25):
            schema["multipleOf"] = self.pick(STEPS)
        return schema

    def number(self, _):
        return self.bounds({"type": "number"})

    def integer(self, _):
        schema = self.bounds({"type": "integer"})
        if self.some(0.1):
            schema["not"] = {"enum": [0, 1, 7]}
        return schema

    def array(self, depth):
        schema = {"type": "array"}
        if self.some(0.75):
            schema["items"] = self.schema(depth - 1)
        if self.some(0.3):
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))]
        if self.some(0.3):
            schema["minItems"] = self.random.randint(0, 3)
        if self.some(0.4):
            schema["maxItems"] = schema.get("minItems", 0) + self.random.randint(0, 3)
        if self.some(0.1):
            schema["contains"] = self.schema(0)
        if self.some(0.1):
            schema["items"] = {"enum": ["a", "b", 1, None]}
            schema["uniqueItems"] = True
        return schema

    def object(self, depth):
        schema = {"type": "object"}
        names = self.random.sample(NAMES, self.random.randint(0, 4))
        if names:
            schema["properties"] = {name: self.schema(depth - 1) for name in names}
        if self.some(0.6):
            required = self.random.sample(names, self.random.randint(0, len(names)))
            schema["required"] = required + (["more"] if self.some(0.1) else [])
        if self.some(0.4):
            schema["additionalProperties"] = self.pick([False, True, {"type": "integer"}, {"type": "string"}])
        if self.some(0.15):
            schema["patternProperties"] = {self.pick(["^x", "b$", "[0-9]"]): self.schema(0)}
        if self.some(0.08):
            schema["propertyNames"] = self.pick([{"pattern": "^[a-z]"}, {"maxLength": 2}, {"enum": ["a", "b", "more"]}])
        if self.some(0.1):
            schema["minProperties"] = self.random.randint(0, 2)
        if self.some(0.15):
            schema["maxProperties"] = schema.get("minProperties", 0) + self.random.randint(0, 2)
        if self.some(0.12) and len(names) > 1:
            schema["dependentRequired"] = {names[0]: [names[1]]}
        if self.some(0.05):
            schema["unevaluatedProperties"] = False
        return schema

    def either(self, depth):
        ways = [self.schema(depth - 1) for _ in range(self.random.randint(2, 3))]
        schema = {self.pick(["anyOf", "oneOf"]): ways}
        if self.some(0.3):
            schema["type"] = self.pick(["object", "string", "integer"])
        return schema

    def all_of(self, depth):
        kind = self.pick([self.object, self.object, self.string, self.number, self.array])
        return {"allOf": [kind(depth - 1), kind(depth - 1)]}

    def conditional(self, depth):
        schema = self.object(depth - 1)
        name = self.pick(NAMES)
        schema["if"] = self.pick([{"required": [name]}, {"properties": {name: {"const": 1}}, "required": [name]}])
        schema["then"] = {"required": [self.pick(NAMES)]}
        if self.some(0.5):
            schema["else"] = self.pick([{"maxProperties": 2}, {"properties": {name: False}}])
        return schema

    def reference(self, depth):
        name = self.pick(["one", "two"])
        if name not in self.definitions:
            self.definitions[name] = True  # while it is made: it may refer to itself
            self.definitions[name] = self.pick(
                [lambda: self.schema(depth - 1),
                 lambda: {"type": "object", "properties": {"v": self.schema(0), "next": {"$ref": "#/$defs/" + name}},
                          "required": ["v"]},
                 lambda: {"type": "array", "items": {"$ref": "#/$defs/" + name}, "maxItems": 2}])()
        return {"$ref": "#/$defs/" + name}


def make(seed, depth=3):
    maker = Maker(seed)
    schema = maker.schema(maker.random.randint(1, depth))
    if maker.definitions:
        schema = schema if isinstance(schema, dict) else {}
        schema["$defs"] = maker.definitions
    return schema
