// Writes a message, reads it, and meets an error, with the types that openapi-typescript has made of the server's document.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { env: Record<string, string>; exit(code: number): never };

const client = createClient<paths>({
	baseUrl: process.env.HOLDFAST_URL,
	headers: { Authorization: `Bearer ${process.env.HOLDFAST_TOKEN}` },
});
const path = { ns: "default" };

function check(ok: boolean, what: string): asserts ok {
	if (!ok) {
		console.error("wrong: " + what);
		process.exit(1);
	}
}

const body: components["schemas"]["Write"] = {
	stream: "typescript-1", expected: -1, messages: [{ type: "Placed", data: { items: 3 } }],
};
const written = await client.POST("/v1/namespaces/{ns}/messages", { params: { path }, body });
check(written.data !== undefined, JSON.stringify(written.error));
check(written.data.position === 0, "the position");

const read = await client.GET("/v1/namespaces/{ns}/messages", { params: { path, query: { stream: "typescript-1" } } });
check(read.data !== undefined, JSON.stringify(read.error));
const message = read.data.messages[0];
check(message.type === "Placed" && (message.data as { items: number }).items === 3, "the message");

const again = await client.POST("/v1/namespaces/{ns}/messages", { params: { path }, body });
check(again.error !== undefined && again.error.code === "conflict" && again.error.actual === 0, "the conflict");

const tasks = await client.POST("/v1/namespaces/{ns}/tasks", { params: { path }, body: { tasks: [{ kind: "mail" }] } });
check(tasks.data !== undefined && tasks.data.results[0].id !== "", JSON.stringify(tasks.error));
console.log("TypeScript: well");
