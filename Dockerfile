# One image for every service of docker-compose.yml: the command tells them apart.
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE}

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1

# A fixed user id, so that volumes keep their owner from one image to the next. The folders exist
# before the volumes are mounted on them: Docker gives a new, empty volume the owner it finds there.
RUN useradd --system --uid 10001 --create-home exchequer \
    && install --directory --owner exchequer --mode 0700 \
        /var/lib/exchequer /var/lib/exchequer/keys /var/lib/exchequer/results /var/lib/exchequer/uploads \
        /var/lib/exchequer/ledger-log /var/lib/exchequer/public-log /var/lib/exchequer/signed-logs \
    && install --directory --owner exchequer --mode 0755 /tls /tls/ca /tls/postgres /tls/broker

WORKDIR /opt/exchequer

# The locks first: a change of the source then reuses this layer, the largest by far (torch). Everything is
# checked against the locks' hashes and nothing is resolved anew. For a build without CUDA (2.5 GB less to
# download): docker build --build-arg TORCH_INDEX=ADDRESS, see "Installing it" in the README.
ARG TORCH_INDEX=""
COPY scripts/install.py scripts/
COPY requirements-build.lock requirements.lock requirements-cuda.lock ./
RUN TORCH_INDEX="$TORCH_INDEX" python scripts/install.py libraries

# Editable, so that migrations/ stays where alembic and the package look for it.
COPY . .
RUN python -m pip install --no-deps --no-build-isolation --editable .

USER exchequer
ENV EXCHEQUER_HOME=/var/lib/exchequer
EXPOSE 8750
CMD ["gunicorn", "--bind", "0.0.0.0:8750", "--worker-class", "gthread", "web.app:create_app()"]
