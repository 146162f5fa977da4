# The mesh from source: a stage with Rust's toolchain, and a small image with the wheel.
FROM rust:1.90-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /build && /build/bin/pip install --no-cache-dir 'maturin>=1.9,<2'
WORKDIR /src
COPY . .
RUN /build/bin/maturin build --release --locked --out /dist

FROM python:3.11-slim-bookworm
COPY --from=build /dist /tmp/dist
RUN python3 -m venv /opt/pyserve \
    && /opt/pyserve/bin/pip install --no-cache-dir "$(echo /tmp/dist/*.whl)[kubernetes]" numpy \
    && rm -rf /tmp/dist \
    && mkdir -p /var/lib/pyserve && chown 10001:10001 /var/lib/pyserve && chmod 700 /var/lib/pyserve
COPY services /app/services
ENV PATH=/opt/pyserve/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /app
USER 10001:10001
ENTRYPOINT ["pyserve"]
