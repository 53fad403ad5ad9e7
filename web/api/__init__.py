"""REST under /api/v1: JSON in and out, bearer tokens, errors as application/problem+json."""
