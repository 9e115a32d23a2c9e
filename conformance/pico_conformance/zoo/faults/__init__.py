"""Planted faults, one module a part of the contract; importing one registers what is in it."""
