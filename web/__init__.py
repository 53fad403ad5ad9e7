"""The web service, the command line and the client."""
