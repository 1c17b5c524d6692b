# pip: openai-agents
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood."]
import os
from agents import Agent, Runner, function_tool, set_tracing_disabled, OpenAIChatCompletionsModel
from openai import AsyncOpenAI

set_tracing_disabled(True)
asked = []


@function_tool
def find(who: str) -> str:
    """Finds an animal."""
    asked.append(who)
    return "in the wood"


client = AsyncOpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key="x")
agent = Agent(name="a", instructions="Be brief.", tools=[find],
              model=OpenAIChatCompletionsModel(os.environ["MODEL"], client))
result = Runner.run_sync(agent, "Where is the fox?")
assert asked == ["fox"] and result.final_output == "The fox is in the wood.", result
print(result.final_output)
