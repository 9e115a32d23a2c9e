"""The subcommands of `pico` that show and do the work of a session."""
