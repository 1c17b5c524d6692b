# pip: strands-agents[openai,ollama,anthropic]
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood.", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood.", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood.", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood.", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood."]
"""An agent of strands with a tool, by five of its models: OpenAI's chat and responses, Anthropic's, Ollama's, and
llama.cpp's."""
import os

from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.llamacpp import LlamaCppModel
from strands.models.ollama import OllamaModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel

base, name = os.environ["BASE_URL"], os.environ["MODEL"]
openai = {"base_url": base + "/v1", "api_key": "x"}
models = [OpenAIModel(client_args=openai, model_id=name), OpenAIResponsesModel(client_args=openai, model_id=name),
          AnthropicModel(client_args={"base_url": base, "api_key": "x"}, model_id=name, max_tokens=200),
          OllamaModel(base, model_id=name), LlamaCppModel(base_url=base, model_id=name)]
found = []


@tool
def find(who: str) -> str:
    """Finds an animal."""
    found.append(who)
    return f"The {who} is in the wood."


for model in models:
    result = Agent(model=model, tools=[find], callback_handler=None)("Where is the fox?")
    assert str(result).strip() == "It is in the wood.", (model, result)
assert found == ["fox"] * len(models), found
print(f"{len(models)} models: {result}")
