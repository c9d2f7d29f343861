#!/usr/bin/env bash
# Checks the dashboards of deploy/grafana against the types of @grafana/schema. npm
# brings them; package-lock.json has their checksums. Without node and npm nothing is
# checked, and a line says so; with BRIM_REQUIRE_NODE=1 that is an error.
set -euo pipefail
cd "$(dirname "$0")"
for program in node npm; do
    command -v $program >/dev/null && continue
    if [ "${BRIM_REQUIRE_NODE:-}" = 1 ]; then
        echo "run.sh: BRIM_REQUIRE_NODE is set and there is no $program (Debian: apt-get install nodejs npm)" >&2
        exit 1
    fi
    echo "SKIP: no $program for the types of the dashboards" >&2
    exit 0
done
if ! cmp -s package-lock.json node_modules/installed.json; then # not there, half there, or of other versions
    npm ci --silent --ignore-scripts --no-audit --no-fund || {
        echo "run.sh: @grafana/schema was not installed, nothing was checked. Where the npm registry cannot be reached, name a mirror with npm_config_registry." >&2
        exit 1
    }
    cp package-lock.json node_modules/installed.json
fi
node --test
node check.js ../../deploy/grafana/dashboards/*.json
