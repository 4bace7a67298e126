"""Agents of other frameworks as participants of a space: functions from a question to thoughts and text."""
