# pip: instructor
# say: [null]
import os
from typing import Literal
import instructor
from openai import OpenAI
from pydantic import BaseModel, ConfigDict


class Animal(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["fox", "owl"]
    legs: Literal[2, 4]


client = instructor.from_openai(OpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key="x"),
                                mode=instructor.Mode.JSON_SCHEMA)
got = client.chat.completions.create(model=os.environ["MODEL"], response_model=Animal,
                                     max_tokens=100,
                                     messages=[{"role": "user", "content": "A fox."}])
assert got.name in ("fox", "owl") and got.legs in (2, 4)
print(got)
