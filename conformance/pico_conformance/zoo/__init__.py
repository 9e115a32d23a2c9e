"""The mutant zoo: backends with one planted fault each, and the hunt that must catch every one."""
