"""Other libraries' words for the same things. Each room here needs the library it speaks for, and nothing needs it."""
