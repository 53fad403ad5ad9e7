"""The routes of /api/v1, a module for each noun; `web.client.api.Api` is all of them."""
