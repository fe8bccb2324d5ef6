// Messages: categories and streams, a search that can go on live, one message and what caused it.

import {Table, busy, button, chip, count, duration, empty, facts, field, glance, h, head, payload, position, problem, queued, section, set, stamp, when} from "../dom.js";
import {get, within} from "../api.js";
import {liveSwitch} from "../parts.js";

const page = 50, most = 500;

export async function messages(view) {
	const [what, arg] = view.args;
	if (what === "search") return search(view);
	if (what === "message") return one(view, Number(arg));
	return categories(view);
}

async function categories(view) {
	const cats = new Table({
		label: "Categories", key: c => c.category, open: c => view.go("messages", ["search"], {category: c.category}), columns: [
			{name: "Category", cell: c => h("a", {href: view.href("messages", ["search"], {category: c.category})}, c.category)},
			{name: "Messages", class: "number", cell: c => count(c.messages)}, {name: "Streams", class: "number", cell: c => count(c.streams)},
		],
		none: () => empty("There are no messages in this namespace yet.", h("p.dim", "Write one with POST ",
			h("code", `/v1/namespaces/${view.namespace}/messages`), ". You can try it under ", h("a", {href: view.href("operations")}, "API"), ".")),
	});
	const streams = new Table({
		label: "Streams", key: s => s.stream, open: s => view.go("messages", ["search"], {stream: s.stream}), columns: [
			{name: "Stream", cell: s => h("a", {href: view.href("messages", ["search"], {stream: s.stream})}, s.stream)},
			{name: "Version", class: "number", cell: s => position(s.version)}, {name: "Last message", class: "time", cell: s => when(s.last)},
		],
		none: () => empty(prefix.value.trim() ? "No stream begins so." : "There are no streams yet."),
	});
	const prefix = h("input", {type: "search", "data-search": true, autocomplete: "off", spellcheck: "false", placeholder: "order-", value: view.params.get("prefix") ?? "",
		onchange: () => { after = [""]; queued(first, find); }});
	let after = [view.params.get("after") ?? ""];
	const next = button("More", () => busy(next, async () => { after.push(shown.at(-1).stream); await find(); }));
	const first = button("From the start", () => busy(first, async () => { after = [""]; await find(); }));
	let shown = [];
	async function find() {
		shown = await get(within(view.namespace, "streams"), {prefix: prefix.value.trim(), after: after.at(-1), limit: page}, view.signal);
		streams.show(shown);
		next.disabled = shown.length < page;
		first.disabled = after.length === 1;
	}
	view.put(head("Messages", "Streams with versions; a category is all streams whose names begin the same up to the first “-”.",
		h("a.button", {href: view.href("messages", ["search"])}, "Search all messages")),
	h("div.columns", section("Categories", cats.element), section("Streams", h("form.tools", {onsubmit: e => { e.preventDefault(); }}, field("Name begins with", prefix)),
		streams.element, h("div.tools.below", first, next))));
	await Promise.all([find(), view.every(5000, async () => {
		const list = await get(within(view.namespace, "categories"), {}, view.signal);
		cats.show(list.sort((a, b) => b.messages - a.messages).slice(0, 1000));
	})]);
}

// --- search

const columns = view => [
	{name: "Global", class: "number", cell: m => h("a", {href: view.href("messages", ["message", m.global])}, position(m.global))},
	{name: "Time", class: "time wide", cell: m => stamp(m.time)},
	{name: "Stream", cell: m => h("span", h("a", {href: view.href("messages", ["search"], {stream: m.stream})}, m.stream), h("span.dim", ` @${m.position}`))},
	{name: "Type", cell: m => h("span.type", m.type)},
	{name: "Data", class: "wide fill", cell: m => h("span.glance.mono", m.glance)},
];

const slim = m => ({global: m.global, stream: m.stream, position: m.position, type: m.type, time: m.time, glance: glance(m.data).textContent});

// lastGlobal is the last global position.
async function lastGlobal(view) {
	return (await get(within(view.namespace), {}, view.signal)).last;
}

// read reads a page of messages. There are none beyond the end, which the server calls a conflict.
const read = (view, query) => get(within(view.namespace, "messages"), query, view.signal).catch(err => {
	if (err.code === "ahead") return {messages: [], next: query.from};
	throw err;
});

async function search(view) {
	const p = name => view.params.get(name) ?? "";
	const stream = p("stream");
	const box = (name, attributes = {}) => h("input", {type: "text", name, value: p(name), autocomplete: "off", spellcheck: "false", ...attributes});
	const inputs = {
		stream: box("stream", {placeholder: "order-17"}), category: box("category", {placeholder: "order"}), type: box("type", {"data-search": true, placeholder: "Placed"}),
		prefix: box("prefix", {placeholder: "order-1"}), correlation: box("correlation", {placeholder: "workflow"}),
		from: box("from", {type: "number", min: "0", inputmode: "numeric", placeholder: "newest"}),
	};
	const query = {stream, category: p("category"), type: p("type").split(/[\s,]+/).filter(Boolean), prefix: p("prefix"), correlation: p("correlation")};
	const where = within(view.namespace, "messages");
	const form = h("form.tools.search", {role: "search", onsubmit: e => {
		e.preventDefault();
		view.go("messages", ["search"], Object.fromEntries(Object.entries(inputs).map(([k, i]) => [k, i.value.trim()])));
	}}, field("Stream", inputs.stream), field("Category", inputs.category), field("Type", inputs.type), field("Stream begins with", inputs.prefix),
	field("Correlation", inputs.correlation), field(stream ? "From version" : "From global position", inputs.from), h("button.button.primary", {type: "submit"}, "Search"));

	const table = new Table({label: "Messages", key: m => m.global, columns: columns(view), open: m => view.go("messages", ["message", m.global]),
		none: () => empty("No messages found.", Object.values(query).some(v => v.length) ? "Loosen the conditions, or switch on “Live” and wait for one."
			: "Write one, or switch on “Live” and wait for one.")});
	const note = h("p.dim.small", {role: "status"});
	const place = m => stream ? m.position : m.global;
	let rows = [], low = 0, oldest = 0, end = 0, ahead;

	// back reads older messages, newest first. Routes read forwards only, so it looks at a span before the oldest that it has
	// seen, and at a longer one if too little was in it.
	async function back() {
		const found = [];
		let span = page, tries = 0;
		while (low > oldest && found.length < page && tries++ < 12) {
			const from = Math.max(oldest, low - span);
			const list = await between(from, low);
			if (list === undefined) {
				span = Math.ceil(span / 8);
				continue;
			}
			found.push(...list.reverse());
			low = from;
			if (list.length < 10) span *= 4;
			span = Math.min(span, 100_000);
		}
		rows = [...rows, ...found].slice(-most);
		show();
	}

	// between reads what is there from a position up to another, unless that is too much; a page may end early if its messages
	// are large.
	async function between(from, to) {
		const list = [];
		while (from < to) {
			const answer = await read(view, {...query, from, limit: Math.min(1000, to - from)});
			const part = answer.messages.filter(m => place(m) < to);
			list.push(...part.map(slim));
			if (part.length < answer.messages.length || part.length === 0) break;
			if (list.length >= 1000) return undefined;
			from = place(part.at(-1)) + 1;
		}
		return list;
	}

	async function newest() {
		ahead = undefined;
		oldest = stream ? 0 : 1;
		if (stream) {
			try {
				low = (await get(within(view.namespace, "streams", stream), {}, view.signal)).version + 1;
			} catch (err) {
				if (err.status !== 404) throw err;
				low = 0;
			}
		} else low = await lastGlobal(view) + 1;
		rows = [];
		end = low; // what comes from here on is live
		await back();
	}

	async function from(start) {
		const answer = await read(view, {...query, from: start, limit: page});
		ahead = answer.messages.length === 0 ? undefined : answer.next;
		rows = answer.messages.map(slim);
		show();
	}

	const older = button("Older", () => busy(older, back)), later = button("Next page", () => busy(later, () => from(ahead)));
	function show() {
		table.show(rows);
		const forwards = p("from") !== "" && !live.on;
		older.hidden = forwards;
		later.hidden = !forwards;
		older.disabled = low <= oldest;
		later.disabled = ahead === undefined;
		note.textContent = forwards ? rows.length ? `Oldest first, ${count(rows.length)} messages.` : ""
			: `Newest first, ${count(rows.length)} ${rows.length === 1 ? "message" : "messages"}${low > oldest ? `; searched down to ${position(low)}` : ", and no older ones"}.`;
	}

	const live = liveSwitch(view, {
		start: async () => {
			await newest();
			return {where: `${where}/follow`, query: {...query, from: end}};
		},
		each: m => {
			rows = [slim(m), ...rows].slice(0, most);
			table.prepend(slim(m), most);
			note.textContent = `Newest first; the newest ${most} are kept here.`;
		},
	});

	const title = stream || (p("category") ? `Category ${p("category")}` : "Search messages");
	view.title(title);
	const about = h("div");
	view.put(head(title, stream ? "One stream, newest first." : "By stream or category, type, or the beginning of the stream’s name.", live.element),
		h("nav.crumbs", {"aria-label": "Path"}, h("a", {href: view.href("messages")}, "Messages"), " / ", h("span", stream || p("category") || "search")),
		about, form, table.element, h("div.tools.below", older, later, note));
	if (stream) {
		const dash = stream.indexOf("-"), category = dash < 0 ? stream : stream.slice(0, dash);
		const tell = async () => {
			const [s, keep] = await Promise.all([get(within(view.namespace, "streams", stream), {}, view.signal),
				get(within(view.namespace, "streams", stream, "retention"), {}, view.signal).catch(() => undefined)]);
			set(about, facts([["Version", position(s.version)], ["Last message", when(s.last)],
				["Category", h("a", {href: view.href("messages", ["search"], {category})}, category)],
				["Kept", !keep ? "–" : [keep.max_count && `newest ${count(keep.max_count)}`, keep.max_age_ms && duration(keep.max_age_ms)].filter(Boolean).join(", ") || "all"]]));
		};
		tell().catch(err => {
			if (err.name !== "AbortError" && err.status !== 404) set(about, problem(err));
		});
	}
	if (p("from") !== "") await from(Number(p("from")));
	else await newest();
}

// --- one message

async function one(view, global) {
	view.title(`Message ${global}`);
	const where = within(view.namespace, "messages");
	const [m] = global <= await lastGlobal(view) ? (await read(view, {from: global, limit: 1})).messages : [];
	const crumbs = h("nav.crumbs", {"aria-label": "Path"}, h("a", {href: view.href("messages")}, "Messages"), " / ", h("span", `message ${global}`));
	if (!m || m.global !== global) {
		view.put(head(`Message ${position(global)}`), crumbs, empty("There is no message at this position.", "It was removed, or not written yet."));
		return;
	}
	const meta = m.metadata && typeof m.metadata === "object" ? m.metadata : {};
	const chain = h("div");
	view.put(head(m.type, h("span", "Message ", position(m.global), " of the namespace")), crumbs,
		facts([["Stream", h("a", {href: view.href("messages", ["search"], {stream: m.stream})}, m.stream)], ["Position in it", position(m.position)],
			["Written", when(m.time)], ["ID", h("code", m.id)],
			meta.correlationStreamName && ["Correlation", h("a", {href: view.href("messages", ["search"], {stream: meta.correlationStreamName})}, meta.correlationStreamName)]]),
		h("div.tools", global > 1 && h("a.button.small", {href: view.href("messages", ["message", global - 1])}, "← Before"),
			h("a.button.small", {href: view.href("messages", ["message", global + 1])}, "After →"),
			h("a.button.small", {href: view.href("messages", ["search"], {stream: m.stream, from: m.position})}, "The stream from here on")),
		payload("Data", m.data), m.metadata !== undefined && m.metadata !== null && payload("Metadata", m.metadata), section("What led here, and what came of it", chain));
	try {
		await related(view, m, meta, chain);
	} catch (err) {
		if (err.name !== "AbortError") set(chain, problem(err));
	}
}

// related shows the messages that caused this one, and those of the same correlation.
async function related(view, m, meta, chain) {
	const where = within(view.namespace, "messages");
	const causes = [];
	let at = m, ended = "";
	while (causes.length < 20) {
		const of = at.metadata ?? {};
		const name = of.causationMessageStreamName, pos = of.causationMessagePosition, g = of.causationMessageGlobalPosition;
		if (name === undefined && g === undefined) break;
		const asked = name !== undefined && pos !== undefined ? {stream: name, from: pos, limit: 1} : {from: g, limit: 1};
		const [cause] = Number.isFinite(asked.from) ? (await read(view, asked)).messages : [];
		if (!cause || (asked.stream ? cause.position !== pos : cause.global !== g)) {
			ended = "The message that caused the first one here is not there any more.";
			break;
		}
		if (cause.global === at.global || causes.some(c => c.global === cause.global)) break;
		causes.unshift(cause);
		at = cause;
	}
	let same = [];
	const name = meta.correlationStreamName;
	if (typeof name === "string" && name !== "") {
		const category = name.split("-", 1)[0];
		// From the first cause on; the route narrows by the category of the correlation, the rest is done here.
		const start = Math.max(1, Math.min(at.global, m.global));
		const answer = await get(where, {from: start, correlation: category, limit: 500}, view.signal);
		same = answer.messages.filter(x => x.metadata?.correlationStreamName === name);
	}
	const effects = [...causes, m, ...same].filter((x, i, all) => all.findIndex(y => y.global === x.global) === i).sort((a, b) => a.global - b.global);
	if (effects.length === 1) {
		set(chain, h("p.dim", "Its metadata name no cause (causationMessageStreamName and causationMessagePosition) and no correlation (correlationStreamName)."), ended && h("p.dim", ended));
		return;
	}
	set(chain, ended && h("p.dim", ended), h("ol.chain", effects.slice(0, 200).map(x => {
		const kind = x.global === m.global ? "this" : causes.includes(x) ? "cause" : "same";
		return h(`li.${kind}`, {"aria-current": kind === "this" ? "true" : null}, h("span.type", kind === "this" ? x.type : h("a", {href: view.href("messages", ["message", x.global])}, x.type)),
			h("span.dim", ` ${x.stream} @${x.position}`), h("span.grow"), chip({this: "this message", cause: "caused it", same: "same correlation"}[kind], kind === "this" ? "accent" : ""),
			stamp(x.time));
	})), effects.length > 200 && h("p.dim", `${count(effects.length - 200)} more are not shown.`));
}
