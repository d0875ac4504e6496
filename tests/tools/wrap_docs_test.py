"""tools/wrap_docs.py wraps prose, and nothing that is to be read line by line."""
import sys
import unittest

from tree import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from wrap_docs import WIDTH, wrapped  # noqa: E402

LONG = "word " * 40


class WrapDocsTest(unittest.TestCase):
    def test_prose_and_items_end_in_time_and_keep_their_indents(self):
        for text, indent in ((LONG, ""), (f"- {LONG}", "  "), (f"1. {LONG}", "   "), (f"- one\n\n  {LONG}", "  ")):
            lines = wrapped(text + "\n").splitlines()
            self.assertLessEqual(max(map(len, lines)), WIDTH)
            self.assertTrue(lines[-1].startswith(indent + "word"), lines[-1])
            self.assertEqual(" ".join(wrapped(text).split()), " ".join(text.split()))

    def test_code_tables_quotes_and_headings_stay(self):
        code = f"    first {LONG}\n    second\n"
        for text in (f"Do:\n\n{code}\nThen.\n", f"- item\n\n# Part\n\n{code}", f"- item\n\nText.\n\n{code}",
                     f"```\na\n{LONG}\n```\n", f"| {LONG}|\n|---|\n", f"> {LONG}\n> more\n", f"# {LONG}\n"):
            self.assertEqual(wrapped(text), text)

    def test_nothing_changes_that_is_wrapped(self):
        once = wrapped(f"{LONG}\n\n- {LONG}\n- b\n\n  {LONG}\n")
        self.assertEqual(wrapped(once), once)


if __name__ == "__main__":
    unittest.main()
