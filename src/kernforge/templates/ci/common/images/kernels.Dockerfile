# An image with the locked kernels of an application, which it loads without a network.
#
#   docker build -f images/kernels.Dockerfile --build-arg PLATFORM=torch2.11-cu130-x86_64-linux my-app
#
# my-app has a pyproject.toml, and the locks that `kernforge lock` writes.
FROM python:3.12-slim

# An image is built where there is no GPU, so the machine that it will run on is named.
ARG PLATFORM=torch2.13-cu130-x86_64-linux
ARG REGISTRY=hf://

RUN pip install --no-cache-dir 'kernforge[hub,trust]'
COPY pyproject.toml *.lock /app/
RUN kernforge get /app --registry "$REGISTRY" --to /opt/kernels --platform "$PLATFORM"

ENV KERNFORGE_REGISTRY=/opt/kernels
