#!/bin/sh
# Sends readings with curl. BRIM_URL is the daemon's address, BRIM_TOKEN the token;
# a daemon without an access file ignores it.
set -eu
url="${BRIM_URL:-http://127.0.0.1:8430}"
auth="Authorization: Bearer ${BRIM_TOKEN:-none}"

echo "one reading"
curl -sS "$url/v1/readings" -H "$auth" -d '{"sensorId":"curl-1", "fields":{"t":23.5, "h":65}, "tags":{"site":"north"}}'

echo "many, one per line, compressed"
printf '{"sensorId":"curl-%d","fields":{"t":20.5}}\n' 2 3 4 | gzip |
  curl -sS "$url/v1/readings" -H "$auth" -H 'Content-Type: application/x-ndjson' -H 'Content-Encoding: gzip' --data-binary @-

# curl retries after 408, 429, 500, 502, 503 and 504, and honours Retry-After. With an
# Idempotency-Key, a request whose answer was lost is accepted once. Use a new key for
# each request, and the same one for its retries.
echo "one that may be retried"
key="curl-$(date +%s)-$$"
for _ in 1 2; do
  curl -sS --retry 8 --retry-connrefused --max-time 30 "$url/v1/readings" -H "$auth" -H "Idempotency-Key: $key" \
    -d '{"sensorId":"curl-5", "fields":{"t":24}}'
done

echo "read back"
curl -sS "$url/v1/sensors/curl-5/readings" -H "$auth" -H 'Accept: application/x-ndjson'
