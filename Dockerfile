# Two images: `web`, for web, relay, signer and migrations, and `worker`, which has the engine besides. The command
# tells the services apart.
#
#   docker build --target web .
#   docker build --target worker --build-arg TORCH=cuda .
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE} AS base

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1

# Any user id will do: what is installed may be read by all, and only volumes and /tmp are written. The folders exist
# before the volumes are mounted on them: Docker gives a new, empty volume the owner it finds there.
RUN useradd --system --uid 10001 --create-home exchequer \
    && install --directory --owner exchequer --mode 0700 \
        /var/lib/exchequer /var/lib/exchequer/keys /var/lib/exchequer/results /var/lib/exchequer/uploads \
        /var/lib/exchequer/ledger-log /var/lib/exchequer/public-log /var/lib/exchequer/signed-logs \
    && install --directory --owner exchequer --mode 0755 /tls /tls/ca /tls/postgres /tls/broker

WORKDIR /opt/exchequer

# The locks first: a change of the source then reuses these layers, the largest by far.
ENV VENV=/opt/exchequer/.venv PATH=/opt/exchequer/.venv/bin:$PATH EXCHEQUER_HOME=/var/lib/exchequer
COPY scripts/install.py scripts/
COPY requirements*.lock ./
RUN python scripts/install.py web && pip uninstall --quiet --yes uv && rm -rf ~/.cache

# TORCH names a build of torch: cpu, cuda, or auto, which is the one for the CPU where an image is built on a machine
# without a GPU.
FROM base AS engine
ARG TORCH=auto
RUN TORCH="$TORCH" python scripts/install.py libraries && pip uninstall --quiet --yes uv && rm -rf ~/.cache

# Editable, so that migrations/ stays where alembic and the package look for it.
FROM engine AS worker
COPY . .
RUN python3 scripts/install.py service && pip uninstall --quiet --yes uv && rm -rf ~/.cache
USER 10001
CMD ["python", "-m", "workers.jobs.launcher"]

FROM base AS web
COPY . .
RUN python3 scripts/install.py web-service && pip uninstall --quiet --yes uv && rm -rf ~/.cache
USER 10001
EXPOSE 8750
CMD ["gunicorn", "--config=python:web.gunicorn_settings", "--bind=0.0.0.0:8750", "web.app:create_app()"]
