"""pydantic-ai from PyPI, unchanged, against `fathom serve` on the demo model."""
import unittest

import skipping
import venv_python

venv_python.enter("agents")

from demo_questions import APPLES, APPLES_LEFT, MIA, OSLO, THINKING, get_weather  # noqa: E402
from demo_record import Record  # noqa: E402
from pydantic_ai import Agent, NativeOutput, ToolOutput  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402
from serving import Serving  # noqa: E402


def parts(run):
    return [part.part_kind for message in run.all_messages() for part in message.parts]


class PydanticAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)
        provider = OpenAIProvider(base_url=cls.server.url + "/v1", api_key="secret-key")
        settings = {"temperature": 0, "max_tokens": 200}
        cls.models = {"chat": OpenAIChatModel("default", provider=provider, settings=settings),
                      "responses": OpenAIResponsesModel("default", provider=provider, settings=settings)}

    def agents(self, **fields):
        for name, model in self.models.items():
            with self.subTest(name):
                yield Agent(model, retries=0, **fields)

    def test_a_stream_joins_to_the_whole_answer(self):
        for agent in self.agents():
            whole = agent.run_sync(APPLES)
            self.assertIn(APPLES_LEFT, whole.output)
            stream = agent.run_stream_sync(APPLES)
            self.assertEqual("".join(stream.stream_text(delta=True, debounce_by=None)), whole.output)
            self.assertEqual(stream.usage.output_tokens, whole.usage.output_tokens)

    def test_thinking_is_a_part_of_its_own(self):
        for settings in ({"extra_body": THINKING}, {"openai_reasoning_effort": "low"}):
            agent = Agent(self.models["chat"], model_settings=settings)
            whole = agent.run_sync(APPLES)
            self.assertEqual(parts(whole), ["user-prompt", "thinking", "text"])
            self.assertIn(APPLES_LEFT, whole.output)
            stream = agent.run_stream_sync(APPLES)
            self.assertEqual(stream.get_output(), whole.output)
            self.assertEqual(parts(stream), parts(whole))
            # What came is sent back as it is.
            self.assertTrue(agent.run_sync("Are you sure?", message_history=whole.all_messages()).output)

    def test_thinking_is_a_part_of_a_response(self):
        agent = Agent(self.models["responses"], model_settings={"openai_reasoning_effort": "high"})
        whole = agent.run_sync(APPLES)
        stream = agent.run_stream_sync(APPLES)
        self.assertEqual(stream.get_output(), whole.output)
        for run in (whole, stream):
            self.assertEqual(parts(run), ["user-prompt", "thinking", "text"])
            # Text that is no summary is kept as the provider's own.
            self.assertTrue("".join(run.all_messages()[-1].parts[0].provider_details["raw_content"]))
        self.assertTrue(agent.run_sync("Are you sure?", message_history=whole.all_messages()).output)

    def test_every_setting_of_responses_is_taken(self):
        settings = {"openai_reasoning_effort": "high", "openai_reasoning_summary": "auto",
                    "openai_send_reasoning_ids": True, "openai_truncation": "auto", "openai_text_verbosity": "low",
                    "openai_service_tier": "flex", "openai_prompt_cache_key": "a",
                    "openai_prompt_cache_retention": "24h", "openai_logprobs": True, "openai_top_logprobs": 2,
                    "openai_include_web_search_sources": True, "openai_include_file_search_results": True,
                    "openai_include_code_execution_outputs": True, "openai_user": "mia", "openai_store": False,
                    "parallel_tool_calls": True, "top_p": 0.9}
        agent = Agent(self.models["responses"], model_settings=settings, tools=[get_weather], retries=0)
        whole = agent.run_sync(APPLES)
        self.assertIn(APPLES_LEFT, whole.output)
        text = whole.all_messages()[-1].parts[-1]
        logprobs = text.provider_details["logprobs"]
        self.assertEqual("".join(token["token"] for token in logprobs), text.content)
        self.assertEqual({len(token["top_logprobs"]) for token in logprobs}, {2})
        # Reasoning goes back with what it came with.
        self.assertIn(APPLES_LEFT, agent.run_sync(APPLES, message_history=whole.all_messages()).output)

    def test_a_tool_is_called_and_its_result_answered(self):
        for agent in self.agents(tools=[get_weather]):
            whole = agent.run_sync(OSLO)
            self.assertEqual(parts(whole), ["user-prompt", "tool-call", "tool-return", "text"])
            stream = agent.run_stream_sync(OSLO)
            self.assertEqual(stream.get_output(), whole.output)

    def test_native_output_with_tools_fits(self):
        for agent in self.agents(tools=[get_weather], output_type=NativeOutput(Record)):
            self.assertIsInstance(agent.run_sync(MIA).output, Record)
            run = agent.run_sync(OSLO)
            self.assertIn("tool-call", parts(run))
            self.assertIsInstance(run.output, Record)

    def test_output_by_a_tool_fits(self):
        for agent in self.agents(output_type=ToolOutput(Record)):
            self.assertIsInstance(agent.run_sync(MIA).output, Record)
            self.assertIsInstance(agent.run_stream_sync(MIA).get_output(), Record)


if __name__ == "__main__":
    skipping.main()
