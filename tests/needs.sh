#!/bin/sh
# What the tests start themselves must be there: Redis, PostgreSQL and Chromium, from Debian where they are missing.
# Elsewhere it says what to install. Tests of what is not there do not run.
set -eu
missing=
command -v redis-server >/dev/null || missing="$missing redis-server"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$missing postgresql"
command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing="$missing chromium"
[ -z "$missing" ] && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -qq
    # shellcheck disable=SC2086 (several words)
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
else
    echo "Not here, so tests that need it are left out:$missing"
fi
