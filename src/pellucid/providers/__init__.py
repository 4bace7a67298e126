"""How each provider puts reasoning on its wire, and wants it back.

One module a wire: it knows that wire and the parts, and nothing of any client protocol. Dialects of a wire are
rows of data (`profiles`); what of the history goes back to whom is decided in one place (`history`).
"""
