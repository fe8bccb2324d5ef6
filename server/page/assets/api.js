// Requests to the server. The token is kept for the browser's tab only, and sent in the Authorization header, never in an
// address.

import {parse} from "./dom.js";

const KEY = "holdfast.token";

// root is where the server is: the page is at /page/ below it, whatever a proxy puts before that.
export const root = new URL("../", document.baseURI);

export const session = {
	token: load(),
	info: undefined, // what the server knows of the token
	// ended is called when the server does not accept the token any more.
	ended: () => {},
	// reached is called with whether the server could be reached.
	reached: () => {},
};

function load() {
	try {
		return sessionStorage.getItem(KEY) ?? "";
	} catch {
		return "";
	}
}

export function keep(token) {
	session.token = token;
	if (!token) session.info = undefined;
	try {
		if (token) sessionStorage.setItem(KEY, token);
		else sessionStorage.removeItem(KEY);
	} catch {
		// Without storage, the token lives as long as the page.
	}
}

// may tells whether the token has a role in a namespace; "*" is everywhere. The server decides; this only spares the user
// what would be refused.
export function may(role, namespace = "*") {
	const includes = {read: ["read"], query: ["read", "query"], write: ["read", "write"], admin: ["read", "query", "write", "admin"]};
	const {role: own, namespace: in_} = session.info ?? {};
	return (includes[own] ?? []).includes(role) && (in_ === "*" || in_ === namespace);
}

// Failure is an answer that is no success, or none at all (status 0).
export class Failure extends Error {
	constructor(fields) {
		super(fields.detail || fields.title);
		Object.assign(this, fields);
	}
}

const titles = {
	400: "The server did not understand that", 401: "The server refuses this token", 403: "This token may not do that",
	404: "Not found", 409: "That conflicts with what is there", 410: "Not there any more", 413: "Too large",
	429: "Too many requests", 501: "This engine cannot do that", 503: "The server cannot do that now", 507: "The disk is full",
};

// failure reads the problem of an answer.
export async function failure(response) {
	let body = {};
	const text = (await response.text().catch(() => "")).slice(0, 64 * 1024);
	try {
		body = parse(text);
	} catch {
		body = {detail: text.trim().slice(0, 500)};
	}
	return new Failure({
		status: response.status,
		title: titles[response.status] ?? (response.status >= 500 ? "The server failed" : "That did not work"),
		detail: body.detail || body.title || `The server answered ${response.status} ${response.statusText}`.trim(),
		code: body.code,
		request: body.request ?? response.headers.get("X-Request-Id"),
		retry: Number(response.headers.get("Retry-After")) || 0,
	});
}

// path joins segments, each of them escaped.
export const path = (...segments) => segments.map(encodeURIComponent).join("/");

// within is the path of something in a namespace.
export const within = (namespace, ...segments) => `v1/namespaces/${path(namespace, ...segments)}`;

// send makes a request and returns the answer, whatever its status.
export async function send(method, where, {query, body, headers, signal, token = session.token} = {}) {
	const url = new URL(where, root);
	for (const [name, value] of Object.entries(query ?? {})) {
		for (const v of [value].flat()) if (v !== undefined && v !== null && v !== "") url.searchParams.append(name, v);
	}
	const all = new Headers(headers);
	if (token && !/^[\x21-\x7e]+$/.test(token)) {
		throw new Failure({status: 0, title: "That is no token", detail: "A token has only letters, digits, and characters like _ and -."});
	}
	if (token) all.set("Authorization", `Bearer ${token}`);
	if (body !== undefined && !all.has("Content-Type")) all.set("Content-Type", "application/json");
	try {
		const response = await fetch(url, {method, headers: all, signal, cache: "no-store", credentials: "omit", redirect: "error",
			body: body === undefined || typeof body === "string" ? body : JSON.stringify(body)});
		session.reached(true);
		return response;
	} catch (err) {
		if (err.name === "AbortError") throw err;
		session.reached(false);
		throw new Failure({status: 0, title: "The server cannot be reached",
			detail: "No answer from the server: it may be stopped, or the network is down."});
	}
}

// call makes a request and returns what the answer's JSON says.
export async function call(method, where, options = {}) {
	const response = await send(method, where, options);
	if (!response.ok) {
		const err = await failure(response);
		if (response.status === 401 && session.token && options.token === undefined) session.ended(err);
		throw err;
	}
	if (response.status === 204) return undefined;
	const text = await response.text();
	return text === "" ? undefined : parse(text);
}

export const get = (where, query, signal) => call("GET", where, {query, signal});
export const post = (where, body, signal) => call("POST", where, {body, signal});
export const put = (where, body, signal) => call("PUT", where, {body, signal});
export const del = (where, query, signal) => call("DELETE", where, {query, signal});

// everyNamespace lists all namespaces, in the order of their ids. The server tells some at a time.
export async function everyNamespace(signal) {
	const all = [], limit = 1000;
	for (let more = true; more; ) {
		const part = await get("v1/namespaces", {after: all.at(-1)?.id, limit}, signal);
		all.push(...part);
		more = part.length === limit;
	}
	return all;
}

const longest = 64 * 1024 * 1024; // of one event of a stream, in characters

// events reads server-sent events of a body: {id, event, data, retry}.
export async function* events(body) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	try {
		let rest = "", id, event = "", data = [], retry, first = true;
		for (;;) {
			const {value, done} = await reader.read();
			if (done) return;
			rest += first ? value.replace(/^\ufeff/, "") : value;
			first = false;
			// A carriage return at the end may be half of a line's end.
			const end = Math.max(rest.lastIndexOf("\n"), rest.lastIndexOf("\r", rest.length - 2));
			if (end < 0) {
				if (rest.length > longest) throw new Error("a line of the stream is too long");
				continue;
			}
			const lines = rest.slice(0, end + 1).split(/\r\n|\n|\r/);
			lines.pop();
			rest = rest.slice(end + 1);
			for (const line of lines) {
				if (line === "") {
					if (data.length > 0 || retry !== undefined) yield {id, event: event || "message", data: data.join("\n"), retry};
					event = "";
					data = [];
					retry = undefined;
					continue;
				}
				const colon = line.indexOf(":");
				if (colon === 0) continue; // a comment, that the connection stays
				const name = colon < 0 ? line : line.slice(0, colon);
				const text = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
				if (name === "data") data.push(text);
				else if (name === "event") event = text;
				else if (name === "id") id = text;
				else if (name === "retry" && /^\d+$/.test(text)) retry = Number(text);
			}
		}
	} finally {
		reader.cancel().catch(() => {});
	}
}

const pause = (ms, signal) => new Promise((resolve, reject) => {
	const timer = setTimeout(resolve, ms);
	signal.addEventListener("abort", () => {
		clearTimeout(timer);
		reject(new DOMException("aborted", "AbortError"));
	}, {once: true});
});

// follow yields what a route that follows sends, and connects again where that left off, until the signal is aborted or
// the server refuses. state is told "live" or "waiting".
export async function* follow(where, query, {signal, state = () => {}}) {
	let last, wait = 500;
	for (;;) {
		try {
			const headers = {Accept: "text/event-stream"};
			if (last !== undefined) headers["Last-Event-ID"] = last;
			const response = await send("GET", where, {query, headers, signal});
			if (!response.ok) {
				const err = await failure(response);
				if (err.status === 401) session.ended(err);
				if (![429, 502, 503, 504].includes(err.status)) throw Object.assign(err, {final: true});
				wait = Math.max(wait, err.retry * 1000);
				throw err;
			}
			state("live");
			for await (const e of events(response.body)) {
				if (e.id !== undefined) last = e.id;
				if (e.retry !== undefined) wait = e.retry;
				if (e.event === "bye") break; // the server stops
				if (e.event === "problem") {
					const body = parse(e.data);
					throw Object.assign(new Failure({status: body.status, title: "Following has failed", detail: body.detail || body.title, code: body.code,
						request: body.request}), {final: true});
				}
				if (e.data === "") continue;
				wait = 500;
				yield parse(e.data);
			}
		} catch (err) {
			if (err.final || signal.aborted) throw err;
		}
		if (signal.aborted) return;
		state("waiting");
		await pause(Math.min(wait, 30_000), signal);
		wait = Math.min(wait * 2, 30_000);
	}
}
