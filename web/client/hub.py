"""Publishing an approved result on a Hugging Face hub, with the hub token of this machine's user.

approved zip ── each file by the hash of the decision ──▶ one commit on the hub ──▶ recorded
"""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from accountant.core.errors import ExchequerError
from web.client.api import Api
from web.client.errors import Json
from web.client.files import Hashing


class HubProblem(ExchequerError):
    """The hub, or what speaks to it, did not take the files."""

    code = "hub"


def endpoint() -> str:
    """Return the address of the hub, as `huggingface_hub` reads it."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def push(api: Api, decision: Json) -> str:
    """Upload what a decision approved as one commit; returns the commit's address.

    Raises HubProblem, and Altered where a file is not the one that was approved.
    """
    asked = decision["asked"]
    # The token goes where this machine says, never where a server says.
    if asked["endpoint"] != endpoint():
        raise HubProblem(
            f"it was approved for {asked['endpoint']}, and HF_ENDPOINT is {endpoint()}: set it"
        )
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError:
        raise HubProblem("it is not installed here: `pip install huggingface-hub`") from None
    name = asked["to"].removeprefix("hf://datasets/")
    hub = HfApi(endpoint=endpoint(), library_name="exchequer")
    with tempfile.TemporaryDirectory() as folder:
        files = _unpacked(api, decision["id"], asked["files"], Path(folder))
        try:
            hub.create_repo(name, repo_type="dataset", exist_ok=True)
            commit = hub.create_commit(
                name,
                [CommitOperationAdd(file.name, file) for file in files],
                commit_message=f"Job {decision['job']} of {decision['dataset']}",
                repo_type="dataset",
            )
        except Exception as error:  # of whatever library it asks with
            raise HubProblem(f"{endpoint()} did not take it: {error}".splitlines()[0]) from None
    api.record_push(decision["id"], commit.oid)
    return str(commit.commit_url)


def _unpacked(api: Api, decision_id: str, hashes: Mapping[str, str], folder: Path) -> list[Path]:
    """Return the approved files, each compared with its hash; no other file is in the archive."""
    with tempfile.TemporaryFile() as archive:
        api.save_push(decision_id, archive)
        with zipfile.ZipFile(archive) as zipped:
            names = zipped.namelist()
            if sorted(names) != sorted(hashes) or any(Path(name).name != name for name in names):
                raise HubProblem(
                    "the server sent other files than those approved: none is uploaded"
                )
            for name in names:
                with zipped.open(name) as member, (folder / name).open("wb") as file:
                    hashing = Hashing(file)
                    shutil.copyfileobj(member, hashing)
                hashing.check(hashes[name])
    return [folder / name for name in names]
