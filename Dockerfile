# One image for every service of docker-compose.yml: the command tells them apart.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1

# A fixed user id, so that volumes keep their owner from one image to the next. The folders exist
# before the volumes are mounted on them: Docker gives a new, empty volume the owner it finds there.
RUN useradd --system --uid 10001 --create-home exchequer \
    && install --directory --owner exchequer --mode 0700 \
        /var/lib/exchequer /var/lib/exchequer/keys /var/lib/exchequer/results /var/lib/exchequer/uploads

WORKDIR /opt/exchequer

# The lock first: a change of the source then reuses this layer, the largest by far (torch).
COPY requirements.lock ./
RUN pip install -r requirements.lock

# Editable, so that migrations/ stays where alembic and the package look for it. No dependencies:
# everything that runs comes from the lock, nothing is resolved anew.
COPY . .
RUN pip install --no-deps --editable .

USER exchequer
ENV EXCHEQUER_HOME=/var/lib/exchequer
EXPOSE 8750
CMD ["gunicorn", "--bind", "0.0.0.0:8750", "--worker-class", "gthread", "web.app:create_app()"]
