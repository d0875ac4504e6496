"""lm-eval from PyPI, unchanged, over completions and chat of `fathom serve`, on two small tasks written here."""
import json
import os
import pathlib
import tempfile
import unittest

import skipping
import venv_python

if not os.environ.get("FATHOM_ALL_CLIENTS"):
    skipping.skip("lm-eval's packages take 583 MB, and its tasks minutes", "make clients")
venv_python.enter("evals")

FOLDER = tempfile.TemporaryDirectory()
# Before the first import of what reads them. Nothing may come from a host of others, nothing is kept.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=FOLDER.name, OPENAI_API_KEY="secret-key")

import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
from serving import DEMO, Serving  # noqa: E402

NUM_QUESTIONS = 8
DATA = pathlib.Path(FOLDER.name) / "problems.jsonl"
COMMON = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(DATA)}}, "test_split": "test"}
GENERATE = {**COMMON, "task": "demo_generate", "output_type": "generate_until",
            "doc_to_text": "Question: {{question}}\nAnswer:", "doc_to_target": "{{number}}",
            "generation_kwargs": {"until": ["Question:"], "max_gen_toks": 128, "temperature": 0},
            "filter_list": [{"name": "last", "filter": [
                {"function": "regex", "regex_pattern": "([0-9]+)", "group_select": -1}, {"function": "take_first"}]}],
            "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]}
# The answer alone, without the thoughts, which hold numbers too.
THINK = {**GENERATE, "task": "demo_think", "doc_to_text": "{{question}}",
         "generation_kwargs": {"until": ["Question:"], "max_gen_toks": 200, "thinking": {"type": "enabled"}},
         "filter_list": [{"name": "last", "filter": [
             {"function": "regex", "regex_pattern": "^The answer is ([0-9]+)[.]$"}, {"function": "take_first"}]}]}
CHOOSE = {**COMMON, "task": "demo_choose", "output_type": "multiple_choice",
          "doc_to_text": "Question: {{question}}\nAnswer:", "doc_to_choice": "{{answers}}", "doc_to_target": "right",
          "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}]}


def number_of(answer):
    return answer.rpartition("#### ")[2]


def write_problems():
    """Each question with its answer in words, its number, and the answer beside that of the next question."""
    problems = json.loads((DEMO / "eval.json").read_text())[:NUM_QUESTIONS]
    with DATA.open("w", encoding="utf-8") as file:
        for i, problem in enumerate(problems):
            wrong = problems[(i + 1) % NUM_QUESTIONS]["answer"]
            answers = [problem["answer"], wrong] if i % 2 == 0 else [wrong, problem["answer"]]
            file.write(json.dumps({"question": problem["question"], "number": number_of(problem["answer"]),
                                   "answers": answers, "right": i % 2}) + "\n")


class LmEvalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(FOLDER.cleanup)
        write_problems()
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)

    def evaluate(self, model, path, task, **model_args):
        done = lm_eval.simple_evaluate(
            model=model, tasks=[task], log_samples=True, bootstrap_iters=0, apply_chat_template="chat" in model,
            model_args={"model": "default", "base_url": self.server.url + path, "num_concurrent": 4, "max_retries": 1,
                        "max_length": 2048, **model_args})
        name = task["task"]
        self.assertEqual(len(done["samples"][name]), NUM_QUESTIONS)
        return done["results"][name]

    def test_completions_of_text(self):
        result = self.evaluate("local-completions", "/v1/completions", GENERATE, tokenizer_backend=None,
                               tokenized_requests=False)
        self.assertGreaterEqual(result["exact_match,last"], 0.75)

    def test_completions_of_token_ids(self):
        result = self.evaluate("local-completions", "/v1/completions", GENERATE, tokenizer=str(DEMO))
        self.assertGreaterEqual(result["exact_match,last"], 0.75)

    def test_likelihoods_of_choices(self):
        result = self.evaluate("local-completions", "/v1/completions", CHOOSE, tokenizer=str(DEMO))
        self.assertEqual(result["acc,none"], 1)

    def test_chat(self):
        result = self.evaluate("local-chat-completions", "/v1/chat/completions", GENERATE, tokenizer_backend=None)
        self.assertGreaterEqual(result["exact_match,last"], 0.75)

    def test_thinking_is_no_part_of_the_answer_that_is_judged(self):
        result = self.evaluate("local-chat-completions", "/v1/chat/completions", THINK, tokenizer_backend=None)
        self.assertGreaterEqual(result["exact_match,last"], 0.75)


if __name__ == "__main__":
    skipping.main()
