"""A pico backend that keeps its sessions in the memory of the process."""
