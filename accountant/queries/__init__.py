"""The readers: what pages, the API and the command line show, on read-only connections."""
