"""What the demo model can be asked and answers well: a sum, a call of a tool, a record."""
APPLES = "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?"
APPLES_LEFT = "19"
OSLO = "What is the weather in Oslo?"
OSLO_WEATHER = "Rain, 7 degrees"
MIA = "Give me a JSON record for Mia, age 9."
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
THINKING = {"thinking": {"type": "enabled"}}


def get_weather(city: str) -> str:
    """Get the weather of a city"""
    return f"{city}: {OSLO_WEATHER}"
