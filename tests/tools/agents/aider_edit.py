# pip: aider-chat
# say: ["hello.py\n```\n<<<<<<< SEARCH\nprint(1)\n=======\nprint(2)\n>>>>>>> REPLACE\n```\n"]
import os
import pathlib
import subprocess

work = pathlib.Path("work")
work.mkdir(exist_ok=True)
(work / "hello.py").write_text("print(1)\n")
env = os.environ | {"OPENAI_API_BASE": os.environ["BASE_URL"] + "/v1", "OPENAI_API_KEY": "x"}
done = subprocess.run(["aider", "--model", "openai/" + os.environ["MODEL"], "--edit-format", "diff",
                       "--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update",
                       "--analytics-disable", "--map-tokens", "0", "--message", "Print 2.",
                       "hello.py"], env=env, cwd=work, text=True, capture_output=True, timeout=250,
                      stdin=subprocess.DEVNULL)
assert (work / "hello.py").read_text() == "print(2)\n", done.stdout + done.stderr
print("the file is edited")
