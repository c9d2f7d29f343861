// As write.py does: node write.mjs insert|brim SECONDS MONGO-URI BRIM-URL ADMIN-URL

const [way, seconds, uri, brim, admin] = process.argv.slice(2);
const names = "user system idle nice iowait irq softirq steal guest guest_nice".split(" ");

function reading(host, step, when) {
  const fields = {};
  names.forEach((name, i) => (fields[name] = (host * 7 + step * 13 + i * 31) % 101));
  return { sensorId: `host_${host}`, ts: when, fields };
}

async function post(url, body) {
  const answer = await fetch(url, { method: "POST", body, headers: { "Content-Type": "application/x-ndjson" } });
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`${url}: ${answer.status} ${text}`);
}

const hosts = Array.from({ length: 1000 }, (_, host) => host);
// Windows that no other run wrote.
const begin = Date.now() - 200 * 86_400_000 + Math.floor((Date.now() / 1000) % 1000) * 3_600_000;
let client, write;
if (way === "insert") {
  const { MongoClient } = await import("mongodb");
  client = new MongoClient(uri, { writeConcern: { w: "majority" } });
  const collection = client.db("drivers").collection(`node ${Date.now()}`);
  write = (step) => collection.insertMany(hosts.map((host) => reading(host, step, new Date(begin + step * 10_000))), { ordered: false });
} else {
  write = (step) => post(`${brim}/v1/readings`, hosts.map((host) => JSON.stringify(reading(host, step, begin + step * 10_000))).join("\n"));
}

const start = performance.now();
let step = 0;
for (; performance.now() - start < seconds * 1000; step++) await write(step);
if (way === "brim") await post(`${admin}/flush`, "");
const took = (performance.now() - start) / 1000;
await client?.close();
const { user, system } = process.cpuUsage();
console.log(step * 1000, (user + system) / 1e6, took);
