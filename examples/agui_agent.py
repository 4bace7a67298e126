"""An agent for AG-UI's clients:  uvicorn agui_agent:app"""

from pellucid import Agent, agui

app = agui(Agent("local:qwen2.5-coder-1.5b", model_settings={"thinking": True}))
