"""The conformance suite: the model of a pico storage and the tests that hold a backend to it."""
