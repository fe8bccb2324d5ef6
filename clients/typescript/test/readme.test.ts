import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { Harness } from "./harness.js";

const here = new URL("../", import.meta.url);

// The program of the README runs, as the package that npm run build has made.
test("the README's program", async () => {
  const program = readFileSync(new URL("examples/program.mjs", here), "utf8");
  expect(readFileSync(new URL("README.md", here), "utf8")).toContain(`\`\`\`js\n${program}\`\`\``);
  const harness = await Harness.start();
  try {
    const env = { ...process.env, HOLDFAST_URL: harness.at.url, HOLDFAST_TOKEN: harness.at.token };
    const said = execFileSync("node", ["examples/program.mjs"], { cwd: here, env, encoding: "utf8", timeout: 300_000 });
    expect(said).toBe(
      "paid at 1\nthe version is 1, not 0\n0 Placed { items: 3 }\n1 Paid { amount: 5 }\nreceipt for this order\n",
    );
  } finally {
    await harness.stop();
  }
});
