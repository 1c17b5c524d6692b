# pip: haystack-ai
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood."]
import os
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret

asked = []


@tool
def find(who: str) -> str:
    """Finds an animal."""
    asked.append(who)
    return "in the wood"


model = OpenAIChatGenerator(model=os.environ["MODEL"], api_key=Secret.from_token("x"),
                            api_base_url=os.environ["BASE_URL"] + "/v1")
got = Agent(chat_generator=model, tools=[find]).run([ChatMessage.from_user("Where is the fox?")])
assert asked == ["fox"] and got["last_message"].text == "The fox is in the wood.", got
print(got["last_message"].text)
