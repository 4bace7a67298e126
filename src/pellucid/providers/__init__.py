"""Wires: how each provider sends reasoning, and how it must be sent back.

There is one package for each wire. It knows the wire and the parts, and no client protocol. Dialects of a wire are rows
of data (`profiles`). `history` decides, for all wires, which parts of the history are sent to which model.
"""
