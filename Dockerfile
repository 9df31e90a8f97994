# A broker: docker build -t barnabas . && docker run -p 127.0.0.1:9092:9092 barnabas
# docs/docker.md says what can be set, docker-compose.yml runs three on ZooKeeper.

FROM python:3.11-slim AS build
RUN python3 -m venv /opt/tools \
 && python3 -m venv --without-pip /opt/barnabas
ENV PIP="/opt/tools/bin/pip --python /opt/barnabas/bin/python --no-cache-dir --disable-pip-version-check"
WORKDIR /src

# What we depend on first: a change of our own sources does not fetch it again.
COPY pyproject.toml .
RUN python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
    > dependencies.txt \
 && $PIP install -r dependencies.txt

COPY . .
RUN $PIP install --no-deps .


FROM python:3.11-slim
LABEL org.opencontainers.image.title="Barnabas" \
      org.opencontainers.image.description="A broker cluster in Python that speaks the Kafka wire protocol" \
      org.opencontainers.image.licenses="Apache-2.0"

# The user has the number that Apache Kafka's image gives its own: data of one can be had by the other.
RUN apt-get update \
 && apt-get install -y --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt \
 && groupadd --gid 1000 barnabas \
 && useradd --uid 1000 --gid 1000 --no-create-home --home-dir /var/lib/barnabas --shell /usr/sbin/nologin barnabas \
 && install -d -o barnabas -g barnabas /var/lib/barnabas
COPY --from=build /opt/barnabas /opt/barnabas

# Every key of the broker can be set like these; whoever runs a container has the last word.
ENV PATH=/opt/barnabas/bin:$PATH \
    KAFKA_LISTENERS=PLAINTEXT://:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_LOG_DIRS=/var/lib/barnabas \
    KAFKA_METRICS_LISTENER=:9404
USER 1000:1000
VOLUME /var/lib/barnabas
EXPOSE 9092 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=5m --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://localhost:9404/readyz', timeout=4)"]
ENTRYPOINT ["tini", "--", "barnabas"]
CMD ["serve"]
