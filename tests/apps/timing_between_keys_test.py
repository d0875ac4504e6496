"""No key learns by time what another sent; tests/apps/timing_between_keys.py has more pairs."""
import sys
import unittest

import timing_between_keys
from serving_process import ROOT

sys.path.insert(0, str(ROOT / "tests" / "clients"))
import skipping  # noqa: E402

PAIRS = 20


class TimingBetweenKeys(unittest.TestCase):
    def test_what_another_key_sent_is_told_apart_by_chance_alone(self):
        rows = timing_between_keys.measure(PAIRS)
        least, most = timing_between_keys.chance(PAIRS)
        for name, (others, _) in rows.items():
            self.assertTrue(least <= others <= most, (name, rows))
        # What is kept does save time, so the pairs would tell.
        for name in ("refused grammars", "prefixes"):
            self.assertGreater(rows[name][1], most, (name, rows))


if __name__ == "__main__":
    skipping.main()
