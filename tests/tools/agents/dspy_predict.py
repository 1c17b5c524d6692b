# pip: dspy
# say: ["[[ ## answer ## ]]\nin the wood\n\n[[ ## completed ## ]]"]
import os
import dspy

dspy.configure(lm=dspy.LM("openai/" + os.environ["MODEL"], api_base=os.environ["BASE_URL"] + "/v1",
                          api_key="x", max_tokens=200, cache=False))
got = dspy.Predict("question -> answer")(question="Where is the fox?")
assert got.answer == "in the wood", got
print(got.answer)
