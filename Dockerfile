# docker build -t texseg . && docker run --rm -v "$PWD:/data" texseg segment photo.jpg -o out/
FROM python:3.12 AS build
COPY . /src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src
FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && useradd --create-home texseg
USER texseg
WORKDIR /data
ENTRYPOINT ["texseg"]
