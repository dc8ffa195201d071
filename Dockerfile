# Two images: `mill` (brokers, collector, monitor, command line) and `stream`, which adds PySpark,
# Java and Spark's Kafka connector. Each part runs as a user of its own; see docker-compose.yml.

# 1: the broker's hot code is compiled to C (`make native`).
ARG NATIVE=0

FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/opt/millrace \
    PATH=/opt/millrace/.venv/bin:$PATH MILLRACE_HOME=/mill
WORKDIR /opt/millrace
# The folders exist with their owners, so that fresh volumes take these over.
RUN set -eu; \
    groupadd --gid 10000 mill; \
    user=10001; \
    for part in broker-1 broker-2 broker-3 collector stream monitor; do \
      uid=$user; \
      case $part in broker-2 | broker-3) uid=10001 ;; *) user=$((user + 1)) ;; esac; \
      id "mill-${part%-[0-9]}" >/dev/null 2>&1 || \
        useradd --uid "$uid" --gid mill --no-create-home --home-dir /tmp "mill-${part%-[0-9]}"; \
      install -d -o "$uid" -g mill -m 750 "/mill/data/$part"; \
      install -d -o "$uid" -g mill -m 700 "/mill/data/secrets/$part"; \
    done; \
    install -d /mill/configs /mill/watched /mill/data/secrets/mysql /mill/data/secrets/redis; \
    install -d -m 700 /mill/data/secrets/ca

FROM base AS packages
COPY requirements/build.txt requirements/runtime.txt requirements/
# Everything but PySpark, which weighs half a gigabyte and only the stream needs.
RUN awk '/^[a-zA-Z0-9]/ {skip = /^(pyspark|py4j)==/} !skip' requirements/runtime.txt >requirements/light.txt \
 && python -m venv .venv \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/build.txt \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-build-isolation \
      -r requirements/light.txt

FROM packages AS packages-stream
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-build-isolation \
      -r requirements/runtime.txt

FROM base AS java
RUN apt-get update -q \
 && mkdir -p /usr/share/man/man1 \
 && apt-get install -y -q --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*

FROM base AS native-0
RUN mkdir -p .cache/native

FROM packages AS native-1
# Debian's own Python has its headers in another package than the official image.
RUN apt-get update -q \
 && apt-get install -y -q --no-install-recommends gcc libc6-dev \
 && { [ -f "$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] \
      || apt-get install -y -q --no-install-recommends python3-dev; } \
 && rm -rf /var/lib/apt/lists/*
COPY requirements/dev.txt requirements/
RUN awk '/^[a-zA-Z0-9]/ {keep = /^(ast-serialize|librt|mypy|mypy-extensions|pathspec|typing-extensions)==/} keep' \
      requirements/dev.txt >requirements/native.txt \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-build-isolation \
      -r requirements/native.txt
COPY protocol protocol
COPY broker broker
COPY appliance appliance
RUN python -m appliance.launch.native

FROM native-${NATIVE} AS native

FROM base AS mill
COPY --from=packages /opt/millrace/.venv .venv
COPY protocol protocol
COPY broker broker
COPY collector collector
COPY sinks sinks
COPY stream stream
COPY monitor monitor
COPY appliance appliance
COPY bin bin
COPY --from=native /opt/millrace/.cache/native .cache/native
RUN python -m compileall -q . -x '\.venv'
ENTRYPOINT ["python", "-m", "appliance"]

# Spark's connector jars that `make setup` left beside this file. A fresh clone has no .cache, and
# COPY fails on a missing folder, also behind a wildcard. So this stage copies the whole context.
FROM base AS jars-from-setup
COPY . /context
RUN mkdir /jars \
 && if [ -d /context/.cache/jars ]; then find /context/.cache/jars -name '*.jar' -exec cp -t /jars {} +; fi

# The connector: jars that are already there are used, missing ones are fetched; either way they are
# checked against the pinned sums.
FROM java AS jars
COPY --from=packages-stream /opt/millrace/.venv .venv
COPY protocol protocol
COPY stream stream
COPY sinks sinks
COPY --from=jars-from-setup /jars .cache/jars
RUN python -m stream.spark.jars --cache /opt/millrace/.cache/jars

# What Spark needs to start in half the time; it fits this Java and these packages only.
FROM jars AS class-data
COPY --from=mill /opt/millrace/broker broker
COPY --from=mill /opt/millrace/collector collector
COPY --from=mill /opt/millrace/monitor monitor
COPY --from=mill /opt/millrace/appliance appliance
COPY configs/millrace.yaml configs/millrace.yaml
RUN python -m appliance.mill.class_data

FROM java AS stream
COPY --from=packages-stream /opt/millrace/.venv .venv
COPY --from=class-data /opt/millrace/.cache .cache
COPY --from=mill /opt/millrace/protocol protocol
COPY --from=mill /opt/millrace/broker broker
COPY --from=mill /opt/millrace/collector collector
COPY --from=mill /opt/millrace/sinks sinks
COPY --from=mill /opt/millrace/stream stream
COPY --from=mill /opt/millrace/monitor monitor
COPY --from=mill /opt/millrace/appliance appliance
ENTRYPOINT ["python", "-m", "appliance"]
