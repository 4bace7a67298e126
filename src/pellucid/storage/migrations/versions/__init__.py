"""One module for each version, ordered by `down_revision`."""
