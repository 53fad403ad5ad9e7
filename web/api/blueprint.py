"""The blueprint on which every route of /api/v1 hangs itself."""

from flask import Blueprint

api = Blueprint("api", "web.api", url_prefix="/api/v1")

#: What anybody may ask without a token.
PUBLIC = frozenset({"api.sign_in", "api.openapi", "api.keys"})
