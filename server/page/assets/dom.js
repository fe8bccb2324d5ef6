// The parts of which views are made. Text from the server only ever becomes text nodes and attribute values that are
// not code: no HTML is made of strings anywhere, and the Content-Security-Policy refuses it (trusted types).

const SVG = "http://www.w3.org/2000/svg";
const properties = new Set(["value", "checked", "disabled", "selected", "hidden", "readOnly", "open", "indeterminate"]);

// h makes an element: h("p.dim", {title: "…"}, "text", node, [more]). An attribute "on…" must be a function; null, undefined
// and false leave an attribute or a child out.
export function h(spec, attributes, ...children) {
	return make(name => document.createElement(name), spec, attributes, children);
}

// svg is h for SVG.
export function svg(spec, attributes, ...children) {
	return make(name => document.createElementNS(SVG, name), spec, attributes, children);
}

function make(create, spec, attributes, children) {
	const [name, ...classes] = spec.split(".");
	const element = create(name || "div");
	if (classes.length) element.setAttribute("class", classes.join(" "));
	if (attributes instanceof Node || typeof attributes !== "object" || Array.isArray(attributes)) {
		children.unshift(attributes);
		attributes = null;
	}
	for (const [key, value] of Object.entries(attributes ?? {})) {
		if (value === null || value === undefined || value === false && !properties.has(key)) continue;
		if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
		else if (properties.has(key)) element[key] = value;
		else element.setAttribute(key, value === true ? "" : String(value));
	}
	add(element, children);
	return element;
}

function add(element, children) {
	for (const child of children) {
		if (child === null || child === undefined || child === false) continue;
		if (Array.isArray(child)) add(element, child);
		else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
	}
}

// set replaces what is in an element.
export function set(element, ...children) {
	element.replaceChildren();
	add(element, children);
	return element;
}

let ids = 0;
export const newID = prefix => `${prefix}-${++ids}`;

// Icons, drawn in a square of 16.
const paths = {
	overview: "M2 9.5l3-3 3 3 6-6M2 13.5h12",
	logs: "M3 3.5h10M3 8h10M3 12.5h6",
	messages: "M2.5 3h11v8H7l-3 2.5V11H2.5z",
	groups: "M5.5 7.5a2.25 2.25 0 1 0 0-4.5 2.25 2.25 0 0 0 0 4.5zM1.5 13c0-2.2 1.8-3.6 4-3.6s4 1.4 4 3.6M10.5 7.3a2 2 0 1 0-.6-3.9M11.5 9.5c1.8.2 3 1.600 3 3.5",
	tasks: "M2.5 4l1.300 1.300L6 3M2.500 8.500l1.300 1.300L6 7.500M2.500 13l1.300 1.300L6 12M8.500 4.500h5M8.500 9h5M8.500 13.300h5",
	query: "M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.300 10.300L14 14",
	access: "M10 6.500a3.500 3.500 0 1 0-2.600 3.400L8.500 11H10v1.500h1.500V14H14v-2.500L9.700 7.200",
	engine: "M8 2.500c3 0 5.500.9 5.500 2.200S11 7 8 7 2.500 6 2.500 4.700 5 2.500 8 2.500zM2.500 4.700v6.600c0 1.300 2.500 2.200 5.500 2.200s5.500-.9 5.500-2.200V4.700M2.500 8c0 1.300 2.500 2.200 5.500 2.200s5.500-.9 5.500-2.200",
	operations: "M5.500 4L2 8l3.500 4M10.500 4L14 8l-3.500 4",
	sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.500v1M8 13.500v1M1.500 8h1M13.500 8h1M3.400 3.400l.7.7M11.900 11.900l.7.7M3.400 12.600l.7-.7M11.900 4.100l.7-.7",
	moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500z",
	system: "M2.500 3h11v7.500h-11zM6 13.500h4M8 10.500v3",
	menu: "M2.500 4.500h11M2.500 8h11M2.500 11.500h11",
	close: "M4 4l8 8M12 4l-8 8",
};

export function icon(name) {
	return svg("svg.icon", {viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false"}, svg("path", {d: paths[name]}));
}

// --- numbers and times

const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const one = new Intl.NumberFormat("en", {maximumFractionDigits: 1});

// count writes a whole number with its thousands apart; -1 and what is no number are unknown.
export function count(n) {
	if (typeof n === "object" && n !== null) return String(n.rawJSON ?? n);
	return Number.isFinite(n) && n >= 0 ? whole.format(n) : "–";
}

export const position = n => typeof n === "number" ? whole.format(n) : count(n);

// rate writes how many a second.
export function rate(n) {
	if (!Number.isFinite(n)) return "–";
	if (n === 0) return "0";
	return n < 10 ? one.format(n) : n < 10_000 ? whole.format(n) : `${one.format(n / 1000)} k`;
}

export function bytes(n) {
	if (!Number.isFinite(n) || n < 0) return "–";
	if (n < 1024) return `${whole.format(n)} B`;
	for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
		n /= 1024;
		if (n < 1024 || unit === "TiB") return `${n < 100 ? one.format(n) : whole.format(n)} ${unit}`;
	}
}

// duration writes milliseconds.
export function duration(ms) {
	if (!Number.isFinite(ms)) return "–";
	if (ms < 1) return `${whole.format(ms * 1000)} µs`;
	if (ms < 1000) return `${ms < 10 ? one.format(ms) : whole.format(ms)} ms`;
	const s = ms / 1000;
	if (s < 60) return `${s < 10 ? one.format(s) : whole.format(s)} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 >= 1 ? ` ${Math.floor(s % 60)} s` : ""}`;
	if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor(s % 3600 / 60)} min` : ""}`;
	return `${Math.floor(s / 86400)} d${s % 86400 >= 3600 ? ` ${Math.floor(s % 86400 / 3600)} h` : ""}`;
}

// isTime tells times from Go's zero time and from nothing.
export const isTime = text => typeof text === "string" && text !== "" && !text.startsWith("0001-01-01");

const two = n => String(n).padStart(2, "0");

// clock writes a time by the browser's zone.
export function clock(text) {
	const t = new Date(text);
	if (!isTime(text) || Number.isNaN(t.getTime())) return "–";
	return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ` +
		`${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}.${String(t.getMilliseconds()).padStart(3, "0")}`;
}

function relative(text) {
	const ms = Date.now() - new Date(text).getTime();
	if (Math.abs(ms) < 2000) return "now";
	const span = duration(Math.floor(Math.abs(ms) / 1000) * 1000).split(" ").slice(0, 2).join(" ");
	return ms < 0 ? `in ${span}` : `${span} ago`;
}

// when writes how long ago a time is, and keeps that right.
export function when(text) {
	if (!isTime(text)) return h("span.dim", "–");
	return h("time.ago", {datetime: text, title: clock(text)}, relative(text));
}

setInterval(() => {
	for (const element of document.querySelectorAll("time.ago")) {
		const text = relative(element.dateTime);
		if (element.textContent !== text) element.textContent = text;
	}
}, 5000);

// stamp writes the time of day, with the date in the title; for lists of what happened in a row.
export function stamp(text) {
	if (!isTime(text)) return h("span.dim", "–");
	const full = clock(text);
	const today = clock(new Date().toISOString()).slice(0, 10);
	return h("time.stamp", {datetime: text, title: full}, full.startsWith(today) ? full.slice(11) : full.slice(0, 19));
}

// --- parts

// head is the head of a view: a title, what stands beside it, a line of explanation.
export function head(title, note, ...actions) {
	return h("header.head", h("div", h("h1", {tabindex: "-1"}, title), note && h("p.dim", note)),
		actions.length > 0 && h("div.actions", actions));
}

export function section(title, ...children) {
	const id = newID("section");
	return h("section.block", {"aria-labelledby": id}, h("h2", {id}, title), children);
}

// empty says that there is nothing, and what to do next.
export function empty(title, ...more) {
	return h("div.empty", h("p.strong", title), more.map(m => m instanceof Node ? m : h("p.dim", m)));
}

export function button(text, onclick, more = {}) {
	const {kind, ...attributes} = more;
	return h(kind ? `button.button.${kind}` : "button.button", {type: "button", onclick, ...attributes}, text);
}

// busy runs f, and shows what went wrong. Meanwhile the button does nothing; it keeps the focus, and whether it is disabled
// stays with the view.
export async function busy(element, f) {
	if (element.hasAttribute("aria-busy")) return undefined;
	element.setAttribute("aria-busy", "true");
	try {
		return await f();
	} catch (err) {
		if (err.name !== "AbortError") toast(say(err), "bad");
	} finally {
		element.removeAttribute("aria-busy");
	}
}

// queued is busy for what is asked for again before it is done: it is done again.
export function queued(element, f) {
	return element.queue = (element.queue ?? Promise.resolve()).then(() => busy(element, f));
}

export const chip = (text, kind = "") => h(kind ? `span.chip.${kind}` : "span.chip", text);

// field is a labelled control.
export function field(label, control, note) {
	const id = newID("field");
	control.id = id;
	const noteID = note && newID("note");
	if (note) control.setAttribute("aria-describedby", noteID);
	return h("div.field", h("label", {for: id}, label), control, note && h("p.note", {id: noteID}, note));
}

// facts is a list of names and values.
export function facts(pairs) {
	return h("dl.facts", pairs.filter(p => p).map(([name, value]) =>
		h("div", h("dt", name), h("dd", value === "" || value === undefined || value === null ? "–" : value))));
}

// say is what an error is, in a sentence.
export function say(err) {
	return err?.detail || err?.message || String(err);
}

// problem shows an error where its result would be.
export function problem(err, again) {
	return h("div.problem", {role: "alert"},
		h("p.strong", err.title || "That did not work"),
		h("p", say(err)),
		(err.code || err.status || err.request) && h("p.dim.small", [
			err.code && `code ${err.code}`, err.status && `status ${err.status}`, err.request && `request ${err.request}`,
		].filter(Boolean).join(" · ")),
		again && h("p", button("Try again", again)));
}

// toast tells something for a while; a screen reader says it.
export function toast(text, kind = "good") {
	const area = document.querySelector(".toasts");
	const item = h(`div.toast.${kind}`, h("span", text));
	const close = button("", () => item.remove(), {kind: "quiet", "aria-label": "Dismiss"});
	close.append(icon("close"));
	item.append(close);
	area.append(item);
	while (area.children.length > 4) area.firstElementChild.remove();
	setTimeout(() => item.remove(), kind === "bad" ? 15_000 : 5_000);
}

// dialog shows a modal dialog; content gets a function that closes it with a result. It returns that, or undefined if the
// dialog was dismissed, which hold does not let the user do by accident.
export function dialog(title, content, {hold = false} = {}) {
	return new Promise(resolve => {
		const id = newID("dialog");
		let result;
		const element = h("dialog", {"aria-labelledby": id, onclose: () => {
			element.remove();
			resolve(result);
		}});
		const close = value => {
			result = value;
			element.close();
		};
		const x = button("", () => close(), {kind: "quiet", "aria-label": "Close"});
		x.append(icon("close"));
		if (hold) element.addEventListener("cancel", e => e.preventDefault());
		element.append(h("header", h("h2", {id}, title), !hold && x), content(close));
		document.body.append(element);
		element.showModal();
		element.querySelector("[data-focus]")?.focus();
	});
}

// confirm asks before something is done; with typed, its name must be typed.
export function confirm({title, text, action, typed}) {
	return dialog(title, close => {
		const go = h("button.button.danger", {type: "submit", disabled: Boolean(typed)}, action);
		const input = typed && h("input", {type: "text", autocomplete: "off", spellcheck: "false", "data-focus": true,
			oninput: () => { go.disabled = input.value !== typed; }});
		return h("form", {onsubmit: e => {
			e.preventDefault();
			if (!typed || input.value === typed) close(true);
		}}, h("p", text), typed && field(["Type ", h("code", typed), " to confirm"], input),
		h("div.actions", button("Keep it", () => close(false), typed ? {} : {"data-focus": true}), go));
	});
}

// copy puts text on the clipboard, where the browser lets it.
export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
		toast("Copied");
	} catch {
		toast("The browser does not let this page copy; select the text instead.", "bad");
	}
}

// save offers bytes as a file.
export function save(name, ...parts) {
	const url = URL.createObjectURL(new Blob(parts));
	h("a", {href: url, download: name}).click();
	setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

// --- tables

// Table shows rows that may change: those with the same key stay where they are, so that the focus does. Rows can be
// walked with the arrow keys, and opened with Enter if there is open.
export class Table {
	constructor({label, columns, key, open, none}) {
		Object.assign(this, {columns, key, open, none, rows: new Map()});
		this.body = h("tbody");
		this.table = h("table", {"aria-label": label},
			h("thead", h("tr", columns.map(c => h("th", {scope: "col", class: c.class}, c.name || h("span.unseen", c.label ?? "Actions"))))),
			this.body);
		this.scroll = h("div.scroll", {}, this.table);
		this.element = h("div.table", this.scroll);
		this.body.addEventListener("keydown", e => this.#keydown(e));
		this.body.addEventListener("focusin", e => {
			const row = e.target.closest("tr");
			for (const r of this.body.querySelectorAll('tr[tabindex="0"]')) if (r !== row) r.tabIndex = -1;
			if (row) row.tabIndex = 0;
		});
		if (open) {
			this.table.classList.add("opens");
			this.body.addEventListener("click", e => {
				if (e.target.closest("a, button, input, label, select, details") || getSelection().toString()) return;
				const row = e.target.closest("tr");
				if (row && row.data !== undefined) open(row.data, row);
			});
		}
	}

	#keydown(e) {
		if (e.target.closest("input, select, textarea")) return;
		const row = e.target.closest("tr");
		const to = {ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling, j: row?.nextElementSibling,
			k: row?.previousElementSibling, Home: this.body.firstElementChild, End: this.body.lastElementChild}[e.key];
		if (to && !e.ctrlKey && !e.metaKey && !e.altKey) {
			e.preventDefault();
			to.focus();
		} else if (e.key === "Enter" && e.target === row && this.open && row.data !== undefined) {
			e.preventDefault();
			this.open(row.data, row);
		}
	}

	#row(data) {
		const sign = JSON.stringify(data);
		let row = this.rows.get(String(this.key(data)));
		if (!row) {
			row = h("tr", {tabindex: "-1"});
			this.rows.set(String(this.key(data)), row);
		}
		if (row.sign !== sign) {
			row.sign = sign;
			row.data = data;
			const held = row.contains(document.activeElement) && document.activeElement !== row;
			set(row, this.columns.map(c => h("td", {class: c.class}, c.cell(data))));
			if (held) row.focus();
		}
		return row;
	}

	// show shows these rows and no others.
	show(list) {
		const keep = new Set(list.map(d => String(this.key(d))));
		for (const [key, row] of this.rows) {
			if (keep.has(key)) continue;
			row.remove();
			this.rows.delete(key);
		}
		let at = this.body.firstElementChild;
		for (const data of list) {
			const row = this.#row(data);
			if (row === at) at = at.nextElementSibling;
			else this.body.insertBefore(row, at);
		}
		this.#settle();
		return this;
	}

	// prepend puts a row on top, and drops the last ones beyond most.
	prepend(data, most) {
		if (this.rows.has(String(this.key(data)))) return;
		const row = this.#row(data);
		row.classList.add("new");
		this.body.prepend(row);
		while (this.rows.size > most) {
			const last = this.body.lastElementChild;
			this.rows.delete(String(this.key(last.data)));
			last.remove();
		}
		this.#settle();
	}

	#settle() {
		const bare = this.rows.size === 0;
		this.scroll.hidden = bare;
		this.note?.remove();
		if (bare && this.none) this.element.append(this.note = this.none());
		if (!this.body.querySelector('tr[tabindex="0"]') && this.body.firstElementChild) this.body.firstElementChild.tabIndex = 0;
	}
}

// --- what messages, events and tasks carry

const preview = 4096, coloured = 256 * 1024;

// decode makes bytes of base64.
export function decode(base64) {
	return Uint8Array.from(atob(base64 ?? ""), c => c.charCodeAt(0));
}

// read tells what bytes are: JSON, text, or neither.
export function read(data) {
	try {
		const text = new TextDecoder("utf-8", {fatal: true}).decode(data);
		if (/^\s*[[{"]/.test(text)) {
			try {
				return {kind: "JSON", text: JSON.stringify(parse(text), null, 2), size: data.length};
			} catch {
				// Not JSON after all.
			}
		}
		// eslint-disable-next-line no-control-regex
		if (!/[\u0000-\u0008\u000e-\u001f]/.test(text)) return {kind: "text", text, size: data.length};
	} catch {
		// Not UTF-8.
	}
	return {kind: "bytes", text: hex(data), size: data.length};
}

// parse reads JSON and keeps numbers as they were written where that is not how JavaScript writes them: 1.50, and those that
// a double cannot hold.
export function parse(text) {
	if (!JSON.rawJSON) return JSON.parse(text);
	return JSON.parse(text, (_, value, context) =>
		typeof value === "number" && context?.source !== undefined && String(value) !== context.source
			? JSON.rawJSON(context.source) : value);
}

function hex(data) {
	const lines = [];
	for (let at = 0; at < data.length && at < 64 * 1024; at += 16) {
		const part = data.subarray(at, at + 16);
		lines.push(at.toString(16).padStart(8, "0") + "  " +
			Array.from(part, b => b.toString(16).padStart(2, "0")).join(" ").padEnd(47) + "  " +
			Array.from(part, b => b >= 32 && b < 127 ? String.fromCharCode(b) : ".").join(""));
	}
	if (data.length > 64 * 1024) lines.push(`… ${count(data.length - 64 * 1024)} bytes more; download them`);
	return lines.join("\n");
}

// payload shows what something carries: bytes in base64, or a value of JSON. Only its beginning is drawn at first.
export function payload(name, content, {base64 = false} = {}) {
	let what;
	const raw = base64 ? decode(content) : undefined;
	if (base64) what = read(raw);
	else {
		const text = content === undefined || content === null ? "" : JSON.stringify(content, null, 2);
		what = {kind: "JSON", text, size: new TextEncoder().encode(text).length};
	}
	if (what.size === 0) return h("div.payload", h("header", h("span.strong", name)), h("p.dim", "Empty"));
	const pre = h("pre", {tabindex: "0", "aria-label": name});
	const draw = text => {
		if (what.kind === "JSON" && text.length <= coloured) set(pre, colour(text));
		else pre.textContent = text;
	};
	const long = what.text.length > preview;
	draw(long ? what.text.slice(0, preview) + "\n…" : what.text);
	const all = long && button(`Show all (${bytes(what.size)})`, () => {
		draw(what.text);
		all.remove();
	}, {kind: "small"});
	return h("div.payload", h("header", h("span.strong", name), h("span.dim", `${what.kind}, ${bytes(what.size)}`), h("span.grow"),
		button("Copy", () => copy(what.text), {kind: "small", "aria-label": `Copy ${name}`}),
		button("Download", () => save(`${name.toLowerCase()}.${what.kind === "JSON" ? "json" : what.kind === "text" ? "txt" : "bin"}`, raw ?? what.text),
			{kind: "small", "aria-label": `Download ${name}`})),
	pre, all);
}

const token = /("(?:[^"\\]|\\.)*"?)(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

// colour makes spans of indented JSON.
function colour(text) {
	const parts = document.createDocumentFragment();
	let end = 0;
	for (const m of text.matchAll(token)) {
		if (m.index > end) parts.append(text.slice(end, m.index));
		const kind = m[1] === undefined ? /[\d-]/.test(m[0][0]) ? "number" : "word" : m[2] === undefined ? "string" : "name";
		parts.append(h(`span.j-${kind}`, m[1] ?? m[0]));
		if (m[2]) parts.append(m[2]);
		end = m.index + m[0].length;
	}
	parts.append(text.slice(end));
	return parts;
}

// glance is one line of what something carries.
export function glance(content, {base64 = false} = {}) {
	let text;
	if (base64) {
		const head = decode((content ?? "").slice(0, 320));
		try {
			text = new TextDecoder("utf-8", {fatal: true}).decode(head, {stream: true});
		} catch {
			text = `${bytes((content ?? "").length * 3 / 4)} of bytes`;
		}
	} else text = content === undefined ? "" : JSON.stringify(content)?.slice(0, 240) ?? "";
	return h("span.glance.mono", text.replace(/\s+/g, " ").slice(0, 160));
}
