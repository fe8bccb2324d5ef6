// The API: the operations that /openapi.json lists, which can be tried out with the token that is signed in.

import {bytes, button, chip, duration, empty, field, h, head, parse, problem, set} from "../dom.js";
import {get, send} from "../api.js";

const methods = ["get", "post", "put", "patch", "delete"];
const shown = 64 * 1024; // characters of an answer

export async function operations(view) {
	const document_ = await get("openapi.json", {}, view.signal);
	const groups = new Map();
	for (const [where, item] of Object.entries(document_.paths ?? {})) {
		for (const method of methods) {
			const op = item[method];
			if (!op) continue;
			const group = op.tags?.[0] ?? where.split("/")[2] ?? "other";
			if (!groups.has(group)) groups.set(group, []);
			groups.get(group).push({method, where, op, parameters: [...item.parameters ?? [], ...op.parameters ?? []].map(p => resolve(document_, p))});
		}
	}
	const search = h("input", {type: "search", "data-search": true, placeholder: "Path or words", value: view.params.get("find") ?? "", oninput: () => draw()});
	const list = h("div"), note = h("p.dim.small", {role: "status"});
	const built = new Map();
	const draw = () => {
		const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
		let n = 0;
		set(list, [...groups].map(([name, all]) => {
			const fit = all.filter(o => {
				const text = `${o.method} ${o.where} ${o.op.summary ?? ""} ${o.op.description ?? ""} ${name}`.toLowerCase();
				return words.every(w => text.includes(w));
			});
			n += fit.length;
			return fit.length > 0 && h("section.block", {"aria-label": name}, h("h2", name[0].toUpperCase() + name.slice(1)), fit.map(o => {
				if (!built.has(o)) built.set(o, operation(view, document_, o));
				return built.get(o);
			}));
		}));
		note.textContent = n ? `${n} ${n === 1 ? "operation" : "operations"}` : "";
		if (!n) set(list, empty("No operation fits.", "Search for a part of a path, like “streams”."));
	};
	view.put(head("API", [document_.info?.title, document_.info?.version].filter(Boolean).join(" "), h("a.button", {href: new URL("../openapi.json", document.baseURI).href, target: "_blank", rel: "noopener"}, "openapi.json")),
		h("div.tools", field("Find", search), note), list);
	draw();
}

// resolve follows references within the document.
function resolve(document_, schema, depth = 0) {
	let at = schema;
	while (at?.$ref && depth++ < 20) {
		let found = document_;
		for (const part of at.$ref.replace(/^#\//, "").split("/")) found = found?.[part.replaceAll("~1", "/").replaceAll("~0", "~")];
		at = found;
	}
	return at ?? {};
}

// example makes a value of a schema: what its author gives, else the plainest one.
function example(document_, schema, depth = 0) {
	const s = resolve(document_, schema);
	if (s.examples?.length) return s.examples[0];
	if (s.example !== undefined) return s.example;
	if (s.default !== undefined) return s.default;
	if (s.enum?.length) return s.enum[0];
	const type = [s.type].flat().find(t => t !== "null");
	if (type === "object" || s.properties) {
		const value = {};
		if (depth > 6) return value;
		for (const [name, p] of Object.entries(s.properties ?? {})) {
			if (name === "$schema" || resolve(document_, p).readOnly) continue;
			if (s.required?.includes(name) || depth === 0 && !s.required?.length) value[name] = example(document_, p, depth + 1);
		}
		return value;
	}
	if (type === "array") return depth > 6 ? [] : [example(document_, s.items ?? {}, depth + 1)];
	if (type === "integer" || type === "number") return s.minimum ?? 0;
	if (type === "boolean") return false;
	if (type === "string") return s.format === "date-time" ? new Date().toISOString() : s.contentEncoding === "base64" || s.format === "byte" ? btoa("hello") : "";
	return {};
}

function operation(view, document_, o) {
	const details = h("details.operation", h("summary", h(`span.method.${o.method}`, o.method.toUpperCase()), h("code.where", o.where), h("span.dim", o.op.summary ?? "")));
	details.addEventListener("toggle", () => {
		if (details.open && !details.querySelector(".try")) details.append(form(view, document_, o));
	});
	return details;
}

function form(view, document_, o) {
	const inputs = o.parameters.filter(p => ["path", "query", "header"].includes(p.in) && p.name !== "Authorization").map(p => {
		const schema = resolve(document_, p.schema);
		const many = schema.type === "array" || [schema.type].flat().includes("array");
		const values = schema.enum ?? (schema.type === "boolean" ? ["true", "false"] : undefined);
		const value = p.name === "ns" && p.in === "path" ? view.namespace : "";
		const control = values ? h("select", !p.required && h("option", {value: ""}, "–"), values.map(v => h("option", {value: v}, v)))
			: h("input", {type: "text", value, required: p.required, autocomplete: "off", spellcheck: "false", placeholder: many ? "a, b" : schema.default ?? ""});
		return {p, control, many};
	});
	const content = resolve(document_, o.op.requestBody ?? {}).content;
	const kind = content && (Object.keys(content).find(k => k.includes("json")) ?? Object.keys(content)[0]);
	const area = kind && h("textarea.mono", {rows: "8", spellcheck: "false", autocomplete: "off"});
	if (area) area.value = /json/.test(kind) && !/ndjson/.test(kind) ? JSON.stringify(example(document_, content[kind].schema), null, 2) : "";
	const out = h("div.answer", {"aria-live": "polite"});
	const go = h("button.button.primary", {type: "submit"}, "Send"), stop = button("Stop", () => controller?.abort(), {hidden: true});
	let controller;
	view.signal.addEventListener("abort", () => controller?.abort());
	const run = async e => {
		e.preventDefault();
		controller = new AbortController();
		go.disabled = true;
		stop.hidden = false;
		const query = {}, headers = {};
		let where = o.where.replace(/^\//, "");
		for (const {p, control, many} of inputs) {
			const v = control.value.trim();
			if (p.in === "path") where = where.replace(`{${p.name}}`, encodeURIComponent(v));
			else if (v === "") continue;
			else if (p.in === "query") query[p.name] = many ? v.split(/\s*,\s*/) : v;
			else headers[p.name] = v;
		}
		if (kind) headers["Content-Type"] = kind;
		const started = performance.now();
		try {
			const response = await send(o.method.toUpperCase(), where, {query, headers, body: area ? area.value : undefined, signal: controller.signal});
			const status = h("p.row", chip(`${response.status} ${response.statusText}`.trim(), response.ok ? "good" : "bad"), h("span.dim", duration(performance.now() - started)));
			const told = h("span.dim");
			status.append(told);
			const pre = h("pre", {tabindex: "0", "aria-label": "Answer"});
			set(out, status, h("details", h("summary", "Headers"), h("pre", {tabindex: "0"}, [...response.headers].map(([n, v]) => `${n}: ${v}`).join("\n"))), pre);
			await read(response, pre, told);
		} catch (err) {
			if (err.name !== "AbortError") set(out, problem(err));
		} finally {
			go.disabled = false;
			stop.hidden = true;
		}
	};
	const schema = kind && h("details", h("summary", "What the body may have"), h("pre", {tabindex: "0"}, outline(document_, content[kind].schema)));
	return h("form.try", {onsubmit: run}, o.op.description && o.op.description !== o.op.summary && h("p.dim", o.op.description),
		inputs.length > 0 && h("div.tools", inputs.map(({p, control}) => field([p.name, p.required && h("span.must", {title: "needed"}, " *"), p.in !== "path" && h("span.dim", ` ${p.in}`)], control, p.description))),
		area && field(`Body, ${kind}`, area), schema, h("div.row", go, stop, o.method !== "get" && h("span.dim.small", "This is the real server: what you send is done.")), out);
}

// read shows the beginning of an answer as it comes: a stream may never end.
async function read(response, pre, told) {
	if (!response.body) return;
	const type = response.headers.get("Content-Type") ?? "";
	if (!/json|text|event-stream|yaml/.test(type)) {
		const blob = await response.blob();
		told.textContent = `${bytes(blob.size)} of ${type || "bytes"}`;
		return;
	}
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let text = "", size = 0;
	for (;;) {
		const {value, done} = await reader.read();
		if (done) break;
		size += value.length;
		if (text.length < shown) {
			text += value;
			pre.textContent = text.slice(0, shown);
		} else if (/event-stream/.test(type)) {
			pre.textContent = text.slice(0, shown) + "\n… stopped here";
			reader.cancel().catch(() => {});
			return;
		}
		told.textContent = bytes(size);
	}
	told.textContent = bytes(size);
	if (size <= shown) {
		try {
			pre.textContent = JSON.stringify(parse(text), null, 2);
		} catch {
			// Then as it came.
		}
	} else pre.textContent = `${text.slice(0, shown)}\n… ${bytes(size - shown)} more`;
}

// outline writes a schema as an indented list of fields.
function outline(document_, schema, indent = "", depth = 0) {
	const s = resolve(document_, schema);
	const type = [s.type].flat().filter(t => t && t !== "null").join(" or ");
	if (type === "array") return outline(document_, s.items ?? {}, indent, depth + 1);
	if (!s.properties || depth > 5) return `${indent}${s.enum ? s.enum.join(" | ") : type || "anything"}`;
	return Object.entries(s.properties).filter(([name]) => name !== "$schema").map(([name, p]) => {
		const f = resolve(document_, p), item = [f.type].flat().includes("array") ? resolve(document_, f.items ?? {}) : f;
		const line = `${indent}${name}${s.required?.includes(name) ? "" : "?"}: ${f.enum ? f.enum.join(" | ") : [f.type].flat().filter(t => t && t !== "null").join(" or ") || "anything"}` +
			`${f.format ? ` (${f.format})` : ""}${p.description ?? f.description ? `   ${p.description ?? f.description}` : ""}`;
		return item.properties ? `${line}\n${outline(document_, item, `${indent}  `, depth + 1)}` : line;
	}).join("\n");
}
