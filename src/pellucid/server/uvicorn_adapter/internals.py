"""Undocumented attributes of uvicorn's and websockets' classes that this package uses, by class.

`pyproject.toml` has upper bounds for both, because a release may rename them.
"""

from __future__ import annotations

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.server import ServerProtocol

INTERNALS: dict[type, tuple[str, ...]] = {
    HttpToolsProtocol: (
        "_should_upgrade",
        "_start_asgi_task",
        "_unset_keepalive_if_required",
        "connection_lost",
        "connection_made",
        "cycle",
        "flow",
        "handle_websocket_upgrade",
        "headers",
        "loop",
        "on_body",
        "on_headers_complete",
        "on_message_begin",
        "on_message_complete",
        "on_response_complete",
        "parser",
        "pause_writing",
        "resume_writing",
        "scope",
        "send_400_response",
        "timeout_keep_alive_handler",
        "transport",
        "url",
    ),
    RequestResponseCycle: (
        "chunked_encoding",
        "disconnected",
        "flow",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "response_started",
        "send",
        "transport",
    ),
    FlowControl: ("pause_reading", "write_paused"),
    WebSocketsSansIOProtocol: (
        "app",
        "close_sent",
        "close_timer",
        "config",
        "conn",
        "connection_lost",
        "connection_made",
        "curr_msg_data_type",
        "data_received",
        "disconnected",
        "frames",
        "handle_connect",
        "handle_parser_exception",
        "handshake_complete",
        "initial_response",
        "loop",
        "pause_writing",
        "queue",
        "read_paused",
        "resume_writing",
        "run_asgi",
        "scope",
        "send_receive_event_to_app",
        "shutdown",
        "transport",
        "writable",
    ),
    ServerProtocol: ("close_sent", "data_to_send", "max_message_size", "send_close"),
}
