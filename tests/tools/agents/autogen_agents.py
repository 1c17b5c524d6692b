# pip: autogen-agentchat autogen-ext[openai,ollama]
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood.", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood."]
"""An assistant of AutoGen with a tool, by its clients of OpenAI and of Ollama."""
import asyncio
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.ollama import OllamaChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient

base, name = os.environ["BASE_URL"], os.environ["MODEL"]
info = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True)
found = []


async def find(who: str) -> str:
    """Finds an animal."""
    found.append(who)
    return f"The {who} is in the wood."


async def main():
    clients = [OpenAIChatCompletionClient(model=name, base_url=base + "/v1", api_key="x", model_info=info),
               OllamaChatCompletionClient(model=name, host=base, model_info=info)]
    for client in clients:
        agent = AssistantAgent("finder", client, tools=[find], reflect_on_tool_use=True, model_client_stream=True)
        last = (await agent.run(task="Where is the fox?")).messages[-1].content
        assert last.strip() == "It is in the wood.", (client, last)
    assert found == ["fox"] * 2, found
    print(f"2 clients: {last}")


asyncio.run(main())
