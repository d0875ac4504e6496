"""The openai package from PyPI, unchanged, against `fathom serve` on the demo model."""
import json
import unittest

import skipping
import venv_python

venv_python.enter()

import openai  # noqa: E402
from serving import Serving  # noqa: E402

QUESTION = [{"role": "user", "content": "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?"}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
RECORD = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="secret-key", max_retries=0, timeout=600)
        cls.model = cls.client.models.list().data[0].id

    def chat(self, **fields):
        return self.client.chat.completions.create(
            **{"model": self.model, "messages": QUESTION, "temperature": 0, "max_tokens": 64, **fields})

    def test_models_are_listed_and_found_by_name(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("another-model")

    def test_a_chat_answers_and_counts_its_tokens(self):
        answer = self.chat()
        self.assertIn("19", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertGreater(answer.usage.completion_tokens, 0)

    def test_a_stream_joins_to_the_whole_answer(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_thinking_is_apart_from_the_answer(self):
        fields = {"extra_body": {"thinking": {"type": "enabled"}}, "max_tokens": 200}
        whole = self.chat(**fields).choices[0].message
        self.assertIn("19", whole.content)
        self.assertTrue(whole.reasoning_content)
        deltas = [chunk.choices[0].delta for chunk in self.chat(stream=True, **fields) if chunk.choices]
        self.assertEqual("".join(delta.content or "" for delta in deltas), whole.content)
        self.assertEqual("".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas),
                         whole.reasoning_content)
        # What came is sent back as it is.
        again = self.chat(messages=[*QUESTION, whole, {"role": "user", "content": "Are you sure?"}], **fields)
        self.assertTrue(again.choices[0].message.content)

    def test_a_required_tool_call_fits_its_schema(self):
        fields = {"messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "tools": [WEATHER],
                  "tool_choice": "required", "max_tokens": 128}
        whole = self.chat(**fields).choices[0]
        self.assertEqual(whole.finish_reason, "tool_calls")
        call = whole.message.tool_calls[0]
        self.assertEqual(call.function.name, "get_weather")
        self.assertIsInstance(json.loads(call.function.arguments)["city"], str)
        name, arguments = "", ""
        for chunk in self.chat(stream=True, **fields):
            for delta in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
                if delta.index == 0:
                    name += delta.function.name or ""
                    arguments += delta.function.arguments or ""
        self.assertEqual((name, json.loads(arguments)), ("get_weather", json.loads(call.function.arguments)))

    def test_the_clients_own_stream_reads_arguments_as_they_are_made(self):
        function = {**WEATHER["function"], "strict": True}
        pieces = []
        with self.client.chat.completions.stream(
                model=self.model, messages=[{"role": "user", "content": "What is the weather in Oslo?"}], temperature=0,
                tools=[{"type": "function", "function": function}], tool_choice="required", max_tokens=128) as stream:
            for event in stream:
                if event.type == "tool_calls.function.arguments.delta":
                    pieces.append(event.arguments_delta)
            choice = stream.get_final_completion().choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertGreater(len([piece for piece in pieces if piece]), 2)
        self.assertEqual("".join(pieces), choice.message.tool_calls[0].function.arguments)
        self.assertIsInstance(json.loads("".join(pieces))["city"], str)

    def test_a_call_that_is_cut_is_a_partial_call(self):
        fields = {"messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "tools": [WEATHER],
                  "tool_choice": "required"}
        whole = self.chat(**fields, max_tokens=128).choices[0].message.tool_calls[0].function.arguments
        for max_tokens in range(1, 12):
            cut = self.chat(**fields, max_tokens=max_tokens).choices[0]
            self.assertEqual(cut.finish_reason, "length")
            self.assertFalse(cut.message.content)
            for call in cut.message.tool_calls or []:
                self.assertEqual(call.function.name, "get_weather")
                self.assertTrue(whole.startswith(call.function.arguments))

    def test_tools_beside_a_schema_give_calls_or_what_the_schema_wants(self):
        record = {"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD, "strict": True}}
        for question in ("What is the weather in Oslo?", "Give me a JSON record for Mia, age 9."):
            choice = self.chat(messages=[{"role": "user", "content": question}], tools=[WEATHER], response_format=record,
                               max_tokens=200).choices[0]
            if choice.message.tool_calls:
                self.assertEqual(choice.finish_reason, "tool_calls")
                self.assertIsInstance(json.loads(choice.message.tool_calls[0].function.arguments), dict)
            else:
                self.assertEqual(set(json.loads(choice.message.content)), {"name", "age"})

    def test_only_allowed_tools_are_called(self):
        tides = {"type": "function", "function": {**WEATHER["function"], "name": "get_tides"}}
        choice = self.chat(
            messages=[{"role": "user", "content": "What is the weather in Oslo?"}], tools=[WEATHER, tides], max_tokens=128,
            tool_choice={"type": "allowed_tools", "allowed_tools": {
                "mode": "required", "tools": [{"type": "function", "function": {"name": "get_tides"}}]}}).choices[0]
        self.assertEqual({call.function.name for call in choice.message.tool_calls}, {"get_tides"})

    def test_log_probabilities_come_with_their_alternatives(self):
        content = self.chat(logprobs=True, top_logprobs=3, max_tokens=5).choices[0].logprobs.content
        self.assertEqual(len(content), 5)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(token.token, token.top_logprobs[0].token, "greedy takes the likeliest")

    def test_a_json_schema_holds(self):
        answer = self.chat(
            messages=[{"role": "user", "content": "Give me a JSON record for Mia, age 9, from Oslo, whose favorite color is red."}],
            response_format={"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD, "strict": True}},
            max_tokens=200)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        record = json.loads(answer.choices[0].message.content)
        self.assertEqual(set(record), {"name", "age"})
        self.assertIsInstance(record["age"], int)

    def test_several_choices_and_plain_completions(self):
        self.assertEqual([choice.index for choice in self.chat(n=3).choices], [0, 1, 2])
        answer = self.client.completions.create(model=self.model, prompt="Question: 2+3?\nAnswer:", max_tokens=8, temperature=0)
        self.assertEqual(answer.object, "text_completion")
        self.assertLessEqual(answer.usage.completion_tokens, 8)
        pieces = self.client.completions.create(
            model=self.model, prompt="Question: 2+3?\nAnswer:", max_tokens=8, temperature=0, stream=True)
        self.assertEqual("".join(piece.choices[0].text for piece in pieces), answer.choices[0].text)

    def test_a_wrong_parameter_is_a_bad_request_that_names_it(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        self.assertEqual(caught.exception.type, "invalid_request_error")

    def test_a_wrong_key_is_refused(self):
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="wrong-key-1").models.list()

    def test_an_unknown_model_or_path_is_not_found(self):
        with self.assertRaises(openai.NotFoundError):
            self.chat(model="another-model")
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model=self.model, input="text")


if __name__ == "__main__":
    skipping.main()
