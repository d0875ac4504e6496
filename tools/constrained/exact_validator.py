"""PyPI's jsonschema with numbers as they are written, and what a text of JSON is for readers that differ.

    problem = exact_validator.violation(schema, '{"a": 1.10}')     # None: the text satisfies the schema

A text is read twice: with decimals of any length, and with doubles, as most readers have them. Of members of one name
the last counts; first=True takes the first.
"""
import decimal
import json
import sys

import jsonschema
from jsonschema import validators

CONTEXT = decimal.Context(prec=2000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def is_number(value):
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def is_whole(value):
    if not is_number(value):
        return False
    number = decimal.Decimal(value)
    if not number.is_finite():
        return False
    return number.as_tuple().exponent >= 0 or remainder(number, decimal.Decimal(1)) == 0


def remainder(value, unit):
    """0 where the quotient has more digits than anybody reads."""
    try:
        return CONTEXT.remainder(value, unit)
    except decimal.InvalidOperation:
        return 0


def multiple_of(_, step, instance, __):
    if not is_number(instance):
        return
    value, unit = (decimal.Decimal(str(number)) for number in (instance, step))
    if remainder(value, unit) != 0:
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {step!r}")


BASE = jsonschema.Draft202012Validator
Validator = validators.extend(
    BASE, {"multipleOf": multiple_of},
    type_checker=BASE.TYPE_CHECKER.redefine("integer", lambda _, value: is_whole(value)))


def first_wins(pairs):
    members = {}
    for name, value in pairs:
        members.setdefault(name, value)
    return members


def read(text, exact, first):
    return json.loads(text, parse_float=decimal.Decimal if exact else float,
                      object_pairs_hook=first_wins if first else None)


def violation(schema, text, first=False):
    sys.set_int_max_str_digits(0)
    for exact in (True, False):
        try:
            value = read(text, exact, first)
        except decimal.InvalidOperation:  # an exponent beyond all bounds: doubles alone have a value for it
            continue
        except ValueError as problem:
            return f"no JSON: {problem}"
        checker = Validator(read(json.dumps(schema), exact, False), format_checker=Validator.FORMAT_CHECKER)
        try:
            errors = [error.message for error in checker.iter_errors(value)]
        except RecursionError:  # a schema that leads to itself says nothing
            return None
        if errors:
            return errors[0][:200] + ("" if exact else " (as doubles)")
    return None
