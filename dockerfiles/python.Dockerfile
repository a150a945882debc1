# Python wheels with C or C++ extensions (recipes of kind `pip-wheel` and `command`).
#
# Serves: any Python project that builds with gcc and needs no CUDA.
# Arguments:
#   BASE_IMAGE  Debian or Ubuntu with apt; its python3 is the Python of the build
#   UV_VERSION  version of uv, which builds wheels against requirements of the commit's date
#
# Context: this directory. A file `host-ca.crt` beside this one is trusted while uv is downloaded,
# and is not in the finished image.
ARG BASE_IMAGE=debian:bookworm-slim

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS uv
ARG UV_VERSION=0.8.22
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates python3 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY python.Dockerfile host-ca.cr[t] /context/
RUN if [ -s /context/host-ca.crt ]; then export PIP_CERT=/context/host-ca.crt; fi \
    && python3 -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir "uv==${UV_VERSION}"

# hadolint ignore=DL3006
FROM ${BASE_IMAGE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        build-essential ca-certificates cmake git ninja-build patch pkg-config \
        python3 python3-dev python3-venv unzip zip \
    && rm -rf /var/lib/apt/lists/*
COPY --from=uv /opt/uv/bin/uv /usr/local/bin/uv
RUN useradd --uid 10001 --create-home --shell /bin/bash builder
USER builder
WORKDIR /build/src
