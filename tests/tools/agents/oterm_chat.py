# pip: oterm
# say: ["The fox is in the wood.", "It sleeps under an oak."]
"""oterm's own screens, by its keys: a new chat with the listed model, two turns of it."""
import asyncio
import os
import pathlib

os.environ["OLLAMA_URL"] = os.environ["BASE_URL"]
data = pathlib.Path("oterm").absolute()
data.mkdir(exist_ok=True)
(data / "store.db").unlink(missing_ok=True)
(data / "config.json").write_text('{"splash-screen": false}')
os.environ["OTERM_DATA_DIR"] = str(data)

from oterm.app.chat_edit import ChatEdit  # noqa: E402
from oterm.app.oterm import app  # noqa: E402
from oterm.app.widgets.chat import ChatContainer  # noqa: E402
from textual.widgets import Button  # noqa: E402


async def wait(pilot, condition):
    for _ in range(600):
        await pilot.pause(0.1)
        if condition():
            return
    raise AssertionError(f"nothing came on {app.screen}")


def answers():
    return [m.text for m in app.query_one(ChatContainer).messages if m.role == "assistant"]


async def main():
    async with app.run_test(size=(140, 50)) as pilot:
        await pilot.pause(0.5)
        await pilot.press("ctrl+n")
        await wait(pilot, lambda: isinstance(app.screen, ChatEdit) and app.screen.models)
        models = app.screen.models
        app.screen.query_one("#model-select-input").focus()
        await pilot.press("down", "down", "enter")
        await wait(pilot, lambda: not app.screen.query_one("#save-btn", Button).disabled)
        shown = app.screen.model_info
        app.screen.query_one("#save-btn").press()
        await wait(pilot, lambda: app.query("#promptArea"))
        for i, ask in enumerate(("Where is the fox?", "What does it do there?")):
            app.query_one("#promptArea").focus()
            await pilot.press(*["space" if c == " " else c for c in ask], "enter")
            await wait(pilot, lambda: len(answers()) > i)
        said = answers()
        assert said == ["The fox is in the wood.", "It sleeps under an oak."], said
        print(f"{models[0]} ({shown.details.quantization_level}): {said[1]}")


asyncio.run(main())
