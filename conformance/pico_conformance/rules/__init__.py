"""The rules of SPEC.md as tests, a module for each group of clauses."""
