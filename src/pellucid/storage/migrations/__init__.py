"""How databases of older versions become this one (`pellucid.storage.migrate`)."""
