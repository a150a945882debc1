# TensorFlow without CUDA, and any other Bazel workspace in C++ and Python.
#
# Serves: all commits whose Bazel and Python run on the base image. For TensorFlow 1.13 to 2.3 give a
# base of that time (debian:stretch, ubuntu:18.04), whose gcc and Python its sources were written for.
# Arguments:
#   BASE_IMAGE     Debian or Ubuntu with apt; its g++ and python3 are those of the build
#   PIP_REQUIREMENTS  Python packages that the build imports, e.g. "numpy<1.19 keras_preprocessing"
#   BAZEL_VERSION  version of Bazel; perfbisect takes it from the commit
#   BAZEL_URL      where its binary is fetched from, e.g. a mirror of yours
#   BAZEL_SHA256   SHA-256 of that binary; must be given when BAZEL_URL is used
#
# Context: this directory. A file `bazel` beside this one is used in place of BAZEL_URL (perfbisect
# puts one there that it has verified); a file `host-ca.crt` is trusted while Bazel and Python
# packages are downloaded, and is not in the finished image.
ARG BASE_IMAGE=debian:bookworm-slim

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS bazel
ARG BAZEL_VERSION=0.26.1
ARG BAZEL_URL=https://github.com/bazelbuild/bazel/releases/download/${BAZEL_VERSION}/bazel-${BAZEL_VERSION}-linux-x86_64
ARG BAZEL_SHA256=
COPY tf-cpu.Dockerfile host-ca.cr[t] baze[l] /context/
RUN set -eu; \
    if [ -s /context/bazel ]; then \
        cp /context/bazel /bazel; \
    else \
        apt-get update; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates curl; \
        if [ -s /context/host-ca.crt ]; then export CURL_CA_BUNDLE=/context/host-ca.crt; fi; \
        curl --fail --silent --show-error --location --output /bazel "${BAZEL_URL}"; \
        echo "${BAZEL_SHA256:?give the SHA-256 of what BAZEL_URL names}  /bazel" | sha256sum -c -; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    chmod 755 /bazel

# hadolint ignore=DL3006
FROM ${BASE_IMAGE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        build-essential ca-certificates git libstdc++6 patch python3 python3-dev python3-pip \
        python3-setuptools python3-wheel unzip zip \
    && rm -rf /var/lib/apt/lists/*
ARG PIP_REQUIREMENTS=""
COPY tf-cpu.Dockerfile host-ca.cr[t] /context/
RUN if [ -s /context/host-ca.crt ]; then export PIP_CERT=/context/host-ca.crt; fi; \
    if [ -n "${PIP_REQUIREMENTS}" ]; then \
        PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir ${PIP_REQUIREMENTS}; \
    fi; \
    rm -rf /context
COPY --from=bazel /bazel /usr/local/bin/bazel
RUN useradd --uid 10001 --create-home --shell /bin/bash builder
USER builder
WORKDIR /build/src
