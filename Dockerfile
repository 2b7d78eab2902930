# The operator and the shim: `make image`.
#
# The tag is exact, but a tag can be moved: where that matters, give a digest too, as in
# --build-arg PYTHON=3.13.9-slim-trixie@sha256:... or mirror the base image. Nothing else is taken
# from outside than Python packages, each at the version in constraints.txt.
ARG PYTHON=3.13.9-slim-trixie

FROM python:${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY kwok_operator kwok_operator
COPY hack/image/build.sh hack/image/
RUN sh hack/image/build.sh /opt/kwok-operator

FROM python:${PYTHON}
ARG PYTHON
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kwok-operator" \
      org.opencontainers.image.description="Groups of fake Kubernetes nodes, kept at their size" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0 AND MIT" \
      org.opencontainers.image.base.name="python:${PYTHON}"
# Nothing is installed in a container that runs, so what could install goes.
RUN python -m pip uninstall --yes --root-user-action=ignore pip \
    && rm -rf /usr/local/lib/python3.*/ensurepip
COPY --from=build /opt/kwok-operator /opt/kwok-operator
ENV PATH=/opt/kwok-operator/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["kwok-operator"]
CMD ["--help"]
