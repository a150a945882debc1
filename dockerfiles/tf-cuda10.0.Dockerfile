# TensorFlow with CUDA 10.0: the toolchain of TensorFlow 1.13 to 2.0.
#
# Serves: commits from late 2018 to November 2019. Bazel 0.19 to 0.26, gcc 6 or 7, CUDA 10.0,
# cuDNN 7.6, TensorRT 5.1.5, Python 3.5 to 3.7.
# Arguments:
#   BASE_IMAGE     with CUDA 10.0, cuDNN 7.6 and their headers; docs/toolchains.md says what to
#                  put here where the default has gone from its registry
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
ARG BASE_IMAGE=nvidia/cuda:10.0-cudnn7-devel-ubuntu18.04

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS bazel
ARG BAZEL_VERSION=0.26.1
ARG BAZEL_URL=https://github.com/bazelbuild/bazel/releases/download/${BAZEL_VERSION}/bazel-${BAZEL_VERSION}-linux-x86_64
ARG BAZEL_SHA256=
COPY tf-cuda10.0.Dockerfile host-ca.cr[t] baze[l] /context/
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
        build-essential ca-certificates git patch python3 python3-dev python3-pip python3-setuptools \
        python3-wheel unzip zip \
    && rm -rf /var/lib/apt/lists/*
ARG TENSORRT="5.1.5-1+cuda10.0"
ARG TENSORRT_REPOSITORY=""
RUN set -eu; \
    if [ -n "${TENSORRT_REPOSITORY}" ]; then \
        echo "${TENSORRT_REPOSITORY}" > /etc/apt/sources.list.d/tensorrt.list; \
    fi; \
    if [ -n "${TENSORRT}" ]; then \
        apt-get update; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
            "libnvinfer5=${TENSORRT}" "libnvinfer-dev=${TENSORRT}"; \
        rm -rf /var/lib/apt/lists/*; \
    fi
ENV TF_CUDA_VERSION=10.0 \
    TF_CUDNN_VERSION=7 \
    TF_NEED_CUDA=1 \
    LD_LIBRARY_PATH=/usr/local/cuda/lib64:/usr/local/cuda/extras/CUPTI/lib64:/usr/local/cuda/lib64/stubs
# The driver is not there while building; its stub is enough to link against.
RUN ln -sf libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so.1
ARG PIP_REQUIREMENTS="numpy<1.19 six wheel<0.35 setuptools<50 mock future<1 keras_applications==1.0.8 keras_preprocessing==1.1.0 protobuf<3.20"
COPY tf-cuda10.0.Dockerfile host-ca.cr[t] /context/
RUN if [ -s /context/host-ca.crt ]; then export PIP_CERT=/context/host-ca.crt; fi; \
    if [ -n "${PIP_REQUIREMENTS}" ]; then \
        PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir ${PIP_REQUIREMENTS}; \
    fi; \
    rm -rf /context
COPY --from=bazel /bazel /usr/local/bin/bazel
RUN useradd --uid 10001 --create-home --shell /bin/bash builder
USER builder
WORKDIR /build/src
