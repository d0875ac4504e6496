"""A record that an answer has to fit, in so few words that the demo model finds the end of it. Needs pydantic."""
from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Record(BaseModel):
    name: Literal["Mia", "Tom"]
    age: Annotated[int, Field(ge=0, le=120)]
