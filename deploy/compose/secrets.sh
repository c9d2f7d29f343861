#!/usr/bin/env bash
# Generates the secrets of compose.yaml, once: the key of the replica set, the
# password of its owner, and the URI with which Brim connects. Each file can be read
# only by the user who needs it: mongod (999), root, or Brim (65532).
set -euo pipefail
mongo="${1:-/secrets/mongo}" brim="${2:-/secrets/brim}"
umask 077

if [ -e "$brim/mongo-uri" ]; then
  echo "the secrets are there"
  exit
fi

# random BYTES: letters and digits, which need no escaping in a URI.
random() { head -c "$1" /dev/urandom | base64 -w 0 | tr '+/' 'ab' | tr -d '='; }

random 750 >"$mongo/keyfile"
random 24 >"$mongo/owner-password"
random 24 >"$mongo/brim-password"
chmod 400 "$mongo/keyfile"
chown 999:999 "$mongo/keyfile"
# Each user may open its own file in the folder, but not list the folder.
chmod 711 "$mongo" "$brim"

# Last, and in one step, because its existence means that everything is done.
printf 'mongodb://brim-serve:%s@mongo:27017/?replicaSet=rs0&authSource=admin\n' "$(cat "$mongo/brim-password")" >"$brim/mongo-uri.new"
chmod 400 "$brim/mongo-uri.new"
chown 65532:65532 "$brim/mongo-uri.new"
mv "$brim/mongo-uri.new" "$brim/mongo-uri"
echo "the secrets are made"
