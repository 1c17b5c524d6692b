# pip: google-adk litellm
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "It is in the wood."]
"""An agent of Google's ADK with a tool, by its litellm model over Ollama's API."""
import asyncio
import os

from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

found = []


def find(who: str) -> str:
    """Finds an animal."""
    found.append(who)
    return f"The {who} is in the wood."


async def main():
    model = LiteLlm(model="ollama_chat/" + os.environ["MODEL"], api_base=os.environ["BASE_URL"])
    runner = InMemoryRunner(Agent(name="finder", model=model, instruction="Be brief.", tools=[find]), app_name="wood")
    session = await runner.session_service.create_session(app_name="wood", user_id="u")
    said = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=types.Content(
            role="user", parts=[types.Part(text="Where is the fox?")])):
        for part in (event.content.parts if event.content else []) or []:
            said = part.text or said
    assert found == ["fox"] and said.strip() == "It is in the wood.", (found, said)
    print(said.strip())


asyncio.run(main())
