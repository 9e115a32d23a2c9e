"""The storage contract of pico: records, batches, queries and the protocols of every backend."""
