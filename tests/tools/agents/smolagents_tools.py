# pip: smolagents[openai]
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "<tool_call>\n{\"name\": \"final_answer\", \"arguments\": {\"answer\": \"in the wood\"}}\n</tool_call>"]
import os
from smolagents import OpenAIModel, ToolCallingAgent, tool

asked = []


@tool
def find(who: str) -> str:
    """Finds an animal.

    Args:
        who: The animal.
    """
    asked.append(who)
    return "in the wood"


model = OpenAIModel(model_id=os.environ["MODEL"], api_base=os.environ["BASE_URL"] + "/v1",
                    api_key="x")
agent = ToolCallingAgent(tools=[find], model=model, verbosity_level=0, max_steps=3)
answer = agent.run("Where is the fox?")
assert asked == ["fox"] and answer == "in the wood", answer
print(answer)
