"""The soak for seconds; tests/apps/soak.py has the long form."""
import sys
import unittest

import soak
from serving_process import ROOT

sys.path.insert(0, str(ROOT / "tests" / "clients"))
import skipping  # noqa: E402


class SoakTest(unittest.TestCase):
    def test_nothing_is_lost_or_different_whatever_runs_beside_it(self):
        result = soak.soak(6)
        self.assertTrue(soak.is_good(result), result)


if __name__ == "__main__":
    skipping.main()
