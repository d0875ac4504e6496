"""What the tests of a server demand of one rank, of two lanes: draining, scores and an operator's commands. The whole set,
on ranks and on lanes, is tools/ranks_serving.sh."""
import os
import pathlib
import sys
import unittest

os.environ["FATHOM_TEST_FLAGS"] = "--tp-size 2 --enable-dp-attention --dp-size 2"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from drain_test import DrainTest  # noqa: E402,F401
from serve_score_test import ScoreTest  # noqa: E402,F401

if __name__ == "__main__":
    unittest.main()
