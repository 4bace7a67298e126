"""The embedded engine: a small model in a child process, used like any other upstream.

* `model_index`: the models that Pellucid knows by name, as data.
* `fetch`: downloads a model's weights into the cache and verifies them.
* `engine`: the child process, which serves llama.cpp's HTTP API on a private port.
* `supervisor`: starts, watches and restarts the child process; its state, and the queue for its slots.
* `engine_sharing`: one engine for several worker processes.
* `request`: adapts an OpenAI-dialect request to this engine.

Other packages see one more server of the `llama.cpp` dialect. This package does not know parts, events or protocols.
"""

LOCAL_PROVIDER = "local"
"""The name of the embedded engine as a provider."""
