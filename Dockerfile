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

# The locks first: a change of the source then reuses this layer, the largest by far (torch). TORCH names its build:
# cpu, cuda, or auto, which is the one for the CPU where an image is built on a machine without a GPU.
ARG TORCH=auto
ENV VENV=/opt/exchequer/.venv PATH=/opt/exchequer/.venv/bin:$PATH
COPY scripts/install.py scripts/
COPY requirements*.lock ./
RUN TORCH="$TORCH" python scripts/install.py libraries && rm -rf ~/.cache

# Editable, so that migrations/ stays where alembic and the package look for it.
COPY . .
RUN python3 scripts/install.py service

USER exchequer
ENV EXCHEQUER_HOME=/var/lib/exchequer
EXPOSE 8750
CMD ["gunicorn", "--config=python:web.gunicorn_settings", "--bind=0.0.0.0:8750", "web.app:create_app()"]
