"""An OpenID Connect provider, from Authlib's provider classes, as a process: `python
oidc_provider.py`.

Authorization code with PKCE, which it insists on, and signed id tokens. Prints its port, then
serves. Whom it knows is set through /people; /faults makes it lie in one way at a time, as an
attacker's provider would. /sign signs any claims, as logout tokens.
"""

import base64
import json
import os
import secrets
import time
from typing import Any

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import UserInfo
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, jsonify, request
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from werkzeug.serving import make_server

CLIENT_ID, CLIENT_SECRET = "exchequer", "a secret between two servers"

people: dict[str, dict[str, Any]] = {}
faults: dict[str, Any] = {}
codes: dict[str, "Code"] = {}
key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
other = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
app = Flask(__name__)


class Client(ClientMixin):
    client_id = CLIENT_ID

    def get_client_id(self):
        return CLIENT_ID

    def get_allowed_scope(self, scope):
        return scope

    def check_redirect_uri(self, redirect_uri):
        return redirect_uri.endswith("/sign-in/provider/return")

    def check_client_secret(self, client_secret):
        return secrets.compare_digest(client_secret, CLIENT_SECRET)

    def check_endpoint_auth_method(self, method, endpoint):
        return method == "client_secret_basic"

    def check_response_type(self, response_type):
        return response_type == "code"

    def check_grant_type(self, grant_type):
        return grant_type in ("authorization_code", "refresh_token")


class Code:
    def __init__(self, code, wanted, user):
        data = wanted.payload.data
        self.code, self.user = code, user
        self.redirect_uri, self.scope = wanted.payload.redirect_uri, wanted.scope
        self.nonce = data.get("nonce")
        self.code_challenge = data.get("code_challenge")
        self.code_challenge_method = data.get("code_challenge_method")
        self.at = int(time.time())

    def get_redirect_uri(self):
        return self.redirect_uri

    def get_scope(self):
        return self.scope

    def get_nonce(self):
        return self.nonce

    def get_auth_time(self):
        return faults.get("claims", {}).get("auth_time", self.at)

    def get_acr(self):
        return faults.get("claims", {}).get("acr")

    def get_amr(self):
        return None


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

    def save_authorization_code(self, code, request):
        codes[code] = Code(code, request, request.user)

    def query_authorization_code(self, code, client):
        return codes.get(code)

    def delete_authorization_code(self, authorization_code):
        codes.pop(authorization_code.code, None)

    def authenticate_user(self, authorization_code):
        return authorization_code.user


def part(value: dict) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class IdToken(OpenIDCode):
    def exists_nonce(self, nonce, request):
        return any(each.nonce == nonce for each in codes.values())

    def get_client_algorithm(self, client):
        return "RS256"

    def get_encode_header(self, client):
        return {"alg": "RS256", "kid": "one"}

    def resolve_client_private_key(self, client):
        return other if faults.get("key") == "another" else key

    def get_client_claims(self, client):
        return {"iss": issuer(), "aud": CLIENT_ID}

    def get_compatible_claims(self, request):
        return {"iss": issuer(), "aud": [CLIENT_ID], **times()}

    def generate_user_info(self, user, scope):
        hidden = faults.get("hidden", [])  # these stand at userinfo only
        stated = {name: value for name, value in people[user].items() if name not in hidden}
        return UserInfo(**{**stated, **times(), **faults.get("claims", {})})

    def encode_id_token(self, token, request):
        signed = super().encode_id_token(token, request)
        if faults.get("key") == "none":
            body = signed.split(".")[1]
            return f"{part({'alg': 'none'})}.{body}."
        return signed


def times() -> dict:
    """iat and exp of now, and what /faults moves, in seconds from now."""
    moved = {"iat": 0, "exp": 300} | faults.get("moved", {})
    return {name: int(time.time()) + seconds for name, seconds in moved.items()}


def issuer() -> str:
    return request.host_url.rstrip("/")


server = AuthorizationServer(app, query_client=lambda name: Client() if name == CLIENT_ID else None)
given: dict[str, str] = {}  # refresh tokens and access tokens, of whom


def save_token(token, request):
    given[token["access_token"]] = request.user
    if faults.get("refresh"):
        token["refresh_token"] = secrets.token_urlsafe(16)
        given[token["refresh_token"]] = request.user


server.save_token = save_token
server.register_grant(CodeGrant, [CodeChallenge(required=True), IdToken(require_nonce=True)])


@app.get("/.well-known/openid-configuration")
def discovery():
    return jsonify(
        issuer=faults.get("issuer", issuer()),
        authorization_endpoint=f"{issuer()}/authorize",
        token_endpoint=f"{issuer()}/token",
        jwks_uri=f"{issuer()}/keys",
        userinfo_endpoint=f"{issuer()}/me",
        response_types_supported=["code"],
        subject_types_supported=["public"],
        id_token_signing_alg_values_supported=["RS256", "none", "HS256"],
        code_challenge_methods_supported=["S256"],
        **faults.get("metadata", {}),
    )


@app.get("/keys")
def keys():
    return jsonify(KeySet([key]).as_dict(private=False))


@app.route("/authorize", methods=["GET", "POST"])
def authorize():
    """The person is who the form says; a real provider would ask for more."""
    if request.args.get("code_challenge_method") != "S256":
        return "PKCE with S256, please", 400
    user = request.form.get("user")
    if user not in people:
        return "<form method=post><input name=user><button>Go on</button></form>"
    grant = server.get_consent_grant(end_user=user)
    answer = server.create_authorization_response(grant_user=user, grant=grant)
    for sender in faults.get("senders", []):
        answer.headers["Location"] += f"&iss={sender.replace('ITSELF', issuer())}"
    return answer


@app.post("/token")
def token():
    if request.form.get("grant_type") != "refresh_token":
        return server.create_token_response()
    user = given.pop(request.form["refresh_token"], None)
    if faults.get("token_status"):
        return "<html>out of order</html>", faults["token_status"]
    if user not in people or faults.get("token_error"):
        return jsonify(error=faults.get("token_error", "invalid_grant")), 400
    token = {"access_token": secrets.token_urlsafe(16), "token_type": "Bearer", "expires_in": 300}
    token["refresh_token"] = secrets.token_urlsafe(16)
    given.update({token["access_token"]: user, token["refresh_token"]: user})
    return jsonify(token)


@app.get("/me")
def userinfo():
    user = given.get(request.headers["Authorization"].removeprefix("Bearer "))
    if user not in people:
        return jsonify(error="invalid_token"), 401
    return jsonify({**people[user], **faults.get("userinfo", {})})


@app.post("/sign")
def sign():
    wanted = request.get_json()
    signer = other if wanted.get("key") == "another" else key
    header = {"alg": "RS256", "kid": "one"} | wanted.get("header", {})
    if header["alg"] == "HS256":
        signer = OctKey.import_key(CLIENT_SECRET)
    if header["alg"] == "none":
        return f"{part(header)}.{part(wanted['claims'])}."
    return jwt.encode(header, wanted["claims"], signer, algorithms=["RS256", "HS256"])


@app.delete("/people/<name>")
def forget(name):
    del people[name]
    return jsonify(name)


@app.put("/people/<name>")
def know(name):
    people[name] = request.get_json()
    return jsonify(name)


@app.put("/faults")
def misbehave():
    faults.clear()
    faults.update(request.get_json())
    return jsonify(faults)


if __name__ == "__main__":
    serving = make_server("127.0.0.1", 0, app, threaded=True)
    print(serving.port, flush=True)
    serving.serve_forever()
