# pip: langchain langchain-anthropic langchain-openai
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood.", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood.", null, null]
"""An agent of langchain with a tool over Anthropic's messages and OpenAI's responses, and answers of a form."""
import os

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

base, name = os.environ["BASE_URL"], os.environ["MODEL"]
found = []


class Animal(BaseModel):
    """An animal."""

    legs: int
    tame: bool


@tool
def find(who: str) -> str:
    """Finds an animal."""
    found.append(who)
    return f"The {who} is in the wood."


models = [ChatAnthropic(model=name, base_url=base, api_key="x", max_tokens=200, streaming=True),
          ChatOpenAI(model=name, base_url=base + "/v1", api_key="x", use_responses_api=True, streaming=True,
                     max_completion_tokens=200)]
for model in models:
    last = create_agent(model, [find], system_prompt="Be brief.").invoke(
        {"messages": [("user", "Where is the fox?")]})["messages"][-1]
    assert last.text.strip() == "It is in the wood.", last
    assert last.usage_metadata["input_tokens"] > 20, last
assert found == ["fox"] * 2, found
for model in models:
    animal = model.with_structured_output(Animal).invoke("A fox?")
    assert isinstance(animal, Animal), animal
print(last.text, animal)
