#!/bin/sh
# Whether the page in the package is what is built from here, and small enough for a first load. Fails, and says how to
# mend it, if it is not.
set -eu
cd "$(dirname "$0")"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
npx --no-install vite build --logLevel error --outDir "$built/web" --emptyOutDir
diff -r "$built/web" ../src/pellucid/web -x __pycache__ -x __init__.py >/dev/null || {
    echo "src/pellucid/web is not what ui/ builds: run make page, and commit it" >&2
    exit 1
}

# What index.html loads at first, compressed; 155 kB in November 2026.
limit=160000
size=0
for file in index.html $(grep -o '/assets/[^"]*' "$built/web/index.html"); do
    size=$((size + $(gzip -9 -c "$built/web/$file" | wc -c)))
done
if [ "$size" -gt "$limit" ]; then
    echo "the first load is $size bytes, more than $limit: load what it does not need lazily (React.lazy, text/lazyModule.ts)" >&2
    exit 1
fi
