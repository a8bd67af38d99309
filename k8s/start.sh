#!/bin/sh
# The root file system is read-only and numba needs a cache it can write to: copy the image's cache.
set -eu
baked=${LLE_BAKED_CACHE:-/opt/numba-cache}
if [ -d "$baked" ] && [ ! -d "$NUMBA_CACHE_DIR" ]; then
    place=$(dirname "$NUMBA_CACHE_DIR")
    if ! { mkdir -p "$place" && [ -w "$place" ]; } 2>/dev/null; then
        echo "start: user $(id -u) cannot write to $place, where numba keeps its cache: mount a folder that it can write" \
            "(docker: --tmpfs $place, Kubernetes: an emptyDir)" >&2
        exit 2
    fi
    rm -rf "$NUMBA_CACHE_DIR.copy" # left by a start that was killed; cp would copy into it
    cp -R -p "$baked" "$NUMBA_CACHE_DIR.copy"
    chmod -R u+w "$NUMBA_CACHE_DIR.copy"
    mv "$NUMBA_CACHE_DIR.copy" "$NUMBA_CACHE_DIR"
fi
exec "$@"
