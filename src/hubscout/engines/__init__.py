"""Where the work runs: this process, or a Ray cluster."""
