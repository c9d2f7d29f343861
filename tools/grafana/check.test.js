import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { check } from "./check.js";

// Each mistake is found, or the types would let everything pass.
test("mistakes are found", () => {
  const file = new URL("../../deploy/grafana/dashboards/sensors.json", import.meta.url);
  const right = readFileSync(file, "utf8");
  const mistakes = {
    "a misspelled kind of panel": [`"type": "bargauge"`, `"type": "bar-gauge"`],
    "a misspelled option": [`"cellHeight"`, `"cellheight"`],
    "an option of another kind of panel": [`"showHeader"`, `"xField"`],
    "a value that is not allowed": [`"displayMode": "basic"`, `"displayMode": "plain"`],
    "a misspelled setting of lines": [`"showPoints"`, `"showpoints"`],
    "a misspelled override": [`"custom.fillBelowTo"`, `"custom.fillbelowTo"`],
    "an override of another type": [`"id": "custom.lineWidth",\n                "value": 0`, `"id": "custom.lineWidth",\n                "value": "0"`],
    "a misspelled color": [`"mode": "thresholds"`, `"mode": "threshold"`],
    "a query without an expression": [`"expr"`, `"expression"`],
    "a misspelled kind of variable": [`"type": "custom"`, `"type": "constants"`],
    "a width that is a text": [`"w": 24`, `"w": "24"`],
    "a misspelled setting of the page": [`"graphTooltip"`, `"graphtooltip"`],
  };
  const texts = { right };
  for (const [what, [from, to]] of Object.entries(mistakes)) {
    assert.ok(right.includes(from), `${what}: ${from}`);
    texts[what] = right.replace(from, to);
  }
  const found = check(texts);
  assert.deepEqual(found.filter((line) => line.startsWith("right:")), []);
  for (const what of Object.keys(mistakes)) {
    assert.ok(found.some((line) => line.startsWith(`${what}:`)), `not found: ${what}`);
  }
});
