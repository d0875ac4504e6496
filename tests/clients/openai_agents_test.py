"""openai-agents from PyPI, unchanged, over responses and chat of `fathom serve` on the demo model."""
import unittest

import skipping
import venv_python

venv_python.enter("openai2")

import agents  # noqa: E402
from demo_questions import APPLES, APPLES_LEFT, MIA, OSLO, OSLO_WEATHER, get_weather  # noqa: E402
from demo_record import Record  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402
from openai.types.shared import Reasoning  # noqa: E402
from serving import Serving  # noqa: E402

agents.set_tracing_disabled(True)  # else it sends traces to OpenAI


class OpenAiAgentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)

    def each(self, **fields):
        """An agent over either API. A client belongs to the event loop of a run."""
        for kind in (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel):
            client = AsyncOpenAI(base_url=self.server.url + "/v1", api_key="secret-key", max_retries=0)
            settings = agents.ModelSettings(temperature=0, max_tokens=200).resolve(fields.get("model_settings"))
            with self.subTest(kind.__name__):
                yield agents.Agent(**{"name": "Mia", "model": kind("default", client), **fields,
                                      "model_settings": settings})

    def test_a_question_is_answered(self):
        for agent in self.each():
            self.assertIn(APPLES_LEFT, agents.Runner.run_sync(agent, APPLES).final_output)

    def test_a_tool_is_called_and_its_result_answered(self):
        for agent in self.each(tools=[agents.function_tool(get_weather, strict_mode=False)]):
            run = agents.Runner.run_sync(agent, OSLO)
            self.assertEqual([item.type for item in run.new_items],
                             ["tool_call_item", "tool_call_output_item", "message_output_item"])
            self.assertIn(OSLO_WEATHER, run.new_items[1].output)
            self.assertTrue(run.final_output)

    def test_an_output_type_fits(self):
        for agent in self.each(output_type=Record):
            self.assertIsInstance(agents.Runner.run_sync(agent, MIA).final_output, Record)

    def test_a_handoff_goes_to_the_other_agent(self):
        settings = agents.ModelSettings(tool_choice="required")
        for other in self.each(handoff_description="Knows sums"):
            for agent in self.each(model_settings=settings, handoffs=[other]):
                if type(agent.model) is not type(other.model):
                    continue
                run = agents.Runner.run_sync(agent, APPLES)
                self.assertIs(run.last_agent, other)
                self.assertTrue(run.final_output)

    def test_settings_of_responses_are_taken(self):
        settings = agents.ModelSettings(
            response_include=["reasoning.encrypted_content"], reasoning=Reasoning(effort="high", summary="auto"),
            verbosity="low", truncation="auto", top_logprobs=2, store=False, prompt_cache_retention="24h",
            metadata={"a": "b"}, parallel_tool_calls=True)
        agent = list(self.each(model_settings=settings, tools=[agents.function_tool(get_weather)]))[0]
        run = agents.Runner.run_sync(agent, APPLES)
        self.assertIn(APPLES_LEFT, run.final_output)
        reasoning, message = run.raw_responses[0].output
        self.assertTrue(reasoning.encrypted_content)
        part = message.content[0]
        self.assertEqual("".join(token.token for token in part.logprobs), part.text)
        self.assertEqual({len(token.top_logprobs) for token in part.logprobs}, {2})
        # The conversation goes on with its reasoning.
        more = run.to_input_list() + [{"role": "user", "content": "Are you sure?"}]
        self.assertTrue(agents.Runner.run_sync(agent, more).raw_responses)


if __name__ == "__main__":
    skipping.main()
