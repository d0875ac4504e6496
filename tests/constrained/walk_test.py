"""Random texts of generated schemas, a small share of what tools/constrained/walk.py writes: each satisfies its schema."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "clients"), str(ROOT / "tools" / "constrained")]

import venv_python

venv_python.enter("openai2")  # jsonschema is among what its packages need

import exact_validator
import generated_schemas


class WalkTest(unittest.TestCase):
    def test_no_text_breaks_its_schema(self):
        command = [sys.executable, ROOT / "tools/constrained/walk.py", "--engines", "ours", "--tokenizer",
                   ROOT / "models/demo", "--schemas", "250", "--walks", "6", "--binary", os.environ["FATHOM_PROGRAM"]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        row = next(line for line in done.stdout.splitlines() if line.startswith("| ours |"))
        compiled, refused, finished, unfinished, stuck, lies = map(int, row.split("|")[2:8])
        self.assertEqual(compiled + refused, 250, row)
        self.assertGreater(compiled, 200, row)
        self.assertGreater(finished, 5 * compiled, row)
        self.assertLess(unfinished, finished / 10, row)
        self.assertEqual((stuck, lies), (0, 0), row)


class ValidatorTest(unittest.TestCase):
    """The judge finds what is wrong."""

    def test_lies_are_found(self):
        for schema, text in (({"type": "integer"}, "1.5"), ({"maximum": 0.3}, "0.31"), ({"multipleOf": 0.1}, "0.35"),
                             ({"exclusiveMinimum": 0.1}, "0.10000000000000000001"), ({"format": "ipv4"}, '"1.2.3"'),
                             ({"type": "object", "additionalProperties": False}, '{"a": 1}'), ({}, '{"a": }'),
                             ({"required": ["a"]}, "{}"), ({"pattern": "^a$"}, '"ab"')):
            self.assertIsNotNone(exact_validator.violation(schema, text), text)
        twice = {"properties": {"a": {"type": "null"}}}
        self.assertIsNone(exact_validator.violation(twice, '{"a": 1, "a": null}'))
        self.assertIsNotNone(exact_validator.violation(twice, '{"a": 1, "a": null}', first=True))

    def test_what_fits_passes(self):
        for schema, text in (({"type": "integer"}, "1.0"), ({"multipleOf": 0.1}, "0.3"), ({"maximum": 1e25}, "1" * 25),
                             ({"type": "number"}, "1e300"), ({"enum": [1]}, "1.0")):
            self.assertIsNone(exact_validator.violation(schema, text), text)

    def test_a_number_always_makes_the_same_schema(self):
        self.assertEqual(generated_schemas.make(7), generated_schemas.make(7))
        self.assertEqual(len({str(generated_schemas.make(number)) for number in range(200)}) > 150, True)


if __name__ == "__main__":
    unittest.main()
