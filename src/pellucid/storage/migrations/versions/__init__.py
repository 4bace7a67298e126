"""One module a version, in the order in which `down_revision` links them."""
