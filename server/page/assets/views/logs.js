// Logs of events: what there is, one log with its newest events, older ones, and those that come.

import {Table, busy, button, chip, count, empty, facts, field, glance, h, head, payload, position, queued, say, section, set, stamp, toast, when} from "../dom.js";
import {get, within} from "../api.js";
import {liveSwitch} from "../parts.js";

const page = 50, most = 500;

export async function logs(view) {
	return view.args.length ? log(view, view.args[0]) : list(view);
}

async function list(view) {
	const table = new Table({
		label: "Logs", key: l => l.name, open: l => view.go("logs", [l.name]),
		columns: [
			{name: "Log", cell: l => h("a", {href: view.href("logs", [l.name])}, l.name)},
			{name: "Events", class: "number", cell: l => count(events(l))},
			{name: "First", class: "number wide", cell: l => events(l) ? position(l.first) : "–"},
			{name: "Last", class: "number", cell: l => events(l) ? position(l.last) : "–"},
			{name: "Subscriptions", class: "number wide", cell: l => l.subscriptions ? count(l.subscriptions.length) : "–"},
			{name: "Largest lag", class: "number", cell: l => lag(Math.max(0, ...(l.subscriptions ?? []).map(s => s.lag)), l.subscriptions?.length)},
		],
		none: () => empty("There are no logs in this namespace yet.", h("p.dim", "A log is made by the first append: POST ",
			h("code", `/v1/namespaces/${view.namespace}/logs/NAME/events`), ". You can try it under ", h("a", {href: view.href("operations")}, "API"), ".")),
	});
	const search = h("input", {type: "search", "data-search": true, placeholder: "Name", oninput: () => draw()});
	let all = [];
	const shown = () => all.filter(l => l.name.includes(search.value.trim())).slice(0, 1000);
	const draw = () => table.show(shown());
	view.put(head("Logs", "Each log is one sequence of events, with positions from 1."), h("div.tools", field("Find", search)), table.element);
	await view.every(3000, async () => {
		all = await get(within(view.namespace, "logs"), {}, view.signal);
		draw();
	});
}

const events = l => l.last === 0 || l.first > l.last ? 0 : l.last - l.first + 1;
const lag = (n, there = 1) => !there ? h("span.dim", "–") : n === 0 ? chip("up to date", "good") : chip(`${count(n)} behind`, n > 1000 ? "warn" : "");

async function log(view, name) {
	view.title(name);
	const where = within(view.namespace, "logs", name);
	let info = await get(where, {}, view.signal);
	const about = h("div"), subscriptions = new Table({
		label: "Subscriptions", key: s => s.name, columns: [
			{name: "Subscription", cell: s => s.name}, {name: "Position", class: "number", cell: s => position(s.position)},
			{name: "Lag", class: "number", cell: s => lag(s.lag)},
			{name: "Removed unread", class: "number wide", cell: s => s.missed ? chip(count(s.missed), "bad") : "–"},
		],
		none: () => h("p.dim", "Nobody has saved a position in this log."),
	});
	const detail = h("div.detail", {"aria-live": "polite"});
	const table = new Table({
		label: `Events of ${name}`, key: e => e.position, open: e => open(e.position).catch(err => toast(say(err), "bad")), columns: [
			{name: "Position", class: "number", cell: e => h("a", {href: view.href("logs", [name], {at: e.position}), onclick: ev => {
				ev.preventDefault();
				open(e.position).catch(err => toast(say(err), "bad"));
			}}, position(e.position))},
			{name: "Time", class: "time", cell: e => stamp(e.time)},
			{name: "Type", cell: e => h("span.type", e.type || "–")},
			{name: "Data", class: "wide fill", cell: e => h("span.glance.mono", e.glance)},
		],
		none: () => empty(type.value ? `No event of type “${type.value}” here.` : "No events here.",
			type.value ? "Search on through older events, or clear the filter." : "Switch on “Live” and append one: it appears here as soon as it is durable."),
	});
	const type = h("input", {type: "search", "data-search": true, placeholder: "Type", value: view.params.get("type") ?? "", autocomplete: "off"});
	const at = h("input", {type: "number", min: "1", placeholder: "Position", inputmode: "numeric", value: view.params.get("from") ?? ""});
	const note = h("p.dim.small", {role: "status"});
	const older = button("Older", () => busy(older, () => back())), newest = button("Newest", () => queued(newest, () => fresh()));
	let low, rows = [];

	const slim = e => ({position: e.position, time: e.time, type: e.type, glance: glance(e.data, {base64: true}).textContent});
	const fits = e => !type.value.trim() || (e.type ?? "").toLowerCase().includes(type.value.trim().toLowerCase());
	// between returns events from a position up to another, newest first. A page may end early if its events are large.
	async function between(start, end) {
		const list = [];
		while (start < end) {
			const part = (await get(`${where}/events`, {from: start, limit: end - start}, view.signal)).events;
			if (part.length === 0) break;
			list.push(...part.filter(fits).map(slim));
			start = part.at(-1).position + 1;
		}
		return list.reverse();
	}

	// back reads older events until there are enough that fit, or enough was read.
	async function back() {
		const found = [];
		let seen = 0;
		while (low > info.first && found.length < page && seen < 5000) {
			const size = Math.min(type.value.trim() ? 500 : page, low - info.first);
			found.push(...await between(low - size, low));
			low -= size;
			seen += size;
		}
		rows = [...rows, ...found].slice(-most);
		draw();
	}

	async function fresh() {
		info = await get(where, {}, view.signal);
		low = info.last + 1;
		rows = [];
		await back();
	}

	async function from(start) {
		info = await get(where, {}, view.signal);
		start = Math.max(start, info.first);
		rows = await between(start, Math.min(start + page, info.last + 1));
		low = start;
		draw();
	}

	function draw() {
		table.show(rows);
		older.disabled = low === undefined || low <= info.first;
		note.textContent = rows.length ? `Positions ${position(rows.at(-1).position)} to ${position(rows[0].position)}${type.value.trim() ? ` that fit; searched down to ${position(low)}` : ""}.`
			: type.value.trim() && low !== undefined ? `Searched down to ${position(low)}.` : "";
	}

	async function open(p) {
		const [e] = (await get(`${where}/events`, {from: p, limit: 1}, view.signal)).events;
		if (!e) throw new Error(`There is no event at position ${p}.`);
		set(detail, h("article.panel", h("header", h("h2", `Event ${position(e.position)}`), h("span.grow"), button("Close", () => set(detail), {kind: "small"})),
			facts([["Type", e.type], ["Time", when(e.time)], ["ID", e.id && h("code", e.id)], ["Origin", e.origin && h("code", e.origin)]]),
			payload("Data", e.data, {base64: true}), e.metadata && payload("Metadata", e.metadata, {base64: true})));
		detail.firstChild.tabIndex = -1;
		detail.firstChild.focus();
		detail.firstChild.scrollIntoView({block: "nearest"});
	}

	const live = liveSwitch(view, {
		start: async () => { await fresh(); return {where: `${where}/events/follow`, query: {from: info.last + 1}}; },
		each: e => {
			info.last = Math.max(info.last, e.position);
			if (!fits(e)) return;
			rows = [slim(e), ...rows].slice(0, most);
			table.prepend(slim(e), most);
			note.textContent = `Up to position ${position(e.position)}; the newest ${most} are kept here.`;
		},
	});
	type.addEventListener("change", () => queued(newest, fresh));
	view.put(head(name, "A log of events.", live.element),
		h("nav.crumbs", {"aria-label": "Path"}, h("a", {href: view.href("logs")}, "Logs"), " / ", h("span", name)),
		about, section("Subscriptions", subscriptions.element),
		section("Events", h("form.tools", {onsubmit: e => {
			e.preventDefault();
			live.stop();
			queued(newest, () => at.value ? from(Number(at.value)) : fresh());
		}}, field("Type contains", type), field("From position", at), h("button.button", {type: "submit"}, "Show"), newest), detail, table.element,
		h("div.tools.below", older, note)));
	const tell = () => {
		set(about, facts([["Events", count(events(info))], ["First", events(info) ? position(info.first) : "–"], ["Last", events(info) ? position(info.last) : "–"],
			["Snapshots", count(info.snapshots?.length ?? 0)]]));
		subscriptions.show(info.subscriptions ?? []);
	};
	if (view.params.get("from")) await from(Number(view.params.get("from")));
	else await fresh();
	if (view.params.get("at")) await open(view.params.get("at"));
	await view.every(3000, async () => {
		const now = await get(where, {}, view.signal);
		info = {...now, last: Math.max(now.last, info.last)};
		tell();
	});
}
