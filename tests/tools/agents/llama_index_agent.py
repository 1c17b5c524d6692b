# pip: llama-index-core llama-index-llms-ollama llama-index-llms-openai-like llama-index-embeddings-ollama llama-index-embeddings-openai-like
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood.", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood."]
"""An agent of llama-index with a tool, by two of its models, and its embeddings by two."""
import asyncio
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike

base, name = os.environ["BASE_URL"], os.environ["MODEL"]
found = []


def find(who: str) -> str:
    """Finds an animal."""
    found.append(who)
    return f"The {who} is in the wood."


async def main():
    models = [Ollama(model=name, base_url=base, request_timeout=60, context_window=4096),
              OpenAILike(model=name, api_base=base + "/v1", api_key="x", is_chat_model=True,
                         is_function_calling_model=True, context_window=4096)]
    for model in models:
        answer = await FunctionAgent(tools=[find], llm=model).run("Where is the fox?")
        assert str(answer).strip() == "It is in the wood.", (model, answer)
    assert found == ["fox"] * 2, found
    texts = ["a fox", "an owl"]
    one = OllamaEmbedding(model_name=name, base_url=base).get_text_embedding_batch(texts)
    two = OpenAILikeEmbedding(model_name=name, api_base=base + "/v1", api_key="x").get_text_embedding_batch(texts)
    assert all(abs(a - b) < 1e-6 for a, b in zip(one[1], two[1])) and one[0] != one[1]
    print(f"2 models: {answer}, {len(one[0])} dimensions")


asyncio.run(main())
