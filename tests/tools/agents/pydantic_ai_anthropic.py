# pip: pydantic-ai-slim[anthropic]
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood."]
import os
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

provider = AnthropicProvider(base_url=os.environ["BASE_URL"], api_key="x")
agent = Agent(AnthropicModel(os.environ["MODEL"], provider=provider), instructions="Be brief.")
asked = []


@agent.tool_plain
def find(who: str) -> str:
    """Finds an animal."""
    asked.append(who)
    return "in the wood"


result = agent.run_sync("Where is the fox?")
assert asked == ["fox"] and result.output == "The fox is in the wood.", result
print(result.output)
