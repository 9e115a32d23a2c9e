"""The subcommands of `pico` that come with the store."""
