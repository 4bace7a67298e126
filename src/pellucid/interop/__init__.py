"""Interoperation with other libraries. Each package needs its library, and no other package imports it."""
