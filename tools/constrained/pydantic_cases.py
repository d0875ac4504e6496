#!/usr/bin/env python3
"""Schemas of common pydantic field types, with valid and invalid instances, for tools/constrained/compare.py.

    build/constrained-venv/bin/python tools/constrained/pydantic_cases.py DIR
    tools/constrained/compare.py DIR --tokenizer TOKENIZER_DIR

For each type a model with one field; its schema is pydantic's own (model_json_schema()), and so is the word on every
instance: what validate_json() takes is valid, both in strict and in lax mode, and what neither takes is invalid.
Instances about which the two differ are left out, because the schema does not say that a number may be text. The
package (pydantic, email-validator) is in the environment that compare.py makes.
"""
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import sys
import typing
import uuid

import pydantic
from pydantic import Field

Colour = enum.Enum("Colour", {"RED": "red", "BLUE": "blue"})
Level = enum.IntEnum("Level", {"LOW": 1, "HIGH": 2})


class Point(pydantic.BaseModel):
    x: int
    y: float = 0.0


class Tree(pydantic.BaseModel):
    name: str
    children: list["Tree"] = []


class Cat(pydantic.BaseModel):
    kind: typing.Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: typing.Literal["dog"]
    name: str


class Pair(typing.NamedTuple):
    a: int
    b: str


Bounded = lambda type_, **limits: typing.Annotated[type_, Field(**limits)]

TYPES = {
    "str": str, "int": int, "float": float, "bool": bool, "none": None, "any": typing.Any,
    "decimal": decimal.Decimal, "optional_int": typing.Optional[int], "int_or_str": typing.Union[int, str],
    "literal": typing.Literal["a", "b", 3], "enum": Colour, "int_enum": Level,
    "list_int": list[int], "set_int": set[int], "frozenset_str": frozenset[str], "tuple": tuple[int, str],
    "tuple_any_length": tuple[int, ...], "named_tuple": Pair, "dict_str_int": dict[str, int], "dict_int_str": dict[int, str],
    "list": list, "dict": dict, "model": Point, "list_of_models": list[Point], "recursive_model": Tree,
    "tagged_union": typing.Annotated[typing.Union[Cat, Dog], Field(discriminator="kind")],
    "date": datetime.date, "datetime": datetime.datetime, "time": datetime.time, "timedelta": datetime.timedelta,
    "uuid": uuid.UUID, "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address, "email": pydantic.EmailStr,
    "url": pydantic.AnyUrl, "json": pydantic.Json, "bytes": bytes, "path": pathlib.Path,
    "pattern": Bounded(str, pattern=r"^[A-Z]{2}-\d{3}$"), "bounded_str": Bounded(str, min_length=2, max_length=5),
    "bounded_int": Bounded(int, ge=0, le=100), "exclusive_float": Bounded(float, gt=0, lt=1),
    "multiple_of": Bounded(int, multiple_of=5), "bounded_list": Bounded(list[int], min_length=1, max_length=3),
    "positive_int": pydantic.PositiveInt, "future_date": pydantic.FutureDate,
}

VALUES = [
    None, True, False, 0, 1, 2, 3, 5, 7, 100, 101, -1, 0.5, 1.5, "", "a", "b", "red", "blue", "green", "ab", "abcdef", "AB-123",
    "AB-12", "12.50", [], [1], [1, 2, 3], [1, 2, 3, 4], [1, "x"], ["x", "y"], ["x", 1], [[1]], {}, {"a": 1}, {"a": "x"}, {"1": "x"},
    {"x": 1}, {"x": 1, "y": 2.5}, {"y": 1.0}, [{"x": 1}, {"x": 2, "y": 0.5}], {"name": "root", "children": []},
    {"name": "root", "children": [{"name": "leaf", "children": []}]}, {"name": 1}, {"kind": "cat", "lives": 9},
    {"kind": "dog", "name": "Rex"}, {"kind": "cat", "name": "Rex"}, "2024-02-29", "2023-13-01", "2024-02-29T12:30:00Z",
    "2024-02-29T12:30:00.25+02:00", "12:30:00Z", "25:00:00", "P1DT2H", "P", "123e4567-e89b-12d3-a456-426614174000", "not-a-uuid",
    "192.168.0.1", "256.1.1.1", "2001:db8::1", "2001:db8:::1", "a.writer@example.com", "a.writer@", "https://example.com/a?b=c#d",
    "://", "{\"a\":1}", "{", "/tmp/file.txt", "2999-01-01",
]


def takes(model, text, strict):
    try:
        model.model_validate_json(text, strict=strict)
        return True
    except pydantic.ValidationError:
        return False


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, type_ in TYPES.items():
        model = pydantic.create_model("Model", field=(type_, ...))
        tests = []
        for value in VALUES:
            text = json.dumps({"field": value})
            strict, lax = takes(model, text, True), takes(model, text, False)
            if strict == lax:
                tests.append({"valid": lax, "data": {"field": value}})
        tests += [{"valid": False, "data": {}}, {"valid": False, "data": {"other": 1}}]
        content = {"schema": model.model_json_schema(), "tests": tests}
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1))
        print(f"{name}: {sum(test['valid'] for test in tests)} valid, {len(tests)} in all")


if __name__ == "__main__":
    main()
