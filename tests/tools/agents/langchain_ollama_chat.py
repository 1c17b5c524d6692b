# pip: langchain-ollama
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood."]
import os
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings


@tool
def find(who: str) -> str:
    """Finds an animal."""
    return "in the wood"


model = ChatOllama(model=os.environ["MODEL"], base_url=os.environ["BASE_URL"],
                   validate_model_on_init=True).bind_tools([find])
messages = [HumanMessage("Where is the fox?")]
messages.append(model.invoke(messages))
call = messages[-1].tool_calls[0]
assert call["name"] == "find" and call["args"] == {"who": "fox"}, call
messages.append(ToolMessage(find.invoke(call["args"]), tool_call_id=call["id"]))
text = "".join(piece.content for piece in model.stream(messages))
assert text == "The fox is in the wood.", text
vectors = OllamaEmbeddings(model=os.environ["MODEL"],
                           base_url=os.environ["BASE_URL"]).embed_documents(["a", "b"])
assert len(vectors) == 2
print(text, len(vectors[0]))
