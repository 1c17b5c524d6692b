# pip: openai-agents
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood.", "Yes, it is."]
import asyncio
import os
from agents import Agent, Runner, function_tool, set_tracing_disabled, OpenAIResponsesModel
from openai import AsyncOpenAI

set_tracing_disabled(True)
asked = []


@function_tool
def find(who: str) -> str:
    """Finds an animal."""
    asked.append(who)
    return "in the wood"


async def main():
    client = AsyncOpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key="x")
    agent = Agent(name="a", instructions="Be brief.", tools=[find],
                  model=OpenAIResponsesModel(os.environ["MODEL"], client))
    first = await Runner.run(agent, "Where is the fox?", auto_previous_response_id=True)
    assert asked == ["fox"] and first.final_output == "The fox is in the wood.", first
    run = Runner.run_streamed(agent, "Is it there?", previous_response_id=first.last_response_id)
    async for event in run.stream_events():
        pass
    assert run.final_output == "Yes, it is.", run
    print(first.final_output, run.final_output)


asyncio.run(main())
