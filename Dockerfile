# A CPU image with the package and the base model `minilm`:
#   docker build -t transencoder . && docker run --rm -v "$PWD:/data" transencoder --help
# Files in the mounted folder are written as user 1000: add `--user "$(id -u)"` where yours is another.
FROM python:3.11-slim AS wheel
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.11-slim
# Torch comes first and alone. Give `--build-arg TORCH_INDEX=...`, an index of CPU builds, for an image without CUDA.
ARG TORCH_INDEX=
COPY --from=wheel /src/constraints.txt /wheels/ /wheels/
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' /wheels/constraints.txt)" \
    && pip install --no-cache-dir -c /wheels/constraints.txt "$(ls /wheels/*.whl)[demo]" \
    && rm -r /wheels \
    && useradd --create-home --uid 1000 transencoder
USER transencoder
WORKDIR /data
ENTRYPOINT ["transencoder"]
CMD ["--help"]
