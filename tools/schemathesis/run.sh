#!/usr/bin/env bash
# Asks a daemon of its own all kinds of right and wrong requests, as its own
# description of its API says, and fails where an answer is a defect (5xx) or is
# not described. usage: run.sh BRIM [SECONDS [SEED]]; without a SEED the requests
# are other ones each time, and the report names theirs.
#
# schemathesis is installed from requirements.txt, whose hashes are checked, into
# VENV (default: a folder beside this script that git ignores).
set -euo pipefail

brim=$(realpath "${1:?usage: run.sh BRIM [SECONDS [SEED]]}")
seconds=${2:-60}
seed=(${3:+--seed "$3"})
cd "$(dirname "$0")"
venv=${VENV:-$PWD/venv}
if ! cmp -s requirements.txt "$venv/installed.txt"; then # not there, half there, or of other versions
    rm -f "$venv/installed.txt"
    python3 -m venv "$venv" || { echo "run.sh: python3 3.11 or later with its module venv is needed (Debian: python3-venv)" >&2; exit 1; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.txt || {
        echo "run.sh: schemathesis was not installed, nothing was checked. Where PyPI cannot be reached, name a mirror with PIP_INDEX_URL," >&2
        echo "or let VENV be a folder where requirements.txt is installed, with a copy of it as installed.txt." >&2
        exit 1
    }
    cp requirements.txt "$venv/installed.txt"
fi

# What stands in the environment for other daemons is not for this one.
for name in $(compgen -e BRIM_); do unset "$name"; done

work=$(mktemp -d)
daemon=""
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null || true; rm -rf "$work"' EXIT
export BRIM_TOKEN
BRIM_TOKEN=$("$brim" token create checker --scope admin --access-file "$work/access.yaml" --output json | python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])')
"$brim" serve --storage memory --access-file "$work/access.yaml" --data-dir "$work/data" \
    --http-addr 127.0.0.1:0 --grpc-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0 --log-format json 2>"$work/log" &
daemon=$!
address=""
for _ in $(seq 100); do
    address=$(python3 -c 'import json, sys
for line in open(sys.argv[1]):
    entry = json.loads(line)
    if entry["msg"] == "listening": print(entry["http"])' "$work/log")
    [ -n "$address" ] && grep -q '"msg":"ready"' "$work/log" && break
    sleep 0.2
done
[ -n "$address" ] || { cat "$work/log" >&2; echo "run.sh: the daemon did not begin to listen" >&2; exit 1; }

# A sensor that was deleted has no readings, and that is an answer: use_after_free does not apply.
SCHEMATHESIS_HOOKS=hooks PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 "$venv/bin/schemathesis" run "http://$address/openapi.yaml" --phases examples,coverage,fuzzing,stateful \
    --exclude-checks use_after_free --max-time "$seconds" "${seed[@]}" --continue-on-failure --no-color
kill -0 "$daemon"
if grep -q '"level":"ERROR"' "$work/log"; then
    grep '"level":"ERROR"' "$work/log"
    exit 1
fi
