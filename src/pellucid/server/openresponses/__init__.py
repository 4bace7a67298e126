"""OpenResponses over HTTP and WebSocket: `/v1/responses`, stored responses, and conversations."""
