import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "node_modules", "src/api.ts"] },
  js.configs.recommended,
  { files: ["**/*.ts"], extends: [tseslint.configs.recommendedTypeChecked], languageOptions: { parserOptions: { projectService: true } } },
  { files: ["**/*.ts"], rules: {
    "@typescript-eslint/no-non-null-assertion": "off",
    "@typescript-eslint/restrict-template-expressions": "off",
    "@typescript-eslint/no-unnecessary-type-assertion": "off",
  } },
  // The steps of scenarios are data of any shape.
  { files: ["test/scenarios.test.ts"], rules: Object.fromEntries([
    "no-explicit-any", "no-unsafe-argument", "no-unsafe-assignment", "no-unsafe-call", "no-unsafe-member-access",
    "no-unsafe-return", "restrict-plus-operands",
  ].map((name) => [`@typescript-eslint/${name}`, "off"])) },
  { files: ["scripts/*.mjs", "examples/*.mjs"], languageOptions: { globals: { process: "readonly", console: "readonly", URL: "readonly", AbortController: "readonly" } } },
);
