// Queries by SQL: an editor, what was found as a table, and statements that this browser keeps.

import {bytes, button, chip, confirm, copy, count, decode, dialog, duration, empty, field, h, head, parse, problem, read, save, say, section, set, toast} from "../dom.js";
import {Failure, failure, get, send, session, within} from "../api.js";

const most = 1000; // rows that are shown
const KEY = "holdfast.queries";

const examples = [
	["Messages by type", "select type, count(*) as messages, max(time) as last\nfrom messages\ngroup by type\norder by messages desc"],
	["One stream, newest first", "select position, time, type, data\nfrom messages\nwhere stream = 'order-1'\norder by position desc\nlimit 50"],
	["A field of the data", "select stream, time, data ->> 'total' as total\nfrom messages\nwhere category = 'order'\nlimit 100"],
	["Events of a log by hour", "select substr(time, 1, 13) as hour, type, count(*) as events\nfrom events\nwhere log = 'orders'\ngroup by 1, 2\norder by 1 desc"],
	["Who is behind", "select log, name, position, behind, parked\nfrom subscriptions\nwhere behind > 0\norder by behind desc"],
	["Dead tasks, and why", "select id, queue, kind, finished, failures ->> '$[#-1].message' as why\nfrom tasks\nwhere state = 'dead'\norder by finished desc"],
];

// --- statements that are kept, for all who use this browser

function kept() {
	try {
		const list = JSON.parse(localStorage.getItem(KEY) ?? "[]");
		return Array.isArray(list) ? list.filter(q => typeof q?.name === "string" && typeof q?.sql === "string") : [];
	} catch {
		return [];
	}
}

function keep(list) {
	try {
		localStorage.setItem(KEY, JSON.stringify(list));
		return true;
	} catch {
		toast("The browser does not let this page keep anything.", "bad");
		return false;
	}
}

// --- values

const shown = v => v === null ? "null" : typeof v === "object" ? v.rawJSON ?? v.base64 ?? JSON.stringify(v) : String(v);
const isNumber = v => typeof v === "number" || typeof v === "object" && v !== null && v.rawJSON !== undefined;

function cell(v) {
	if (v === null) return h("td", h("span.dim", "null"));
	if (isNumber(v)) return h("td.number", shown(v));
	if (typeof v === "object") return h("td", h("span.dim", `${bytes(decode(v.base64).length)} of bytes`));
	return h("td", h("span.glance.mono", v === "" ? h("span.dim", "“”") : v.replace(/\s+/g, " ").slice(0, 160)));
}

// whole shows a value with all that it has.
function whole(name, v) {
	const raw = typeof v === "object" && v !== null && v.base64 !== undefined ? decode(v.base64) : new TextEncoder().encode(shown(v));
	const what = read(raw);
	return h("div.payload", h("header", h("span.strong", name), !isNumber(v) && v !== null && h("span.dim", `${what.kind}, ${bytes(raw.length)}`), h("span.grow"),
		button("Copy", () => copy(what.text), {kind: "small", "aria-label": `Copy ${name}`})),
	h("pre", {tabindex: "0", "aria-label": name}, what.text.slice(0, 1 << 20)));
}

// --- the answer

// lines reads what the server answers: {columns}, rows, and {rows} or {problem} at the end.
async function* lines(body) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	try {
		let rest = "";
		for (;;) {
			const {value, done} = await reader.read();
			if (done) break;
			const parts = (rest + value).split("\n");
			rest = parts.pop();
			yield parts.map(parse);
		}
		if (rest !== "") throw new Error("the answer broke off");
	} finally {
		reader.cancel().catch(() => {});
	}
}

export async function query(view) {
	const where = within(view.namespace, "query");
	const info = await get(where, {}, view.signal);
	const editor = h("textarea.mono.editor", {rows: "8", spellcheck: "false", autocomplete: "off", autocapitalize: "off", "data-search": true,
		placeholder: "select …", value: view.params.get("sql") ?? ""});
	const note = h("p.dim.small", {role: "status"}), out = h("div.answer"), detail = h("div.detail", {"aria-live": "polite"});
	let running;
	view.signal.addEventListener("abort", () => running?.abort());

	const run = h("button.button.primary", {type: "submit"}, "Run"), cancel = button("Cancel", () => running?.abort(), {hidden: true});
	const explain = button("Explain", () => ask({explain: true}));
	const download = button("Download CSV", () => csv());

	// begin lets one query run at a time.
	function begin() {
		if (running) return undefined;
		running = new AbortController();
		for (const b of [run, explain, download]) b.disabled = true;
		cancel.hidden = false;
		note.textContent = "Running …";
		return running;
	}

	function end(text) {
		running = undefined;
		for (const b of [run, explain, download]) b.disabled = false;
		cancel.hidden = true;
		note.textContent = text;
	}

	const post = (body, signal) => send("POST", where, {body, signal});

	async function refused(response) {
		const err = await failure(response);
		if (err.status === 401) session.ended(err);
		return err;
	}

	async function ask({explain: how = false} = {}) {
		const sql = editor.value.trim().replace(/;\s*$/, "");
		if (sql === "") {
			editor.focus();
			return;
		}
		const mine = begin();
		if (!mine) return;
		set(detail);
		set(out);
		const started = performance.now();
		let n = 0, text = "";
		try {
			const response = await post({sql, explain: how, rows: most}, mine.signal);
			if (!response.ok) throw await refused(response);
			let names, body, over = false, ended = false;
			for await (const part of lines(response.body)) {
				for (const line of part) {
					if (Array.isArray(line)) {
						body.append(row(names, line));
						n++;
					} else if (line.columns) {
						names = line.columns;
						body = h("tbody");
						set(out, table(names, body));
					} else if (line.problem) {
						ended = true;
						over = line.problem.code === "too_large" && n === most;
						if (!over) throw new Failure({...line.problem, title: "The query ended early"});
					} else ended = true;
				}
			}
			if (!ended) throw new Error("The answer broke off: what is shown is not all.");
			const took = duration(performance.now() - started);
			text = over ? `The first ${count(most)} rows, ${took}. There are more: ask for fewer, or download all of them.` : `${count(n)} ${n === 1 ? "row" : "rows"}, ${took}`;
			if (n === 0) set(out, empty("No rows."));
		} catch (err) {
			if (view.signal.aborted) return;
			text = err.name === "AbortError" ? "Cancelled." : "";
			if (err.name !== "AbortError") {
				if (!n) set(out);
				out.prepend(problem(err));
			}
		} finally {
			end(text);
		}
	}

	async function csv() {
		const sql = editor.value.trim().replace(/;\s*$/, "");
		const mine = sql !== "" && begin();
		if (!mine) return;
		let text = "";
		try {
			const response = await post({sql, format: "csv"}, mine.signal);
			if (!response.ok) throw await refused(response);
			const blob = await response.blob();
			save("query.csv", blob);
			text = `${bytes(blob.size)} of CSV`;
		} catch (err) {
			if (view.signal.aborted) return;
			text = err.name === "AbortError" ? "Cancelled." : "";
			if (err.name !== "AbortError") toast(err.status === undefined ? "The answer broke off: a limit was reached, or the server is gone." : say(err), "bad");
		} finally {
			end(text);
		}
	}

	function table(names, body) {
		const element = h("table", {"aria-label": "Result"}, h("thead", h("tr", names.map(c => h("th", {scope: "col"}, c)))), body);
		element.classList.add("opens");
		const open = e => {
			const tr = e.target.closest("tbody tr");
			if (tr?.values && !getSelection().toString()) show(names, tr.values);
		};
		body.addEventListener("click", open);
		body.addEventListener("keydown", e => {
			const next = {ArrowDown: "nextElementSibling", j: "nextElementSibling", ArrowUp: "previousElementSibling", k: "previousElementSibling"}[e.key];
			if (e.key === "Enter") open(e);
			else if (next && e.target[next]) {
				e.preventDefault();
				e.target[next].tabIndex = 0;
				e.target.tabIndex = -1;
				e.target[next].focus();
			}
		});
		return h("div.scroll.result", element);
	}

	function row(names, values) {
		const tr = h("tr", {tabindex: out.querySelector("tbody tr") ? "-1" : "0"}, values.map(cell));
		tr.values = values;
		return tr;
	}

	function show(names, values) {
		set(detail, h("article.panel", {tabindex: "-1"}, h("header", h("h2", "Row"), h("span.grow"), button("Close", () => set(detail), {kind: "small"})),
			names.map((name, i) => whole(name, values[i]))));
		detail.firstChild.focus();
		detail.firstChild.scrollIntoView({block: "nearest"});
	}

	// --- what is there to choose from

	const saved = h("ul.queries");
	function draw() {
		const list = kept();
		set(saved, list.length === 0 ? h("li.dim", "None yet.") : list.map(q => h("li", button(q.name, () => use(q.sql), {kind: "quiet", title: q.sql}),
			button("Delete", async () => {
				if (await confirm({title: "Delete a saved query", text: `“${q.name}” is removed from this browser.`, action: "Delete it"}) && keep(kept().filter(k => k.name !== q.name))) draw();
			}, {kind: "small", "aria-label": `Delete ${q.name}`}))));
	}

	function use(sql) {
		editor.value = sql;
		editor.focus();
	}

	async function store() {
		if (editor.value.trim() === "") return;
		const name = await dialog("Save this query", close => {
			const input = h("input", {type: "text", required: true, maxlength: "80", autocomplete: "off", "data-focus": true});
			return h("form", {onsubmit: e => {
				e.preventDefault();
				close(input.value.trim());
			}}, field("Name", input, "It is kept in this browser, for whoever uses it. One of that name is replaced."),
			h("div.actions", button("Cancel", () => close()), h("button.button.primary", {type: "submit"}, "Save")));
		});
		if (name && keep([...kept().filter(q => q.name !== name), {name, sql: editor.value}])) {
			draw();
			toast(`Saved as ${name}`);
		}
	}

	draw();
	view.put(head("Query", "SQL of SQLite that reads: one state of the namespace, which no statement can change.",
		chip(`${info.time_ms ? duration(info.time_ms) : "any time"}, ${bytes(info.memory_bytes)}`)),
	h("form", {onsubmit: e => {
		e.preventDefault();
		ask();
	}, onkeydown: e => {
		if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
			e.preventDefault();
			ask();
		}
	}}, field("Statement", editor, "Ctrl+Enter runs it."), h("div.row.below", run, cancel, explain, download, button("Save …", store), note)),
	detail, out,
	h("div.columns", section("Examples", h("ul.queries", examples.map(([name, sql]) => h("li", button(name, () => use(sql), {kind: "quiet", title: sql}))))),
		section("Saved queries", saved)),
	section("Tables", info.tables.map(t => h("details", h("summary", h("code", t.name)), h("pre", {tabindex: "0", "aria-label": `Table ${t.name}`}, t.sql),
		button(`Look at ${t.name}`, () => use(`select *\nfrom ${t.name}\nlimit 100`), {kind: "small"})))));
}
