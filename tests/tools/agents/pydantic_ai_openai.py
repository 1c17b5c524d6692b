# pip: pydantic-ai-slim[openai]
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood."]
import os
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["BASE_URL"] + "/v1", api_key="x")
agent = Agent(OpenAIChatModel(os.environ["MODEL"], provider=provider), instructions="Be brief.")
asked = []


@agent.tool_plain
def find(who: str) -> str:
    """Finds an animal."""
    asked.append(who)
    return "in the wood"


result = agent.run_sync("Where is the fox?")
assert asked == ["fox"] and result.output == "The fox is in the wood.", result
print(result.output)
