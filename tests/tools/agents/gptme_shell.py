# pip: gptme
# say: ["```shell\necho a fox in the wood > found.txt\n```", "Done. The fox is in the wood.", "```complete\n```", "Done."]
import os
import pathlib
import subprocess

env = os.environ | {"OPENAI_BASE_URL": os.environ["BASE_URL"] + "/v1", "OPENAI_API_KEY": "x",
                    "MODEL": "local/" + os.environ["MODEL"]}
work = pathlib.Path("work")
work.mkdir(exist_ok=True)
done = subprocess.run(["gptme", "--non-interactive", "--no-confirm", "--tools", "shell,complete",
                       "--system", "short", "-m", env["MODEL"], "--workspace", str(work),
                       "Find the fox."], env=env, text=True, capture_output=True, timeout=200,
                      stdin=subprocess.DEVNULL)
found = list(pathlib.Path(".").rglob("found.txt"))
assert found and found[0].read_text() == "a fox in the wood\n", done.stdout + done.stderr
print("the command ran")
