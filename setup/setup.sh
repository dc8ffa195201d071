#!/usr/bin/env bash
# Prepare this folder for the mill: `setup/setup.sh runtime` (what `make up` needs) or `dev` (tests too).
#
# Installed programs are used. Missing ones are installed with apt, as root or with sudo. Without these
# rights, one message lists everything that is missing, and nothing is changed. Python packages go into
# .venv, pinned by hash. Spark's Kafka connector goes into .cache/jars, checked by sha256. A run with
# nothing to do takes a fraction of a second.
set -Eeuo pipefail
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${1:-runtime}
case $profile in
  runtime | dev) ;;
  *) echo "usage: setup/setup.sh [runtime|dev]" >&2; exit 2 ;;
esac

python_minor_min=11
java_major_min=17
policy=/usr/sbin/policy-rc.d
policy_mark='# millrace setup: the packages being installed must not start services of their own'

say() { printf 'setup: %s\n' "$*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }

# Programs in sbin folders count too: a plain user's PATH often lacks them.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# ---------------------------------------------------------------- what is here

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] && has "$candidate" || continue
    if "$candidate" -c "import sys; sys.exit(sys.version_info < (3, $python_minor_min))" 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

java_major() { # prints the major version of the java program in $1; empty if it does not run
  "$1" -version 2>&1 | sed -n '1,3s/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

has_java() {
  local candidate major
  for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
    [ -n "$candidate" ] && [ -x "$candidate" ] || continue
    major=$(java_major "$candidate")
    [ -n "$major" ] && [ "$major" -ge "$java_major_min" ] && return 0
  done
  return 1
}

has_mysql() { has mariadbd || has mysqld; }
has_chromium() { { has chromium || has chromium-browser || has google-chrome; } && has chromedriver; }

# Each missing program is one line "name|package package…". The first package that apt knows is installed.
missing=()
optional=() # programs for some tests, which are skipped without them
look_for_missing() {
  missing=()
  optional=()
  local python minor
  if python=$(find_python); then
    if [ ! -x .venv/bin/python ] && ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
      minor=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
      missing+=("Python's venv module for $python|python$minor-venv python3-venv")
    fi
  else
    missing+=("Python 3.$python_minor_min or later|python3.13 python3.12 python3.11")
  fi
  has_java || missing+=("Java $java_major_min or later|openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless")
  has redis-server || missing+=("Redis server|redis-server")
  has_mysql || missing+=("MariaDB or MySQL server|mariadb-server")
  if [ "$profile" = dev ]; then
    has kcat || optional+=("kcat|kcat kafkacat")
    has logrotate || optional+=("logrotate|logrotate")
    has_chromium || optional+=("Chromium and its driver|chromium+chromium-driver")
  fi
}

# ---------------------------------------------------------------- system packages

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

may_install() {
  has apt-get || return 1
  [ "$(id -u)" = 0 ] && return 0
  has sudo || return 1
  sudo -n true 2>/dev/null && return 0
  [ -t 0 ] && [ -t 2 ] && sudo -v
}

stop_with_missing() { # reason: print what is missing, and exit
  {
    echo "setup: $1. Missing:"
    local entry alternatives
    for entry in "${missing[@]}"; do
      alternatives=${entry#*|}
      printf '  - %s (Debian/Ubuntu package: %s)\n' "${entry%%|*}" "$(sed 's/+/ and /g; s/ / or /g; s/ or and or / and /g' <<<"$alternatives")"
    done
    echo "setup: nothing was changed. Install these and run the same command again."
  } >&2
  exit 1
}

known_to_apt() {
  local package
  for package in ${1//+/ }; do
    # Not grep -q: it ends at the first match, so apt-cache gets a broken pipe and pipefail reports a failure.
    apt-cache policy "$package" 2>/dev/null | grep 'Candidate: [^(]' >/dev/null || return 1
  done
}

packages=()
choose_packages() { # entries…: return false if apt knows no package for one of them
  local entry alternative found
  for entry in "$@"; do
    found=
    for alternative in ${entry#*|}; do
      if known_to_apt "$alternative"; then
        found=$alternative
        break
      fi
    done
    [ -n "$found" ] || return 1
    # shellcheck disable=SC2206
    packages+=(${found//+/ })
  done
}

choose_all() { # return false if apt knows no package for a required program; optional ones may have none
  local entry
  packages=()
  choose_packages "${missing[@]}" || return 1
  for entry in "${optional[@]}"; do choose_packages "$entry" || true; done
}

forbid_services() {
  if as_root test -e "$policy" && ! as_root grep -qF "$policy_mark" "$policy"; then
    as_root mv "$policy" "$policy.before-millrace"
  fi
  printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
}

allow_services() {
  if as_root grep -qsF "$policy_mark" "$policy"; then as_root rm -f "$policy"; fi
  if as_root test -e "$policy.before-millrace"; then
    as_root mv "$policy.before-millrace" "$policy"
  fi
}

install_packages() {
  say "system packages: ${packages[*]}"
  local log=.cache/setup-apt.log unit units_before=
  has systemctl && units_before=$(systemctl list-unit-files --no-legend 2>/dev/null || true)
  trap allow_services EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  forbid_services
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      -o Dpkg::Use-Pty=0 "${packages[@]}" >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    say "apt-get install failed; the whole output is in $log"
    exit 1
  fi
  allow_services
  trap - EXIT INT TERM HUP
  # The mill runs its own servers, so those of the packages must not start at the next boot.
  if has systemctl; then
    for unit in redis-server.service mariadb.service mysql.service; do
      if [ -e "/lib/systemd/system/$unit" ] && ! grep -q "^$unit" <<<"$units_before"; then
        as_root systemctl disable --quiet "$unit" >/dev/null 2>&1 || true
      fi
    done
  fi
}

has_package_lists() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

system_part() {
  local entry
  look_for_missing
  [ ${#missing[@]} -gt 0 ] || [ ${#optional[@]} -gt 0 ] || return 0
  if may_install; then
    if ! choose_all || { [ ${#packages[@]} = 0 ] && ! has_package_lists; }; then
      say "refreshing apt's package lists"
      as_root apt-get update -q >.cache/setup-apt.log 2>&1 </dev/null || say "apt-get update failed (see .cache/setup-apt.log)"
      choose_all || stop_with_missing "apt does not know a package for everything that is missing"
    fi
    [ ${#packages[@]} = 0 ] || install_packages
    look_for_missing
    [ ${#missing[@]} = 0 ] || stop_with_missing "packages were installed, but something is still missing"
  elif [ ${#missing[@]} -gt 0 ]; then
    stop_with_missing "this needs system packages, and apt with root or sudo is not at hand"
  fi
  for entry in "${optional[@]}"; do
    say "${entry%%|*} is missing here: the tests that need it are skipped"
  done
}

# ---------------------------------------------------------------- Python packages

digest_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

python_part() {
  local stamp=.venv/.millrace-$profile wanted python
  wanted=$(digest_of setup/setup.sh requirements/build.txt requirements/runtime.txt requirements/dev.txt requirements/axe.txt)
  if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted $PWD" ]; then
    return 0
  fi
  # Create .venv again if it was moved, or if its Python is no longer installed.
  if [ -e .venv ] && ! { .venv/bin/python -c 'import pip' 2>/dev/null && [ "$(sed -n 's/^VIRTUAL_ENV=["'\'']\?\([^"'\'']*\).*/\1/p' .venv/bin/activate | head -n 1)" = "$PWD/.venv" ]; }; then
    say "the virtual environment does not work here any more: making it again"
    rm -rf .venv
  fi
  if [ ! -e .venv ]; then
    python=$(find_python)
    say "virtual environment in .venv ($("$python" --version 2>&1))"
    "$python" -m venv .venv
  fi
  rm -f .venv/.millrace-*
  say "Python packages ($profile; the first time this takes a few minutes)"
  pip_install requirements/build.txt
  pip_install "requirements/$profile.txt"
  [ "$profile" != dev ] || pip_install requirements/axe.txt --no-deps
  echo "$wanted $PWD" >"$stamp"
  # dev holds every runtime package at the same version (tests/house checks it).
  [ "$profile" = runtime ] || echo "$wanted $PWD" >.venv/.millrace-runtime
}

pip_install() {
  # pyspark has no wheel, so it is built from its source archive with the pinned setuptools and wheel.
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    --require-hashes --no-build-isolation -r "$@" >&2
}

# ---------------------------------------------------------------- bytecode

rooms=(appliance broker collector monitor protocol sinks stream)

bytecode_part() { # with bytecode a broker starts in two thirds of the time, also if PYTHONDONTWRITEBYTECODE is set
  .venv/bin/python -m compileall -q "${rooms[@]}" >&2 || say "bytecode could not be written; every part starts slower"
}

# ---------------------------------------------------------------- Spark's Kafka connector

jars_part() {
  local folder=.cache/jars stamp
  stamp=$(digest_of stream/spark/jars.py stream/spark/jars.json)
  if [ "$(cat $folder/.stamp 2>/dev/null)" = "$stamp" ] && (cd $folder && sha256sum --check --quiet --strict .sums) >/dev/null 2>&1; then
    return 0
  fi
  say "Spark's Kafka connector in $folder"
  if ! .venv/bin/python -m stream.spark.jars --cache "$PWD/$folder" >.cache/setup-jars.log 2>&1; then
    tail -n 20 .cache/setup-jars.log >&2
    say "the connector could not be fetched; the whole output is in .cache/setup-jars.log"
    exit 1
  fi
  (cd $folder && sha256sum -- *.jar >.sums)
  echo "$stamp" >$folder/.stamp
}

# ---------------------------------------------------------------- class data archive

class_data_part() { # optional: with this archive, Spark starts in half the CPU time
  local folder=.cache/class-data stamp
  stamp=$(digest_of requirements/runtime.txt appliance/mill/class_data.py; readlink -f "$(command -v java || true)" || true)
  [ "$(cat $folder/.stamp 2>/dev/null)" = "$stamp" ] && return 0
  say "class data archive for Spark in $folder"
  mkdir -p $folder
  if .venv/bin/python -m appliance.mill.class_data >.cache/setup-class-data.log 2>&1; then
    echo "$stamp" >$folder/.stamp
  else
    say "it could not be made (see .cache/setup-class-data.log); Spark starts slower"
  fi
}

mkdir -p .cache
exec 9>.cache/setup.lock
flock 9

system_part
python_part
bytecode_part
jars_part
class_data_part
