# pip: langgraph langchain langchain-openai
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood."]
import os
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

asked = []


@tool
def find(who: str) -> str:
    """Finds an animal."""
    asked.append(who)
    return "in the wood"


url = os.environ["BASE_URL"] + "/v1"
model = ChatOpenAI(model=os.environ["MODEL"], base_url=url, api_key="x", streaming=True)
agent = create_agent(model, [find])
result = agent.invoke({"messages": [("user", "Where is the fox?")]})
last = result["messages"][-1].content
assert asked == ["fox"] and last == "The fox is in the wood.", result
vectors = OpenAIEmbeddings(model=os.environ["MODEL"], base_url=url, api_key="x",
                           check_embedding_ctx_length=False).embed_documents(["a fox", "an owl"])
assert len(vectors) == 2 and len(vectors[0]) > 100
print(last, len(vectors[0]))
