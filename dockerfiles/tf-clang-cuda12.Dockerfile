# TensorFlow with CUDA 12, compiled by clang: the toolchain of TensorFlow 2.15 to 2.17.
#
# Serves: commits from October 2023 to July 2024. Bazel 6.1 to 6.5, clang 17, CUDA 12.2 or 12.3,
# cuDNN 8.9, TensorRT 8.6, Python 3.9 to 3.12 (downloaded by the build itself).
# Arguments:
#   BASE_IMAGE     with CUDA 12, cuDNN 8.9 and their headers; docs/toolchains.md says what to
#                  put here where the default has gone from its registry
#   CLANG          major version of clang
#   CLANG_REPOSITORY  line for apt's sources that has this clang; empty: the base knows it
#   TENSORRT       version of libnvinfer's packages; empty: the base has it, or none is wanted
#   TENSORRT_REPOSITORY  line for apt's sources that has these packages; empty: the base knows it
#   PIP_REQUIREMENTS  Python packages that the build imports
#   BAZEL_VERSION  version of Bazel; perfbisect takes it from the commit
#   BAZEL_URL      where its binary is fetched from, e.g. a mirror of yours
#   BAZEL_SHA256   SHA-256 of that binary; must be given when BAZEL_URL is used
#
# Context: this directory. A file `bazel` beside this one is used in place of BAZEL_URL (perfbisect
# puts one there that it has verified); a file `host-ca.crt` is trusted while Bazel and Python
# packages are downloaded, and is not in the finished image.
ARG BASE_IMAGE=nvidia/cuda:12.3.2-cudnn9-devel-ubuntu22.04

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS bazel
ARG BAZEL_VERSION=6.5.0
ARG BAZEL_URL=https://github.com/bazelbuild/bazel/releases/download/${BAZEL_VERSION}/bazel-${BAZEL_VERSION}-linux-x86_64
ARG BAZEL_SHA256=
COPY tf-clang-cuda12.Dockerfile host-ca.cr[t] baze[l] /context/
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
ARG CLANG=17
ARG CLANG_REPOSITORY=""
RUN set -eu; \
    if [ -n "${CLANG_REPOSITORY}" ]; then \
        echo "${CLANG_REPOSITORY}" > /etc/apt/sources.list.d/clang.list; \
    fi; \
    apt-get update; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        "clang-${CLANG}" "lld-${CLANG}"; \
    rm -rf /var/lib/apt/lists/*
ENV CLANG_CUDA_COMPILER_PATH=/usr/lib/llvm-${CLANG}/bin/clang \
    TF_CUDA_CLANG=1
ARG TENSORRT=""
ARG TENSORRT_REPOSITORY=""
RUN set -eu; \
    if [ -n "${TENSORRT_REPOSITORY}" ]; then \
        echo "${TENSORRT_REPOSITORY}" > /etc/apt/sources.list.d/tensorrt.list; \
    fi; \
    if [ -n "${TENSORRT}" ]; then \
        apt-get update; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
            "libnvinfer8=${TENSORRT}" "libnvinfer-dev=${TENSORRT}" \
            "libnvinfer-plugin8=${TENSORRT}" "libnvinfer-plugin-dev=${TENSORRT}"; \
        rm -rf /var/lib/apt/lists/*; \
    fi
ENV TF_CUDA_VERSION=12 \
    TF_CUDNN_VERSION=8 \
    TF_NEED_CUDA=1 \
    LD_LIBRARY_PATH=/usr/local/cuda/lib64:/usr/local/cuda/extras/CUPTI/lib64:/usr/local/cuda/lib64/stubs
# The driver is not there while building; its stub is enough to link against.
RUN ln -sf libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so.1
ARG PIP_REQUIREMENTS=""
COPY tf-clang-cuda12.Dockerfile host-ca.cr[t] /context/
RUN if [ -s /context/host-ca.crt ]; then export PIP_CERT=/context/host-ca.crt; fi; \
    if [ -n "${PIP_REQUIREMENTS}" ]; then \
        PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir ${PIP_REQUIREMENTS}; \
    fi; \
    rm -rf /context
COPY --from=bazel /bazel /usr/local/bin/bazel
RUN useradd --uid 10001 --create-home --shell /bin/bash builder
USER builder
WORKDIR /build/src
