// Creates the roles with the least privileges that Brim needs. Run it in mongosh as a
// user who may create roles (userAdminAnyDatabase):
//
//   BRIM_DATABASE=brim BRIM_STREAMS=readings,machines BRIM_TIMESERIES=events mongosh "mongodb://…" --file deploy/mongodb/roles.js
//
// BRIM_STREAMS are the bucket streams whose views brimReader may read, BRIM_TIMESERIES the
// time-series streams, which are read directly. Run it again when this file, the streams or
// the name of the database change: existing roles then get exactly these privileges. Then
// create a user for each role that you need, in the database admin; passwordPrompt() keeps
// the password off the screen:
//
//   db.getSiblingDB("admin").createUser({user: "brim-serve", pwd: passwordPrompt(), roles: ["brimServe"]})
//
// A resource with an empty collection name is every collection of the database, including
// those of streams that are not configured yet. The list is JSON, and the tests of this
// folder run Brim with exactly these privileges.
const ROLES = [
  {
    "role": "brimServe",
    "for": "brim serve: it makes the collections of its streams, writes, reads back, samples the storage engine",
    "privileges": [
      {"resource": {"db": "brim", "collection": ""},
       "actions": ["listCollections", "createCollection", "dropCollection", "createIndex", "dropIndex", "listIndexes", "collMod", "find", "insert", "update", "remove", "collStats"]},
      {"resource": {"cluster": true}, "actions": ["serverStatus", "getParameter", "hostInfo", "getCmdLineOpts", "replSetGetConfig"]}
    ]
  },
  {
    "role": "brimDoctor",
    "for": "brim doctor: it only reads",
    "privileges": [
      {"resource": {"db": "brim", "collection": ""}, "actions": ["listCollections", "find", "collStats", "indexStats"]},
      {"resource": {"cluster": true},
       "actions": ["serverStatus", "getParameter", "hostInfo", "getCmdLineOpts", "replSetGetStatus", "replSetGetConfig"]}
    ]
  },
  {
    "role": "brimCompact",
    "for": "brim compact",
    "privileges": [
      {"resource": {"db": "brim", "collection": ""}, "actions": ["listCollections", "collStats", "dbStats", "compact", "find"]},
      {"resource": {"cluster": true},
       "actions": ["serverStatus", "getParameter", "hostInfo", "getCmdLineOpts", "replSetGetStatus", "inprog", "killop"]}
    ]
  },
  {
    "role": "brimMove",
    "for": "brim move",
    "privileges": [
      {"resource": {"db": "brim", "collection": ""},
       "actions": ["listCollections", "listIndexes", "dropCollection", "collMod", "collStats", "dbStats", "find", "insert", "update", "remove"]}
    ]
  },
  {
    "role": "brimServeShards",
    "for": "brim serve on a sharded cluster, in addition to brimServe: it reads the shard keys of its collections; not tested on a cluster",
    "privileges": [
      {"resource": {"db": "config", "collection": "collections"}, "actions": ["find"]}
    ]
  },
  {
    "role": "brimShard",
    "for": "a person who shards collections with the commands of docs/growing.md; not tried on a cluster",
    "privileges": [
      {"resource": {"db": "brim", "collection": ""}, "actions": ["listCollections", "createIndex", "find", "collStats", "enableSharding"]},
      {"resource": {"db": "brim", "system_buckets": ""}, "actions": ["enableSharding"]},
      {"resource": {"db": "config", "collection": ""}, "actions": ["find"]},
      {"resource": {"cluster": true}, "actions": ["listShards", "enableSharding"]}
    ]
  },
  {
    "role": "brimReader",
    "for": "people and tools that read the views of bucket streams, and time-series streams",
    "privileges": [
      {"resource": {"db": "brim", "collection": "STREAM.flat"}, "actions": ["find"]},
      {"resource": {"db": "brim", "collection": "TIMESERIES"}, "actions": ["find"]}
    ]
  }
];

(function () {
  const admin = db.getSiblingDB("admin");
  const database = process.env.BRIM_DATABASE || "brim";
  const listed = (names) => names.split(",").map((name) => name.trim()).filter((name) => name !== "");
  const timeSeries = listed(process.env.BRIM_TIMESERIES || "");
  const streams = listed(process.env.BRIM_STREAMS || (timeSeries.length ? "" : "readings"));
  const inDatabase = (resource) => resource.db === "brim" ? {...resource, db: database} : resource;
  const perStream = (resource) => {
    const of = (word, names) => names.map((name) => ({...resource, collection: resource.collection.replace(word, name)}));
    const collection = resource.collection || "";
    if (collection.includes("STREAM")) return of("STREAM", streams);
    return collection.includes("TIMESERIES") ? of("TIMESERIES", timeSeries) : [resource];
  };
  for (const role of ROLES) {
    const privileges = role.privileges.flatMap(({resource, actions}) =>
      perStream(inDatabase(resource)).map((resource) => ({resource, actions})));
    const rights = {privileges, roles: role.roles || []};
    if (admin.getRole(role.role)) admin.updateRole(role.role, rights);
    else admin.createRole({role: role.role, ...rights});
    print(`${role.role}: ${role.for}`);
  }
})();
