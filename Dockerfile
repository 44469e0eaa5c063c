# The ssp-redis command in a small image that runs as nobody in particular.
#
#   docker build -t ssp-redis .
#   docker run --rm ssp-redis --help
#
# PYTHON_IMAGE  any image with Python >= 3.10 and its venv module
# EXTRAS        optional dependencies of the package, comma separated, e.g. --build-arg EXTRAS=data
ARG PYTHON_IMAGE=python:3.12-slim

# Everything is installed into one virtual environment, so that the second stage takes over one directory
# and none of the tools that filled it.
FROM ${PYTHON_IMAGE} AS build
ARG EXTRAS=
RUN python3 -m venv /opt/ssp-redis
WORKDIR /src
COPY . .
RUN /opt/ssp-redis/bin/pip install --no-cache-dir ".${EXTRAS:+[${EXTRAS}]}" \
 && /opt/ssp-redis/bin/ssp-redis --version \
 && /opt/ssp-redis/bin/pip uninstall --yes pip setuptools \
 && find /opt/ssp-redis -type d -name tests -path '*/numpy/*' -prune -exec rm -r {} +

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/ssp-redis /opt/ssp-redis
# A number, not a name: it needs no account in the image, and Kubernetes can check that it is not root.
USER 10001:10001
WORKDIR /tmp
ENV PATH=/opt/ssp-redis/bin:$PATH PYTHONUNBUFFERED=1
# The exec form: the command itself is process 1, and SIGTERM reaches it without a shell in between.
ENTRYPOINT ["ssp-redis"]
CMD ["--help"]
