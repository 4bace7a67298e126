#!/bin/sh
# Whether the page in the package is what is built from here. Fails, and says how to mend it, if it is not.
set -eu
cd "$(dirname "$0")"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
npx --no-install vite build --logLevel error --outDir "$built/web" --emptyOutDir
diff -r "$built/web" ../src/pellucid/web -x __pycache__ -x __init__.py >/dev/null || {
    echo "src/pellucid/web is not what ui/ builds: run make page, and commit it" >&2
    exit 1
}
