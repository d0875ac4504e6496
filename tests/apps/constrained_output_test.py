"""Constrained outputs over HTTP: `fathom serve` on the demo model, every answer checked by an independent validator.

Two servers. One has room for everything. The other has a cache so small that requests are retracted and read again
while they are constrained, no overlap, and --constrain-tool-calls.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import unittest
import urllib.error
import urllib.request

from json_schema_check import violation

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["FATHOM_PROGRAM"]
MAX_TOKENS = 160
SETTINGS = [{"temperature": 0}, {"temperature": 1, "seed": 11}, {"temperature": 1, "seed": 12}]

PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"], "properties": {
    "name": {"type": "string", "minLength": 2, "maxLength": 12},
    "age": {"type": "integer", "minimum": 0, "maximum": 130},
    "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3}}}
SCHEMAS = [
    PERSON,
    {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}, "x": {"type": "null"}},
     "additionalProperties": {"type": "integer"}},
    {"type": "array", "minItems": 1, "maxItems": 3, "items": {"oneOf": [
        {"type": "object", "required": ["kind"], "additionalProperties": False,
         "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}},
        {"type": "object", "required": ["kind", "s"], "additionalProperties": False,
         "properties": {"kind": {"const": "b"}, "s": {"type": "string", "maxLength": 5}}}, {"type": "null"}]}},
    {"$defs": {"tree": {"type": "object", "required": ["v"], "additionalProperties": False, "properties": {
        "v": {"type": "integer", "minimum": 0, "maximum": 9}, "left": {"$ref": "#/$defs/tree"}}}},
     "$ref": "#/$defs/tree"},
    {"type": "object", "required": ["code", "ratio"], "additionalProperties": False, "properties": {
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        "ratio": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 1.5}}},
]
PATTERN = r"(yes|no), [a-z]{1,12} (costs|is) [0-9]{1,3}(\.[0-9]{2})?"
RULES = 'root ::= item ("+" item){0,3} "=" [0-9]+ "."\nitem ::= [0-9]{1,3} | "(" item "+" item ")"\n'

TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
             "type": "object", "required": ["a", "b"], "additionalProperties": False, "properties": {
                 "a": {"type": "integer", "minimum": -50, "maximum": 50}, "b": {"type": "integer", "maximum": 9}}}}},
         {"type": "function", "function": {"name": "paint", "description": "Paints.", "parameters": {
             "type": "object", "required": ["color"], "additionalProperties": False, "properties": {
                 "color": {"enum": ["red", "blue"]}, "size": {"type": "number", "minimum": 0, "maximum": 2}}}}}]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}

QUESTION = "Question: Tom fills 4 bags with 5 apples each. How many apples does Tom use?\nAnswer:"


def is_sum(text):
    item = re.compile(r"\((\d{1,3})\+(\d{1,3})\)")
    while item.search(text):
        text = item.sub("1", text)
    return re.fullmatch(r"\d{1,3}(\+\d{1,3}){0,3}=\d+\.", text) is not None


class Server:
    def __init__(self, *flags):
        command = [PROGRAM, "serve", "--model-path", ROOT / "models" / "demo", "--port", "0", "--cpu-threads", "2",
                   "--log-level", "warning", *os.environ.get("FATHOM_TEST_FLAGS", "").split(), *flags]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("Fathom is ready: "), line
        self.url = line.split(": ", 1)[1].strip()

    def close(self):
        self.process.terminate()
        try:
            self.process.communicate(timeout=300)
        finally:
            self.process.kill()  # no-op once it has ended
            self.process.wait()
        return self.process.returncode

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=900) as answer:
            return answer.read().decode()

    def send(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=900) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def chat(self, body):
        """The choices as {text, reasoning, calls, finish}, from a stream as well as from a whole answer. A body with a
        prompt is continued instead."""
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        said = {} if "prompt" in body else {"messages": [{"role": "user", "content": "Tom has 3 apples."}]}
        body = {"model": "demo", **said, "max_tokens": MAX_TOKENS, **body}
        status, text = self.send(path, body)
        assert status == 200, text
        if not body.get("stream"):
            return [joined([said_in(choice)], choice["finish_reason"]) for choice in json.loads(text)["choices"]]
        choices = {}
        for line in text.splitlines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            for choice in event["choices"]:
                deltas, _ = choices.get(choice["index"], ([], None))
                choices[choice["index"]] = (deltas + [said_in(choice)], choice["finish_reason"])
        return [joined(*choices[index]) for index in sorted(choices)]


def said_in(choice):
    return choice.get("message") or choice.get("delta") or {"content": choice.get("text")}


def joined(deltas, finish):
    whole = {"text": "", "reasoning": "", "calls": {}, "finish": finish}
    for delta in deltas:
        whole["text"] += delta.get("content") or ""
        whole["reasoning"] += delta.get("reasoning_content") or ""
        for position, call in enumerate(delta.get("tool_calls") or []):
            known = whole["calls"].setdefault(call.get("index", position), {"name": "", "arguments": "", "id": ""})
            known["id"] += call.get("id") or ""
            known["name"] += call["function"].get("name") or ""
            known["arguments"] += call["function"].get("arguments") or ""
    return whole


class ConstrainedOutputTest(unittest.TestCase):
    FLAGS = ["--max-total-tokens", "16384"]

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.FLAGS)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.close() == 0

    def run_all(self, bodies, check, least_complete):
        """All at once; check() is for answers that were not cut."""
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(self.server.chat, bodies))
        complete = 0
        for body, choices in zip(bodies, answers):
            self.assertEqual(len(choices), body.get("n", 1))
            for choice in choices:
                with self.subTest(body=body, choice=choice):
                    if choice["finish"] == "length":
                        continue
                    complete += 1
                    check(body, choice)
        self.assertGreaterEqual(complete, least_complete * sum(body.get("n", 1) for body in bodies))

    def check_text(self, fits):
        def check(_, choice):
            self.assertEqual(choice["finish"], "stop")
            self.assertEqual(choice["calls"], {})
            self.assertTrue(fits(choice["text"]), choice["text"])
        return check

    def schema_bodies(self, schema, **more):
        form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema, "strict": True}}
        bodies = [{"response_format": form, **setting, **more} for setting in SETTINGS]
        return bodies + [{**bodies[1], "stream": True, "n": 2}]

    def test_schemas(self):
        for schema in SCHEMAS:
            self.run_all(self.schema_bodies(schema),
                         self.check_text(lambda text, schema=schema: violation(schema, json.loads(text)) is None), 0.5)

    def test_json_object(self):
        bodies = [{"response_format": {"type": "json_object"}, "stream": stream, "n": 2, "max_tokens": 300, **setting}
                  for setting in SETTINGS for stream in (False, True)]
        self.run_all(bodies, self.check_text(lambda text: isinstance(json.loads(text), dict)), 0)

    def test_pattern_and_rules(self):
        bodies = [{"regex": PATTERN, "stream": stream, **setting} for setting in SETTINGS for stream in (False, True)]
        self.run_all(bodies, self.check_text(lambda text: re.fullmatch(PATTERN, text)), 0.9)
        bodies = [{"ebnf": RULES, "stream": stream, **setting} for setting in SETTINGS for stream in (False, True)]
        self.run_all(bodies, self.check_text(is_sum), 0.2)

    def test_the_form_begins_behind_the_reasoning(self):
        bodies = self.schema_bodies(PERSON, chat_template_kwargs={"thinking": True}, max_tokens=500)
        # The demo model has never learnt to end a reasoning.
        bodies = [{**body, "logit_bias": {str(self.think_end()): 12}} for body in bodies]
        self.run_all(bodies, self.check_text(lambda text: violation(PERSON, json.loads(text)) is None), 0.3)

    def think_end(self):
        status, text = self.server.send("/tokenize", {"model": "demo", "prompt": "</think>",
                                                      "add_special_tokens": False})
        self.assertEqual(status, 200, text)
        tokens = json.loads(text)["tokens"]
        self.assertEqual(len(tokens), 1)
        return tokens[0]

    def test_native_requests(self):
        cases = [({"json_schema": json.dumps(PERSON)}, lambda text: violation(PERSON, json.loads(text)) is None),
                 ({"regex": PATTERN}, lambda text: re.fullmatch(PATTERN, text)), ({"ebnf": RULES}, is_sum)]
        complete = 0
        for grammar, fits in cases:
            for stream in (False, True):
                sampling = [{**grammar, "max_new_tokens": MAX_TOKENS, "temperature": t, "sampling_seed": t}
                            for t in (0, 1)]
                for params in sampling:
                    body = {"text": "Tom has", "sampling_params": params, "stream": stream}
                    status, text = self.server.send("/generate", body)
                    self.assertEqual(status, 200, text)
                    if stream:
                        text = [line[6:] for line in text.splitlines() if line.startswith("data: {")][-1]
                    answer = json.loads(text)
                    if answer["meta_info"]["finish_reason"]["type"] == "length":
                        continue
                    complete += 1
                    self.assertEqual(answer["meta_info"]["finish_reason"]["type"], "stop")
                    self.assertTrue(fits(answer["text"]), answer["text"])
        self.assertGreaterEqual(complete, 6)

    def test_structural_tags(self):
        sums = r"[0-9]{1,3}\*[0-9]{1,3}=[0-9]{1,3}"
        free = rf"(?s)(?:(?!<<).|<<{sums}>>)*"
        tag = {"type": "tag", "begin": "<<", "content": {"type": "regex", "pattern": sums}, "end": ">>"}
        tags = {"type": "triggered_tags", "triggers": ["<<"], "tags": [tag]}
        num_tags = 0

        def check(_, choice):
            nonlocal num_tags
            num_tags += choice["text"].count("<<")
            self.check_text(lambda text: re.fullmatch(free, text))(_, choice)
        # The demo model continues a question of this form with a sum between << and >>.
        body = {"prompt": QUESTION, "stop": "\n", "response_format": {"type": "structural_tag", "format": tags}}
        self.run_all([{**body, "stream": stream, **setting}
                      for setting in SETTINGS for stream in (False, True)], check, 0.5)
        self.assertGreater(num_tags, 0)
        first = {"response_format": {"type": "structural_tag", "format": {**tags, "at_least_one": True}}}
        self.run_all([{**first, **setting} for setting in SETTINGS], lambda body, choice: (
            check(body, choice), self.assertTrue(choice["text"].startswith("<<"), choice)), 0.3)
        thought = {"type": "tag", "begin": "<think>", "content": {"type": "const_string", "value": "Hm."},
                   "end": "</think>"}
        choice, = self.server.chat({"response_format": {"type": "structural_tag", "format": thought}})
        self.assertEqual((choice["reasoning"], choice["text"], choice["finish"]), ("Hm.", "", "stop"))

    def test_structural_tags_of_the_older_form(self):
        tag = {"type": "structural_tag", "triggers": ["<<"], "structures": [
            {"begin": "<<", "schema": {"enum": ["one", "two"]}, "end": ">>"}]}
        for value in (tag, json.dumps(tag)):
            sampling = {"structural_tag": value, "max_new_tokens": MAX_TOKENS, "temperature": 0}
            status, text = self.server.send("/generate", {"text": QUESTION, "sampling_params": sampling})
            self.assertEqual(status, 200, text)
            answer = json.loads(text)["text"]
            self.assertIn("<<", answer)
            self.assertRegex(answer, r'(?s)^(?:(?!<<).|<<"(one|two)">>)*(<<?("(o|on|one|one">?|t|tw|two|two">?)?)?)?$')

    def test_too_few_tokens_cut_the_text(self):
        for stream in (False, True):
            body = {**self.schema_bodies(PERSON)[0], "max_tokens": 5, "stream": stream}
            choice, = self.server.chat(body)
            self.assertEqual(choice["finish"], "length")
            self.assertTrue(choice["text"].startswith("{"), choice)

    def test_refusals_name_the_parameter(self):
        overlapping = {"oneOf": [{"type": "array", "uniqueItems": True}, {"type": "array", "minItems": 2}]}
        messages = [{"role": "user", "content": "x"}]
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": overlapping}}
        cases = [("/v1/chat/completions", {"messages": messages, "response_format": form}, "response_format", "oneOf"),
                 ("/v1/completions", {"prompt": "x", "response_format": form}, "response_format", "oneOf"),
                 ("/v1/chat/completions", {"messages": messages, "regex": "(a"}, "regex", "( without )"),
                 ("/generate", {"text": "x", "sampling_params": {"json_schema": json.dumps(overlapping)}},
                  "sampling_params.json_schema", "oneOf"),
                 ("/generate", {"text": "x", "sampling_params": {"regex": "(a"}}, "sampling_params.regex", "( without"),
                 ("/generate", {"text": "x", "sampling_params": {"ebnf": "root ::= x"}}, "sampling_params.ebnf", "x"),
                 ("/generate", {"text": "x", "sampling_params": {"structural_tag": {"format": {"type": "tag"}}}},
                  "sampling_params.structural_tag", "\"begin\" is missing"),
                 ("/v1/completions", {"prompt": "x", "response_format": {"type": "structural_tag"}}, "response_format",
                  "\"format\" is missing")]
        for path, body, parameter, word in cases:
            with self.subTest(path=path, parameter=parameter):
                status, text = self.server.send(path, {"model": "demo", **body})
                self.assertEqual(status, 400, text)
                error = json.loads(text)["error"]
                self.assertEqual(error["param"], parameter)
                self.assertIn(word, error["message"])

    def check_calls(self, body, choice):
        calls = list(choice["calls"].values())
        self.assertTrue(calls)
        self.assertEqual(choice["finish"], "tool_calls")
        self.assertEqual(len({call["id"] for call in calls}), len(calls))
        for call in calls:
            self.assertIsNone(violation(PARAMETERS[call["name"]], json.loads(call["arguments"])), call)
        if body.get("parallel_tool_calls") is False or isinstance(body["tool_choice"], dict):
            self.assertEqual(len(calls), 1)
        if isinstance(body["tool_choice"], dict):
            self.assertEqual(calls[0]["name"], body["tool_choice"]["function"]["name"])

    def test_required_calls(self):
        named = {"type": "function", "function": {"name": "paint"}}
        bodies = [{"tools": TOOLS, "tool_choice": choice, "stream": stream, "n": 2, "parallel_tool_calls": parallel,
                   "max_tokens": 300, **setting}
                  for choice in ("required", named) for stream in (False, True) for parallel in (False, True)
                  for setting in SETTINGS[1:]]
        self.run_all(bodies, self.check_calls, 0.5)

    def test_required_calls_behind_reasoning(self):
        bodies = [{"tools": TOOLS, "tool_choice": "required", "stream": stream, "max_tokens": 500, **setting,
                   "chat_template_kwargs": {"thinking": True}, "logit_bias": {str(self.think_end()): 12}}
                  for stream in (False, True) for setting in SETTINGS]
        self.run_all(bodies, self.check_calls, 0.3)

    def test_strict_tools_hold_without_being_required(self):
        strict = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
        self.check_free_calls(strict)

    def check_free_calls(self, tools):
        """Calls are begun by a large bias on the marker; then the schemas hold."""
        status, text = self.server.send("/tokenize", {"model": "demo", "prompt": "<｜tool▁calls▁begin｜>",
                                                      "add_special_tokens": False})
        begin, = json.loads(text)["tokens"] if status == 200 else (None,)
        bodies = [{"tools": tools, "tool_choice": "auto", "stream": stream, "max_tokens": 300, **setting,
                   "logit_bias": {str(begin): 12}} for stream in (False, True) for setting in SETTINGS]
        called = 0

        def check(body, choice):
            nonlocal called
            if choice["calls"]:
                called += 1
                self.check_calls(body, choice)
            else:
                self.assertEqual(choice["finish"], "stop")
        self.run_all(bodies, check, 0.3)
        self.assertGreater(called, 0)


class SmallCacheTest(ConstrainedOutputTest):
    """The same with retractions and without overlap; calls are constrained without being asked for."""
    FLAGS = ["--max-total-tokens", "1024", "--disable-overlap-schedule", "--constrain-tool-calls",
             "--chunked-prefill-size", "64"]

    def test_calls_are_constrained_by_the_flag(self):
        self.check_free_calls(TOOLS)

    def test_json_is_dense_by_the_flag(self):
        def is_dense(text):
            return not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', "", text)) and violation(PERSON, json.loads(text)) is None
        self.server = Server(*self.FLAGS, "--constrained-json-disable-any-whitespace")
        self.addCleanup(self.server.close)
        self.run_all(self.schema_bodies(PERSON), self.check_text(is_dense), 0.5)

    def test_retracted_requests_go_on_where_they_were(self):
        pattern = "([a-c][0-9]-){60}"
        bodies = [{"regex": pattern, "n": 2, "max_tokens": 300, **setting} for setting in 4 * SETTINGS]
        self.run_all(bodies, self.check_text(lambda text: re.fullmatch(pattern, text)), 1)
        found = re.search(r"^fathom:retractions_total(?:\{[^}]*\})? (\S+)", self.server.get("/metrics"), re.M)
        self.assertGreater(float(found[1]), 0)


if __name__ == "__main__":
    unittest.main()
