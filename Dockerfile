# A broker: docker build -t barnabas . && docker run -p 127.0.0.1:9092:9092 barnabas
# The example of the data pipeline: docker build --target pipeline -t barnabas-pipeline .
# docs/docker.md describes the settings; docker-compose.yml runs three brokers on ZooKeeper.

FROM python:3.11-slim AS dependencies
RUN python3 -m venv /opt/tools \
 && python3 -m venv --without-pip /opt/barnabas
ENV PIP="/opt/tools/bin/pip --python /opt/barnabas/bin/python --no-cache-dir --disable-pip-version-check"
WORKDIR /src

# The dependencies, with the extras `console`, `re2` and `security`, are a layer of their own: a change
# of our sources keeps it.
COPY pyproject.toml .
RUN python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *(each for extra in ('console', 're2', 'security') for each in p['optional-dependencies'][extra]), sep='\n')" \
    > dependencies.txt \
 && $PIP install -r dependencies.txt


FROM dependencies AS build
COPY . .
RUN $PIP install --no-deps .


# The target `pipeline`: the same with the extra `spark` and a JRE. Builders that have BuildKit leave
# it out unless it is asked for.
FROM dependencies AS pipeline-build
RUN python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['optional-dependencies']['spark'], sep='\n')" \
    > spark.txt \
 && $PIP install -r spark.txt
COPY . .
RUN $PIP install --no-deps .


FROM python:3.11-slim AS pipeline
LABEL org.opencontainers.image.title="Barnabas pipeline" \
      org.opencontainers.image.description="The example of the data pipeline: brokers, a job on Spark, a page" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install -y --no-install-recommends tini default-jre-headless \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt \
 && groupadd --gid 1000 barnabas \
 && useradd --uid 1000 --gid 1000 --no-create-home --home-dir /var/lib/barnabas --shell /usr/sbin/nologin barnabas \
 && install -d -o barnabas -g barnabas /var/lib/barnabas
COPY --from=pipeline-build /opt/barnabas /opt/barnabas
ENV PATH=/opt/barnabas/bin:$PATH
USER 1000:1000
WORKDIR /var/lib/barnabas
VOLUME /var/lib/barnabas
EXPOSE 8088
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=1m --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://localhost:8088/progress', timeout=4)"]
ENTRYPOINT ["tini", "--", "barnabas"]
CMD ["pipeline", "example", "--http", "0.0.0.0:8088"]


# The last stage is the image of a broker, which `docker build .` makes.
FROM python:3.11-slim
LABEL org.opencontainers.image.title="Barnabas" \
      org.opencontainers.image.description="A broker cluster in Python that speaks the Kafka wire protocol" \
      org.opencontainers.image.licenses="Apache-2.0"

# The user has the same id as in Apache Kafka's image: each can read the other's data directory.
RUN apt-get update \
 && apt-get install -y --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt \
 && groupadd --gid 1000 barnabas \
 && useradd --uid 1000 --gid 1000 --no-create-home --home-dir /var/lib/barnabas --shell /usr/sbin/nologin barnabas \
 && install -d -o barnabas -g barnabas /var/lib/barnabas /var/lib/barnabas-secure
COPY --from=build /opt/barnabas /opt/barnabas

# Every key of the broker can be set like these; variables of the container take precedence.
ENV PATH=/opt/barnabas/bin:$PATH \
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
