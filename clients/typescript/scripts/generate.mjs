// Makes src/api.ts of docs/openapi.json; with --check it says whether that is what is there.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const from = new URL("../../../docs/openapi.json", import.meta.url);
const to = new URL("../src/api.ts", import.meta.url);

// Base64 of the wire is bytes to programs: src/bytes.ts changes one into the other.
const bytes = ts.factory.createTypeReferenceNode("Uint8Array");
const ast = await openapiTS(from, {
  transform: (schema) => (schema.contentEncoding === "base64" ? bytes : undefined),
});
const text = `// Made by npm run generate, of docs/openapi.json. Do not edit it.\n\n${astToString(ast)}`;

if (process.argv.includes("--check")) {
  if ((await readFile(to, "utf8")) !== text) {
    console.error("src/api.ts is not what docs/openapi.json says; run: npm run generate");
    process.exit(1);
  }
} else {
  await writeFile(to, text);
}
