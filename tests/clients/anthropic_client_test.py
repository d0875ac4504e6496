"""The anthropic package from PyPI, unchanged, against `fathom serve` on the demo model."""
import base64
import json
import unittest

import skipping
import venv_python

venv_python.enter()

import anthropic  # noqa: E402
from serving import Serving  # noqa: E402

QUESTION = [{"role": "user",
             "content": "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?"}]
OSLO = [{"role": "user", "content": "What is the weather in Oslo?"}]
WEATHER = {"name": "get_weather", "description": "Get the weather of a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
RECORD = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


def texts(message):
    return "".join(block.text for block in message.content if block.type == "text")


class AnthropicClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)
        cls.client = cls.client_of(cls.server.url)

    @staticmethod
    def client_of(url, key="secret-key"):
        return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=600)

    def fields(self, **fields):
        # The package's newer versions have no parameter for the temperature.
        return {"model": "default", "messages": QUESTION, "extra_body": {"temperature": 0}, "max_tokens": 64, **fields}

    def create(self, **fields):
        return self.client.messages.create(**self.fields(**fields))

    def test_a_message_answers_and_counts_its_tokens(self):
        message = self.create()
        self.assertEqual((message.type, message.role), ("message", "assistant"))
        self.assertTrue(message.model)
        self.assertEqual([block.type for block in message.content], ["text"])
        self.assertIn("19", texts(message))
        self.assertEqual(message.stop_reason, "end_turn")
        self.assertIsNone(message.stop_sequence)
        count = self.client.messages.count_tokens(model="default", messages=QUESTION).input_tokens
        self.assertEqual(message.usage.input_tokens + message.usage.cache_read_input_tokens, count)
        self.assertEqual(self.create(max_tokens=3).stop_reason, "max_tokens")

    def test_models_are_listed_with_the_clients_own_key(self):
        models = list(self.client.models.list())
        self.assertEqual({model.type for model in models}, {"model"})
        self.assertTrue(all(model.id and model.display_name and model.created_at for model in models))
        self.assertEqual(self.client.models.retrieve(models[0].id).id, models[0].id)

    def test_deepseeks_path_answers_too(self):
        client = self.client_of(self.server.url + "/anthropic")
        self.assertEqual(texts(client.messages.create(**self.fields())), texts(self.create()))

    def test_a_stream_joins_to_the_whole_answer(self):
        whole = self.create()
        with self.client.messages.stream(**self.fields()) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        self.assertEqual(text, texts(whole))
        self.assertEqual([(block.type, block.text) for block in message.content], [("text", text)])
        self.assertEqual(message.stop_reason, whole.stop_reason)
        self.assertEqual(message.usage.output_tokens, whole.usage.output_tokens)
        kinds = [event.type for event in self.create(stream=True)]
        self.assertEqual((kinds[0], kinds[-2:]), ("message_start", ["message_delta", "message_stop"]))

    def test_thinking_comes_in_a_block_of_its_own(self):
        fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 200}
        whole = self.create(**fields)
        self.assertEqual(whole.content[0].type, "thinking")
        self.assertTrue(whole.content[0].thinking and whole.content[0].signature)
        self.assertGreater(whole.usage.output_tokens_details.thinking_tokens, 0)
        with self.client.messages.stream(**self.fields(**fields)) as stream:
            thinking = "".join(event.thinking for event in stream if event.type == "thinking")
            message = stream.get_final_message()
        self.assertEqual(thinking, whole.content[0].thinking)
        self.assertEqual([block.type for block in message.content], [block.type for block in whole.content])
        # What came is sent back as it is.
        again = self.create(messages=[*QUESTION, {"role": "assistant", "content": whole.content},
                                      {"role": "user", "content": "Are you sure?"}])
        self.assertEqual(again.role, "assistant")

    def test_a_tool_is_called_and_its_result_answered(self):
        fields = {"messages": OSLO, "tools": [WEATHER], "tool_choice": {"type": "any"}, "max_tokens": 128}
        whole = self.create(**fields)
        self.assertEqual(whole.stop_reason, "tool_use")
        call = whole.content[-1]
        self.assertEqual((call.type, call.name), ("tool_use", "get_weather"))
        self.assertIsInstance(call.input["city"], str)
        with self.client.messages.stream(**self.fields(**fields)) as stream:
            pieces = [event.partial_json for event in stream if event.type == "input_json"]
            message = stream.get_final_message()
        self.assertGreater(len(pieces), 2)
        self.assertEqual(json.loads("".join(pieces)), call.input)
        self.assertEqual((message.content[-1].input, message.stop_reason), (call.input, "tool_use"))
        answer = self.create(tools=[WEATHER], messages=[
            *OSLO, {"role": "assistant", "content": whole.content},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": "Rain, 7 degrees"}]}])
        self.assertEqual(answer.stop_reason, "end_turn")
        self.assertTrue(texts(answer))

    def test_thinking_that_is_omitted_leaves_its_blocks(self):
        fields = {"thinking": {"type": "adaptive", "display": "omitted"}, "max_tokens": 200}
        whole = self.create(**fields)
        self.assertEqual((whole.content[0].type, whole.content[0].thinking), ("thinking", ""))
        shown = self.create(**{**fields, "thinking": {"type": "adaptive"}})
        self.assertEqual(base64.b64decode(whole.content[0].signature).decode(), shown.content[0].thinking)
        self.assertGreater(whole.usage.output_tokens_details.thinking_tokens, 0)
        with self.client.messages.stream(**self.fields(**fields)) as stream:
            message = stream.get_final_message()
        self.assertEqual([(block.type, getattr(block, "thinking", None)) for block in message.content],
                         [(block.type, getattr(block, "thinking", None)) for block in whole.content])
        self.assertEqual(message.content[0].signature, whole.content[0].signature)

    def test_the_betas_fields_for_the_context_change_nothing(self):
        edits = [{"type": "clear_thinking_20251015", "keep": "all"},
                 {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 1000}}]
        message = self.client.beta.messages.create(
            **self.fields(betas=["context-management-2025-06-27"], context_management={"edits": edits}))
        self.assertEqual(texts(message), texts(self.create()))

    def test_the_tool_runner_goes_on_without_a_thread(self):
        cities = []

        @anthropic.beta_tool
        def get_weather(city: str) -> str:
            """Get the weather of a city.

            Args:
                city: Its name.
            """
            cities.append(city)
            return "Rain, 7 degrees"

        runner = self.client.beta.messages.tool_runner(
            **self.fields(messages=OSLO, tools=[get_weather], max_tokens=128, max_iterations=2,
                          tool_choice={"type": "any"}))
        messages = list(runner)
        self.assertEqual(messages[0].stop_reason, "tool_use")
        self.assertEqual(len(messages), 2)  # each is held to calls
        calls = [block for message in messages for block in message.content if block.type == "tool_use"]
        self.assertEqual(cities, [call.input["city"] for call in calls])

    def test_tools_of_anthropics_own_are_offered_or_left_out(self):
        search = {"type": "web_search_20250305", "name": "web_search"}
        self.assertEqual(self.client.messages.count_tokens(model="default", messages=OSLO, tools=[WEATHER, search]),
                         self.client.messages.count_tokens(model="default", messages=OSLO, tools=[WEATHER]))
        bash = {"type": "bash_20250124", "name": "bash"}
        call = self.create(messages=[{"role": "user", "content": "Run ls"}], tools=[bash, search], max_tokens=128,
                           tool_choice={"type": "tool", "name": "bash"}).content[-1]
        self.assertEqual((call.type, call.name), ("tool_use", "bash"))
        self.assertLessEqual(set(call.input), {"command", "restart"})
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(tools=[WEATHER, search], tool_choice={"type": "tool", "name": "web_search"})
        self.assertIn("web_search_20250305", caught.exception.body["error"]["message"])

    def test_a_tools_picture_is_named_in_brackets(self):
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
        message = self.create(tools=[WEATHER], messages=[
            *OSLO, {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [picture]}]}])
        self.assertEqual(message.role, "assistant")

    def test_only_the_chosen_tool_is_called_or_none(self):
        tools = [WEATHER, {**WEATHER, "name": "get_tides"}]
        named = self.create(messages=OSLO, tools=tools, max_tokens=128,
                            tool_choice={"type": "tool", "name": "get_tides"})
        self.assertEqual([block.name for block in named.content], ["get_tides"])
        none = self.create(messages=OSLO, tools=tools, tool_choice={"type": "none"})
        self.assertEqual({block.type for block in none.content}, {"text"})

    def test_a_stop_sequence_ends_the_answer_and_is_named(self):
        message = self.create(stop_sequences=["19"])
        self.assertEqual((message.stop_reason, message.stop_sequence), ("stop_sequence", "19"))
        self.assertNotIn("19", texts(message))

    def test_an_output_format_holds(self):
        message = self.create(messages=[{"role": "user", "content": "Give me a JSON record for Mia, age 9."}],
                              max_tokens=200, output_config={"format": {"type": "json_schema", "schema": RECORD}})
        self.assertEqual(message.stop_reason, "end_turn")
        self.assertEqual(set(json.loads(texts(message))), {"name", "age"})

    def test_the_assistants_last_message_is_continued(self):
        whole = texts(self.create())
        start = whole[:whole.index(" apples")]  # between two tokens
        message = self.create(messages=[*QUESTION, {"role": "assistant", "content": start}])
        self.assertEqual(start + texts(message), whole)

    def test_errors_are_those_of_the_client(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(extra_body={"temperature": -1})
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("temperature", caught.exception.body["error"]["message"])
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(messages=[{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]}])
        self.assertIn("image", caught.exception.body["error"]["message"])
        with self.assertRaises(anthropic.NotFoundError):
            self.create(model="another-model")
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            self.client_of(self.server.url, "wrong-key").messages.create(**self.fields())
        self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")
        bearer = anthropic.Anthropic(base_url=self.server.url, auth_token="secret-key", api_key=None, max_retries=0,
                                     timeout=600)
        self.assertEqual(texts(bearer.messages.create(**self.fields())), texts(self.create()))


if __name__ == "__main__":
    skipping.main()
