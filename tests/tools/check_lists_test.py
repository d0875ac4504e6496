"""tools/check_lists.py finds lists in braces that are arguments under a condition, and nothing else."""
import sys
import unittest

from tree import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import check_lists  # noqa: E402

FOUND = ["return c ? one : sequence({one, two});", "x = c ? sequence({one}) : two;", "ok = c && is(sequence({one, two}));",
         "if (c || value == array({1, 2})) return;", "f(a, c ? g({x, y}) : z);", "list.add(c ? lone : h(k, sequence({\n  one, two})));"]
SOUND = ["if (c) return sequence({one, two});", "if (a && b) { x = sequence({one, two}); }", "return f(c ? a : b, sequence({one}));",
         "x = c ? choice({}) : rule({.min = 1});", "auto f = [&](T&& x) { return g({x, x}); };", "y = c ? all([&] { return g({x, y}); }) : z;",
         "// c ? a : g({x})\nint i = 0;", 'say("c ? a : g({x})");', "x = c ? a : b; y = g({x, x});"]


class ConditionalListsTest(unittest.TestCase):
    def test_finds_each_form(self):
        for statement in FOUND:
            self.assertEqual(len(check_lists.conditional_lists(f"void f() {{\n{statement}\n}}\n")), 1, statement)

    def test_lets_others_be(self):
        for statement in SOUND:
            self.assertEqual(check_lists.conditional_lists(f"void f() {{\n{statement}\n}}\n"), [], statement)

    def test_names_the_line(self):
        self.assertEqual(check_lists.conditional_lists("int a;\nauto b = a ? f() : g({a, a});\n"), [2])


if __name__ == "__main__":
    unittest.main()
