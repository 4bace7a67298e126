# ruff: noqa: E501 (the flows stand as they were written)
"""The conversations of the reasoning-transparency proposal, as they are written there.

`FLOWS` has each by name: the JSON of its envelopes, as text, in order. Two things are not JSON and were changed: an
ellipsis for a payload (`{...}`) is an empty one, and comments (`//`) are gone. What is absent (ids, times, protocol, in
two flows even the sender) stays absent.
"""

from __future__ import annotations

import json

_OPTION_3 = r"""
{"kind": "chat", "payload": {"message": "I'll analyze this"}}
{"context": "reason-123", "kind": "chat", "payload": {"message": "Checking permissions..."}}
{"context": "reason-123", "kind": "mcp.request", "payload": {}}
{"context": "reason-123", "kind": "chat", "payload": {"message": "Permissions look good"}}
"""

_OPTION_4 = r"""
{"kind": "chat", "from": "user", "payload": {"message": "Should we deploy this code change that modifies the authentication system?"}}
{"context": "reason-123", "kind": "reasoning.start", "from": "agent", "payload": {
  "goal": "Evaluate deployment safety for auth system changes",
  "triggered_by": "user-request",
  "approach": "security-first analysis"
}}
{"context": "reason-123", "kind": "reasoning.question", "from": "agent", "payload": {
  "questions": [
    "What specific auth components are modified?",
    "Are there breaking changes to the API?",
    "Have security tests passed?",
    "Is there a rollback plan?"
  ]
}}
{"context": "reason-123", "kind": "reasoning.thought", "from": "agent", "payload": {
  "content": "Need to check the diff and test results first"
}}
{"context": "reason-123", "kind": "mcp.request", "from": "agent", "payload": {
  "method": "tools/call",
  "params": {"name": "git_diff", "arguments": {"files": "auth/*"}}
}}
{"context": "reason-123", "kind": "reasoning.observation", "from": "agent", "payload": {
  "content": "Changes affect OAuth2 token validation and session management",
  "severity": "high",
  "components": ["oauth2", "sessions"]
}}
{"context": "reason-123", "kind": "mcp.request", "from": "agent", "payload": {
  "method": "tools/call",
  "params": {"name": "test_results", "arguments": {"suite": "security"}}
}}
{"context": "reason-123", "kind": "reasoning.observation", "from": "agent", "payload": {
  "content": "Security tests show 2 failures in token expiration handling",
  "severity": "critical",
  "details": "Tokens may not expire correctly under edge conditions"
}}
{"context": "reason-123", "kind": "reasoning.hypothesis", "from": "agent", "payload": {
  "hypothesis": "The code change introduces a regression in token expiration",
  "confidence": 0.85,
  "evidence": ["test_failures", "oauth2_changes"]
}}
{"context": "reason-123", "kind": "reasoning.thought", "from": "agent", "payload": {
  "content": "Even with a rollback plan, deploying with known auth bugs is too risky"
}}
{"context": "reason-123", "kind": "reasoning.conclusion", "from": "agent", "payload": {
  "decision": "do_not_deploy",
  "confidence": 0.92,
  "key_factors": [
    "Failed security tests",
    "Critical auth components affected",
    "Token expiration regression"
  ],
  "recommendation": "Fix token expiration issues and re-test before deployment"
}}
{"kind": "chat", "from": "agent", "correlationId": "reason-123", "payload": {
  "message": "I strongly recommend NOT deploying this change. The security tests show critical failures in token expiration that could compromise authentication. Please fix these issues first."
}}
{"kind": "mcp.proposal", "from": "agent", "correlationId": "reason-123", "payload": {
  "method": "tools/call",
  "params": {
    "name": "create_issue",
    "arguments": {
      "title": "Fix token expiration regression before deployment",
      "priority": "critical"
    }
  }
}}
"""

_OPTION_5 = r"""
{"id": "msg-100", "kind": "chat", "from": "user", "payload": {"message": "Should we deploy this auth change?"}}
{"id": "msg-101", "kind": "reasoning.start", "from": "agent", "correlationId": "msg-100", "payload": {"message": "Analyzing deployment safety..."}}
{"context": "msg-101", "kind": "reasoning.thought", "from": "agent", "payload": {"message": "Need to check test results"}}
{"context": "msg-101", "kind": "mcp.request", "from": "agent", "payload": {"method": "tools/call", "params": {"name": "get_test_results"}}}
{"context": "msg-101", "kind": "reasoning.thought", "from": "agent", "payload": {"message": "Security tests are failing - this is concerning"}}
{"context": "msg-101", "kind": "mcp.request", "from": "agent", "payload": {"method": "tools/call", "params": {"name": "check_rollback_plan"}}}
{"context": "msg-101", "kind": "reasoning.thought", "from": "agent", "payload": {"message": "Even with rollback, auth failures are too risky"}}
{"context": "msg-101", "kind": "reasoning.conclusion", "from": "agent", "payload": {"message": "Deployment is unsafe due to test failures"}}
{"id": "msg-108", "kind": "chat", "from": "agent", "correlationId": "msg-100", "payload": {"message": "I recommend against deploying. The security tests are failing and auth issues are too risky even with a rollback plan."}}
"""

_OPTION_5_MANY_AGENTS = r"""
{"id": "msg-200", "kind": "chat", "from": "user", "payload": {"message": "Should we deploy this auth change?"}}
{"id": "msg-201", "kind": "reasoning.start", "from": "security-agent", "correlationId": "msg-200", "payload": {"message": "Checking security implications..."}}
{"id": "msg-202", "kind": "reasoning.start", "from": "perf-agent", "correlationId": "msg-200", "payload": {"message": "Analyzing performance impact..."}}
{"context": "msg-201", "kind": "reasoning.thought", "from": "security-agent", "payload": {"message": "Auth changes need careful review"}}
{"context": "msg-201", "kind": "mcp.request", "from": "security-agent", "payload": {"method": "tools/call", "params": {"name": "security_scan"}}}
{"context": "msg-201", "kind": "reasoning.thought", "from": "security-agent", "payload": {"message": "Found vulnerabilities in token handling"}}
{"context": "msg-201", "kind": "reasoning.conclusion", "from": "security-agent", "payload": {"message": "Security risk is too high"}}
{"context": "msg-202", "kind": "reasoning.thought", "from": "perf-agent", "payload": {"message": "Checking latency impact"}}
{"context": "msg-202", "kind": "mcp.request", "from": "perf-agent", "payload": {"method": "tools/call", "params": {"name": "load_test"}}}
{"context": "msg-202", "kind": "reasoning.thought", "from": "perf-agent", "payload": {"message": "Minimal performance impact detected"}}
{"context": "msg-202", "kind": "reasoning.conclusion", "from": "perf-agent", "payload": {"message": "Performance is acceptable"}}
{"id": "msg-210", "kind": "chat", "from": "security-agent", "correlationId": "msg-200", "payload": {"message": "Security perspective: Do not deploy. Critical vulnerabilities found in token handling."}}
{"id": "msg-211", "kind": "chat", "from": "perf-agent", "correlationId": "msg-200", "payload": {"message": "Performance perspective: Safe to deploy. Minimal impact on latency."}}
"""

_NESTED = r"""
{"id": "msg-301", "kind": "reasoning.start", "from": "agent", "correlationId": "msg-300", "payload": {"message": "Analyzing request"}}
{"context": "msg-301", "id": "msg-302", "kind": "reasoning.start", "from": "agent", "payload": {"message": "Deep dive into security"}}
{"context": "msg-301/msg-302", "kind": "reasoning.thought", "from": "agent", "payload": {"message": "Checking permissions..."}}
{"context": "msg-301/msg-302", "kind": "reasoning.conclusion", "from": "agent", "payload": {"message": "Security check passed"}}
{"context": "msg-301", "kind": "reasoning.thought", "from": "agent", "payload": {"message": "Security is fine, checking performance..."}}
"""

_REFERENCES = r"""
{"id": "msg-401", "kind": "reasoning.start", "from": "agent", "correlationId": "msg-400", "payload": {
  "message": "Analyzing deployment",
  "references": ["msg-380", "msg-390"]
}}
"""

_COLLABORATIVE = r"""
{"id": "msg-501", "kind": "reasoning.start", "from": "agent-a", "correlationId": "msg-500"}
{"id": "msg-502", "context": "msg-501", "kind": "reasoning.thought", "from": "agent-a", "payload": {"message": "I think we should check performance first"}}
{"id": "msg-503", "context": "msg-501", "kind": "reasoning.thought", "from": "agent-b", "correlationId": "msg-502", "payload": {"message": "Have you considered the cache impact?"}}
{"id": "msg-504", "context": "msg-501", "kind": "reasoning.thought", "from": "agent-a", "correlationId": "msg-503", "payload": {"message": "Good point, let me check cache..."}}
{"id": "msg-505", "context": "msg-501", "kind": "reasoning.thought", "from": "agent-a", "payload": {"message": "Cache impact is minimal, proceeding with performance check"}}
"""

_METADATA = r"""
{"id": "msg-601", "kind": "reasoning.start", "from": "agent", "correlationId": "msg-600", "payload": {
  "message": "Analyzing request",
  "metadata": {
    "approach": "security-first",
    "estimated_duration": "30s",
    "confidence": 0.7
  }
}}
"""

_OPTION_6 = r"""
{"context": "reason-123", "kind": "chat", "payload": {"message": "Starting analysis"}}
{"context": "reason-123/security", "kind": "chat", "payload": {"message": "Checking security"}}
{"context": "reason-123/security/perms", "kind": "mcp.request", "payload": {}}
{"context": "reason-123/performance", "kind": "chat", "payload": {"message": "Checking performance"}}
{"context": "reason-123", "kind": "chat", "payload": {"message": "Analysis complete"}}
"""

_FILE_WRITE_OPTION_3 = r"""
{"kind": "chat", "from": "user", "payload": {"message": "Can you check if this file write is safe?"}}
{"context": "reason-789", "kind": "chat", "from": "agent", "payload": {"message": "Let me check the file permissions..."}}
{"context": "reason-789", "kind": "mcp.request", "from": "agent", "payload": {"method": "tools/call", "params": {"name": "check_permissions"}}}
{"context": "reason-789", "kind": "chat", "from": "agent", "payload": {"message": "The location requires elevated permissions, this could be risky"}}
{"kind": "chat", "from": "agent", "payload": {"message": "This file write is not safe due to permission requirements"}}
"""

_FILE_WRITE_OPTION_4 = r"""
{"kind": "chat", "from": "user", "payload": {"message": "Can you check if this file write is safe?"}}
{"context": "reason-789", "kind": "reasoning.start", "from": "agent", "payload": {"goal": "Evaluate file write safety"}}
{"context": "reason-789", "kind": "reasoning.thought", "from": "agent", "payload": {"content": "Need to check permissions"}}
{"context": "reason-789", "kind": "mcp.request", "from": "agent", "payload": {"method": "tools/call", "params": {"name": "check_permissions"}}}
{"context": "reason-789", "kind": "reasoning.observation", "from": "agent", "payload": {"content": "Elevated permissions required"}}
{"context": "reason-789", "kind": "reasoning.conclusion", "from": "agent", "payload": {"decision": "Unsafe", "confidence": 0.92}}
{"kind": "chat", "from": "agent", "correlationId": "reason-789", "payload": {"message": "This file write is not safe"}}
"""

_FILE_WRITE_HIERARCHICAL = r"""
{"kind": "chat", "from": "user", "payload": {"message": "Can you check if this file write is safe?"}}
{"context": "reason-789", "kind": "chat", "from": "agent", "payload": {"message": "Starting safety analysis"}}
{"context": "reason-789/permissions", "kind": "chat", "from": "agent", "payload": {"message": "Checking permissions"}}
{"context": "reason-789/permissions", "kind": "mcp.request", "from": "agent", "payload": {"method": "tools/call"}}
{"context": "reason-789/permissions/result", "kind": "chat", "from": "agent", "payload": {"message": "Requires elevated access"}}
{"context": "reason-789/risk-assessment", "kind": "chat", "from": "agent", "payload": {"message": "Evaluating risk level"}}
{"context": "reason-789", "kind": "chat", "from": "agent", "payload": {"message": "Analysis complete: unsafe"}}
{"kind": "chat", "from": "agent", "payload": {"message": "This file write is not safe"}}
"""


def _envelopes(text: str) -> tuple[str, ...]:
    """Split a text into its JSON values, unchanged."""
    decoder, texts, at = json.JSONDecoder(), [], 0
    text = text.strip()
    while at < len(text):
        _, end = decoder.raw_decode(text, at)
        texts.append(text[at:end])
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return tuple(texts)


FLOWS: dict[str, tuple[str, ...]] = {
    "option_3": _envelopes(_OPTION_3),
    "option_4": _envelopes(_OPTION_4),
    "option_5": _envelopes(_OPTION_5),
    "option_5_many_agents": _envelopes(_OPTION_5_MANY_AGENTS),
    "nested": _envelopes(_NESTED),
    "references": _envelopes(_REFERENCES),
    "collaborative": _envelopes(_COLLABORATIVE),
    "metadata": _envelopes(_METADATA),
    "option_6": _envelopes(_OPTION_6),
    "file_write_option_3": _envelopes(_FILE_WRITE_OPTION_3),
    "file_write_option_4": _envelopes(_FILE_WRITE_OPTION_4),
    "file_write_hierarchical": _envelopes(_FILE_WRITE_HIERARCHICAL),
}

__all__ = ["FLOWS"]
