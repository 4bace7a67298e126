"""Google's Gemini: `generateContent` and `streamGenerateContent`. Answers of the Interactions API can be decoded, too.

An answer is a list of parts without ids or end events. A signature is on the part that the reasoning led to.
"""
