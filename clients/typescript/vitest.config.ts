import { defineConfig } from "vitest/config";

// The scenarios kill and start one server, and wait for it.
export default defineConfig({ test: { include: ["test/*.test.ts"], testTimeout: 1_800_000, hookTimeout: 300_000 } });
