"""The embedded engine: a small model that runs beside the gateway, reached as just another upstream.

* ``catalogue``: the models that Pellucid knows by name, as data.
* ``fetch``: brings a model's weights into the cache, verified.
* ``engine``: the child process that serves llama.cpp's HTTP on a private port.
* ``supervise``: starts, watches and restarts that child, with the line in front of it.
* ``request``: what an OpenAI-dialect request needs before it goes to this engine.

Outside this room the engine is one more server of the `llama.cpp` dialect; inside it nobody knows parts, events or
protocols.
"""
