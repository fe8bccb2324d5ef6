// Consumer groups: subscriptions whose members acknowledge messages, how far they are, and what they have parked.

import {Table, busy, button, chip, confirm, count, duration, empty, facts, field, h, head, payload, position, say, section, set, toast, when} from "../dom.js";
import {del, get, may, post, within} from "../api.js";

const page = 50;

export async function groups(view) {
	return view.args.length ? one(view, view.args[0]) : list(view);
}

const of = s => s.category ? `category ${s.category}` : "all messages";
const lag = s => s.behind === 0 ? chip("up to date", "good") : chip(`${count(s.behind)} behind`, s.behind > 1000 ? "warn" : "");

async function list(view) {
	const table = new Table({
		label: "Consumer groups", key: s => s.name, open: s => view.go("groups", [s.name]), columns: [
			{name: "Group", cell: s => h("a", {href: view.href("groups", [s.name])}, s.name)},
			{name: "Reads", class: "wide", cell: s => of(s)},
			{name: "Done up to", class: "number wide", cell: s => position(s.done)},
			{name: "Lag", class: "number", cell: lag},
			{name: "Pending", class: "number", cell: s => count(s.pending)},
			{name: "Parked", class: "number", cell: s => s.parked ? chip(count(s.parked), "bad") : "0"},
		],
		none: () => empty("There are no consumer groups in this namespace yet.", h("p.dim", "A group is made with PUT ",
			h("code", `/v1/namespaces/${view.namespace}/subscriptions/NAME`), "; its members claim messages and acknowledge them. You can try it under ",
			h("a", {href: view.href("operations")}, "API"), ".")),
	});
	const search = h("input", {type: "search", "data-search": true, placeholder: "Name", oninput: () => draw()});
	let all = [];
	const draw = () => table.show(all.filter(s => s.name.includes(search.value.trim())).slice(0, 1000));
	view.put(head("Consumer groups", "Each message goes to one member, again and again until one acknowledges it. What fails too often is parked."),
		h("div.tools", field("Find", search)), table.element);
	await view.every(2000, async () => {
		all = await get(within(view.namespace, "subscriptions"), {}, view.signal);
		draw();
	});
}

async function one(view, name) {
	view.title(name);
	const where = within(view.namespace, "subscriptions", name), writes = may("write", view.namespace);
	const about = h("div"), chosen = new Set(), note = h("p.dim.small", {role: "status"});
	let after = 0, shown = [];
	const all = h("input", {type: "checkbox", "aria-label": "Choose all that are shown", onchange: () => {
		for (const m of shown) all.checked ? chosen.add(m.global) : chosen.delete(m.global);
		draw();
	}});
	const boxes = new Map();
	const table = new Table({
		label: "Parked messages", key: m => m.global, open: m => open(m).catch(err => toast(say(err), "bad")), columns: [
			...writes ? [{label: "Chosen", cell: m => {
				const box = h("input", {type: "checkbox", checked: chosen.has(m.global), "aria-label": `Choose message ${m.global}`,
					onchange: () => { box.checked ? chosen.add(m.global) : chosen.delete(m.global); draw(); }});
				boxes.set(m.global, box);
				return box;
			}}] : [],
			{name: "Global", class: "number", cell: m => h("a", {href: view.href("messages", ["message", m.global])}, position(m.global))},
			{name: "Stream", class: "wide", cell: m => m.stream}, {name: "Type", cell: m => h("span.type", m.type)},
			{name: "Attempts", class: "number wide", cell: m => count(m.attempts)},
			{name: "Reason", class: "fill", cell: m => h("span.glance", m.reason || "–")},
			{name: "Parked", class: "time wide", cell: m => when(m.at)},
		],
		none: () => empty("Nothing is parked.", "Messages come here when a member parks them, or when their attempts are used up."),
	});
	const act = async (button_, what, globals) => busy(button_, async () => {
		if (what === "discard" && !await confirm({title: "Discard parked messages?", action: `Discard ${count(globals.length)}`,
			text: `This group will not get ${globals.length === 1 ? "this message" : `these ${count(globals.length)} messages`} any more. In their streams they stay.`})) return;
		const {count: n} = await post(`${where}/${what}`, {globals});
		toast(what === "replay" ? `${count(n)} will be delivered again` : `${count(n)} discarded`);
		for (const g of globals) chosen.delete(g);
		await load();
	});
	const replay = button("Replay", () => act(replay, "replay", [...chosen]), {kind: "primary"});
	const discard = button("Discard …", () => act(discard, "discard", [...chosen]), {kind: "danger"});
	const more = button("More", () => busy(more, async () => { after = shown.at(-1).global; await load(); })), first = button("From the start", () => { after = 0; return busy(first, load); });
	const detail = h("div.detail", {"aria-live": "polite"});

	async function open({global}) {
		const [m] = await get(`${where}/parked`, {after: global - 1, limit: 1}, view.signal);
		if (m?.global !== global) return load(); // it is not parked any more
		set(detail, h("article.panel", {tabindex: "-1"}, h("header", h("h2", `Parked: ${m.type}`), h("span.grow"), button("Close", () => set(detail), {kind: "small"})),
			facts([["Stream", m.stream], ["Position", position(m.position)], ["Attempts", count(m.attempts)], ["Parked", when(m.at)], ["Reason", m.reason]]),
			payload("Data", m.data), m.metadata && payload("Metadata", m.metadata)));
		detail.firstChild.focus();
	}

	async function load() {
		const list = await get(`${where}/parked`, {after: after || undefined, limit: page}, view.signal);
		shown = list.map(({data, metadata, ...m}) => ({...m, reason: m.reason.slice(0, 200)}));
		table.show(shown);
		draw();
	}

	function draw() {
		for (const [g, box] of boxes) box.checked = chosen.has(g);
		all.checked = shown.length > 0 && shown.every(m => chosen.has(m.global));
		all.indeterminate = !all.checked && shown.some(m => chosen.has(m.global));
		replay.disabled = discard.disabled = chosen.size === 0;
		more.disabled = shown.length < page;
		first.disabled = after === 0;
		note.textContent = chosen.size ? `${count(chosen.size)} chosen` : "";
	}

	const remove = may("write", view.namespace) && button("Delete …", () => busy(remove, async () => {
		if (!await confirm({title: `Delete ${name}?`, text: "The group forgets how far it was, and what it has parked. Messages stay in their streams.", action: "Delete", typed: name})) return;
		await del(where);
		toast(`${name} deleted`);
		view.go("groups");
	}), {kind: "danger"});
	view.put(head(name, "A consumer group.", remove), h("nav.crumbs", {"aria-label": "Path"}, h("a", {href: view.href("groups")}, "Consumer groups"), " / ", h("span", name)), about,
		section("Parked messages", writes && h("div.tools", h("label.check", all, "All shown"), replay, discard, note), detail, table.element, h("div.tools.below", first, more)));
	let parked = -1;
	await view.every(2000, async () => {
		const s = await get(where, {}, view.signal);
		set(about, facts([["Reads", of(s)], ["Types", s.types?.join(", ") || "all"], s.prefix && ["Streams that begin with", s.prefix], ["Lag", lag(s)], ["Done up to", position(s.done)],
			["Pending", count(s.pending)], ["Parked", count(s.parked)], ["Lease", s.lease_ms ? duration(s.lease_ms) : "usual"],
			["Attempts at most", s.max_attempts ? count(s.max_attempts) : "usual"], ["Window", s.window ? count(s.window) : "usual"]]));
		if (s.parked !== parked) {
			parked = s.parked;
			await load();
		}
	});
}
