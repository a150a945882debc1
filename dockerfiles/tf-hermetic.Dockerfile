# TensorFlow that brings its own CUDA and Python: the toolchain of TensorFlow 2.18 on.
#
# Serves: commits since July 2024, with and without CUDA. Bazel 6.5 or 7, clang 17 or 18. CUDA, cuDNN,
# NCCL and Python are downloaded by the build (HERMETIC_CUDA_VERSION, HERMETIC_PYTHON_VERSION), so the
# recipe needs network = true, or a full repository cache.
# Arguments:
#   BASE_IMAGE     Debian or Ubuntu with apt
#   CLANG          major version of clang
#   CLANG_REPOSITORY  line for apt's sources that has this clang; empty: the base knows it
#   BAZEL_VERSION  version of Bazel; perfbisect takes it from the commit
#   BAZEL_URL      where its binary is fetched from, e.g. a mirror of yours
#   BAZEL_SHA256   SHA-256 of that binary; must be given when BAZEL_URL is used
#
# Context: this directory. A file `bazel` beside this one is used in place of BAZEL_URL (perfbisect
# puts one there that it has verified); a file `host-ca.crt` is trusted while Bazel and Python
# packages are downloaded, and is not in the finished image.
ARG BASE_IMAGE=ubuntu:24.04

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS bazel
ARG BAZEL_VERSION=6.5.0
ARG BAZEL_URL=https://github.com/bazelbuild/bazel/releases/download/${BAZEL_VERSION}/bazel-${BAZEL_VERSION}-linux-x86_64
ARG BAZEL_SHA256=
COPY tf-hermetic.Dockerfile host-ca.cr[t] baze[l] /context/
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
        build-essential gnupg ca-certificates git patch python3 python3-dev python3-pip python3-setuptools \
        python3-wheel unzip zip \
    && rm -rf /var/lib/apt/lists/*
ARG CLANG=18
ARG CLANG_REPOSITORY=""
RUN set -eu; \
    if [ -n "${CLANG_REPOSITORY}" ]; then \
        echo "${CLANG_REPOSITORY}" > /etc/apt/sources.list.d/clang.list; \
    fi; \
    apt-get update; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        "clang-${CLANG}" "lld-${CLANG}"; \
    rm -rf /var/lib/apt/lists/*
ENV CC=/usr/lib/llvm-${CLANG}/bin/clang \
    CXX=/usr/lib/llvm-${CLANG}/bin/clang++ \
    CLANG_COMPILER_PATH=/usr/lib/llvm-${CLANG}/bin/clang
COPY --from=bazel /bazel /usr/local/bin/bazel
RUN useradd --uid 10001 --create-home --shell /bin/bash builder
USER builder
WORKDIR /build/src
