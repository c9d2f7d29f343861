// Sets up the MongoDB of compose.yaml, in mongosh on mongod's own machine: the
// replica set, its owner, the roles in roles.js next to this file, and Brim's
// user with least privileges. What already exists is kept or set again.
const fs = require("fs");
const owner = "owner";
const secret = (name) => fs.readFileSync(`/secrets/mongo/${name}`, "utf8").trim();
const admin = db.getSiblingDB("admin");

// While there is no user, any local connection may create the first one.
let known = true;
try {
  admin.auth(owner, secret("owner-password"));
} catch (e) {
  known = false;
}

if (!known) {
  try {
    rs.initiate({_id: "rs0", members: [{_id: 0, host: "mongo:27017"}]});
  } catch (e) {
    if (e.codeName !== "AlreadyInitialized") throw e;
  }
}
for (let tries = 0; !db.hello().isWritablePrimary; tries++) {
  if (tries === 600) throw new Error("mongod does not become the primary of its replica set within a minute; its log says why");
  sleep(100);
}
if (!known) {
  admin.createUser({user: owner, pwd: secret("owner-password"), roles: ["root"]});
  admin.auth(owner, secret("owner-password"));
}

load(`${__dirname}/roles.js`);
const user = {pwd: secret("brim-password"), roles: ["brimServe"]};
if (admin.getUser("brim-serve")) admin.updateUser("brim-serve", user);
else admin.createUser({user: "brim-serve", ...user});
print("MongoDB is set up");
