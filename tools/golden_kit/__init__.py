"""The parts of the golden comparison (`tools/golden.py`): scripts, an upstream, gateways of two checkouts, captures."""
