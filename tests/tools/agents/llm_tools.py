# pip: llm
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood."]
import os
import llm
from llm.default_plugins.openai_models import Chat

asked = []


def find(who: str) -> str:
    """Finds an animal."""
    asked.append(who)
    return "in the wood"


model = Chat("local", model_name=os.environ["MODEL"], api_base=os.environ["BASE_URL"] + "/v1",
             supports_tools=True)
model.key = "x"
text = model.chain("Where is the fox?", tools=[find], key="x").text()
assert asked == ["fox"] and text.endswith("The fox is in the wood."), text
print(text)
