// How the server is doing, from what /v1/server and /v1/metrics say every two seconds.

import {bytes, count, duration, h, head, rate, section, set, when} from "../dom.js";
import {get, send, session} from "../api.js";
import {Spark} from "../chart.js";

const period = 2000, span = 5 * 60 * 1000; // milliseconds

// watch asks the server while the page is seen, whatever the view, so that there is a past to draw.
export const watch = {
	points: [], // {at, server, latency}
	server: undefined,
	listeners: new Set(),
	timer: undefined,
	histograms: undefined,
	start() {
		if (!this.timer) this.turn();
	},
	clear() {
		clearTimeout(this.timer);
		this.timer = undefined;
		this.points = [];
		this.server = undefined;
		this.histograms = this.unmeasured = undefined;
	},
	async turn() {
		this.timer = setTimeout(() => this.turn(), period);
		if (document.hidden || !session.token || this.asking) return;
		this.asking = true;
		try {
			const token = session.token;
			const server = await get("v1/server");
			const latency = await this.metrics();
			if (token !== session.token) return;
			const at = Date.now();
			// A server that was started again counts from 0.
			if (this.server && this.server.started !== server.started) this.points = [];
			this.server = server;
			this.points.push({at, server, latency});
			while (this.points[0].at < at - span) this.points.shift();
			this.failed = undefined;
		} catch (err) {
			this.failed = err;
			if (err.status === 403) this.clear();
		} finally {
			this.asking = false;
		}
		for (const f of this.listeners) f();
	},
	// metrics returns the latency since the last call, if the server measures one.
	async metrics() {
		if (this.unmeasured) return undefined;
		const response = await send("GET", "v1/metrics", {headers: {Accept: "text/plain"}});
		if (!response.ok) {
			this.unmeasured = response.status === 404;
			return undefined;
		}
		const now = histogram(await response.text());
		const before = this.histograms;
		this.histograms = now;
		return now && before && now.name === before.name ? quantiles(before.buckets, now.buckets) : undefined;
	},
};

// The histograms that may be there, the most telling first.
const wanted = [/commit.*_seconds$/, /write.*_seconds$/, /append.*_seconds$/, /request.*_seconds$/, /_seconds$/];

// histogram reads one histogram, summed over its labels, of the Prometheus text format.
export function histogram(text) {
	const found = new Map();
	for (const m of text.matchAll(/^([a-zA-Z_:][\w:]*)_bucket\{([^\n]*)\} ([^\s]+)/gm)) {
		const le = /(?:^|,)le="([^"]+)"/.exec(m[2])?.[1];
		if (le === undefined) continue;
		const buckets = found.get(m[1]) ?? new Map();
		found.set(m[1], buckets);
		const bound = le === "+Inf" ? Infinity : Number(le);
		buckets.set(bound, (buckets.get(bound) ?? 0) + Number(m[3]));
	}
	for (const like of wanted) {
		for (const [name, buckets] of found) {
			if (like.test(name)) return {name, buckets};
		}
	}
}

// quantiles estimates, from two states of a histogram, the median and the 99th percentile between them, in milliseconds.
export function quantiles(before, now) {
	const bounds = [...now.keys()].sort((a, b) => a - b);
	const counts = bounds.map(b => now.get(b) - (before.get(b) ?? 0)); // cumulative
	const total = counts.at(-1);
	if (!(total > 0)) return undefined;
	const at = q => {
		const i = counts.findIndex(c => c >= q * total);
		const low = i > 0 ? bounds[i - 1] : 0, below = i > 0 ? counts[i - 1] : 0;
		const high = Number.isFinite(bounds[i]) ? bounds[i] : low;
		return (low + (high - low) * (q * total - below) / (counts[i] - below || 1)) * 1000;
	};
	return {p50: at(0.5), p99: at(0.99)};
}

// rates makes a rate a second of a counter between each two points.
function rates(points, name) {
	const list = [];
	for (let i = 1; i < points.length; i++) {
		const a = points[i - 1], b = points[i];
		const from = a.server.counters[name], to = b.server.counters[name];
		list.push({at: b.at, value: from < 0 || to < 0 || to < from ? NaN : (to - from) / (b.at - a.at) * 1000});
	}
	return list;
}

// ratios makes commits for each sync between each two points.
function ratios(points) {
	const commits = rates(points, "commits"), syncs = rates(points, "syncs");
	return commits.map((c, i) => ({at: c.at, value: syncs[i].value > 0 ? c.value / syncs[i].value : NaN}));
}

const tiles = [
	{id: "commits", name: "Commits", unit: "/s", values: p => rates(p, "commits"), write: rate, more: s => `${count(s.counters.commits)} since it started`},
	{id: "syncs", name: "Syncs", unit: "/s", values: p => rates(p, "syncs"), write: rate, more: s => `${count(s.counters.syncs)} since it started`},
	{id: "group", name: "Commits a sync", unit: "", values: p => ratios(p), write: rate, more: () => "how many share one sync"},
	{id: "written", name: "Written", unit: "/s", values: p => rates(p, "bytes_written"), write: bytes, more: s => `${bytes(s.counters.bytes_written)} in all`},
	{id: "latency", name: "Latency, p99", unit: "", values: p => p.map(x => ({at: x.at, value: x.latency?.p99 ?? NaN})), write: duration,
		more: (s, p) => p.at(-1)?.latency ? `median ${duration(p.at(-1).latency.p50)}, of ${what()}` : watch.histograms ? "none just now" : "not measured by this server"},
	{id: "disk", name: "Disk", unit: "", values: p => p.map(x => ({at: x.at, value: known(x.server.counters.disk_bytes)})), write: bytes,
		more: s => s.counters.files >= 0 ? `${count(s.counters.files)} files` : ""},
	{id: "memory", name: "Memory of the engine", unit: "", values: p => p.map(x => ({at: x.at, value: known(x.server.counters.memory_bytes)})), write: bytes,
		more: () => "caches and write buffers"},
	{id: "stalls", name: "Stalls", unit: "/s", values: p => rates(p, "stalls"), write: rate, more: s => s.counters.stalls >= 0
		? `writers waited ${count(s.counters.stalls)} times` : "this engine does not tell"},
];

const known = n => n >= 0 ? n : NaN;
const what = () => /request/.test(watch.histograms?.name ?? "") ? "requests" : "commits";

const levels = {
	memory: "the program’s memory: they die with it",
	process: "the operating system: they survive the end of the program, and may die with the machine",
	power: "the disk: they survive power loss",
	quorum: "the disks of several machines: they survive the loss of any one, and power loss",
};

export async function overview(view) {
	const state = h("div.state", {role: "status"}), crash = h("div.crash"), about = h("div");
	const grid = h("div.tiles"), sparks = {};
	for (const t of tiles) {
		const spark = new Spark(t.name, v => t.write(v) + t.unit);
		sparks[t.id] = {spark, value: h("span.value"), more: h("p.dim.small")};
		sparks[t.id].tile = h("article.tile", {"data-tile": t.id, "aria-label": t.name}, h("h2", t.name),
			h("p.figure", sparks[t.id].value, t.unit && h("span.unit", t.unit)), spark.element, sparks[t.id].more);
		grid.append(sparks[t.id].tile);
	}
	view.put(head("Overview", "What the server has done in the last minutes, and what a crash would take now."), state, crash, grid, about);

	const draw = () => {
		const s = watch.server;
		if (!s) {
			if (watch.failed) {
				const err = watch.failed;
				set(state, h("span.dot.bad"), h("div", h("p.strong", err.title), h("p", err.message)));
			} else set(state, h("span.dot"), h("p.dim", "Asking the server …"));
			return;
		}
		// What was true when the server last answered may not be any more.
		const lost = watch.failed !== undefined;
		for (const element of [grid, about]) element.classList.toggle("stale", lost);
		const kind = lost || !s.ready ? "bad" : s.trouble ? "warn" : "good";
		if (lost) {
			const then = when(new Date(watch.points.at(-1).at).toISOString());
			set(state, h("span.dot.bad"), h("div", h("p.strong", watch.failed.title), h("p", "How it is doing is not known. What is shown here was so ", then, ".")));
			set(crash, risk("If the program were killed now", ["warn", "Not known", "The server does not answer."]),
				risk("If the power failed now", ["warn", "Not known", "The server does not answer."]));
			state.sign = crash.sign = undefined;
		} else change(state, [kind, s.trouble, s.level, s.ready], () => [h(`span.dot.${kind}`), h("div",
			h("p.strong", !s.ready ? "Not ready" : s.trouble ? "Working, with trouble" : "Ready"),
			h("p", s.trouble ? s.trouble : !s.ready ? "It starts or stops, or its engine has failed; the server’s log says more."
				: `Acknowledged writes have reached ${levels[s.level] ?? s.level}.`)),
		h("span.grow"), levelMark(s.level)]);
		if (!lost) change(crash, [s.unsynced, s.level, s.loss_window_ms], () => [risk("If the program were killed now", s.level === "memory" ? ["warn",
			"Writes at Memory would be lost", "All that was acknowledged at Process or above stays."] : ["good", "Nothing at Process or above would be lost",
			"Only what a writer has asked to have at Memory could be."]),
		risk("If the power failed now", s.unsynced ? ["warn", `Up to ${s.loss_window_ms > 0 ? duration(s.loss_window_ms) : "a moment"} of writes would be lost`,
			"Those acknowledged below Power since the last sync. What was acknowledged at Power or Quorum stays."]
			: ["good", "Nothing at Power or above would be lost",
				"Only what a writer has asked to have below Power, since the last sync, could be."])]);
		const to = Date.now(), from = Math.max(to - span, Math.min(watch.points[0].at + period, to - 60_000));
		for (const t of tiles) {
			const values = t.values(watch.points);
			const last = values.at(-1)?.value;
			sparks[t.id].value.textContent = t.write(last ?? NaN);
			sparks[t.id].more.textContent = t.more(s, watch.points) || "\u00a0";
			sparks[t.id].spark.show(values, from, to);
			if (t.id === "latency") sparks[t.id].tile.hidden = watch.unmeasured === true;
		}
		change(about, [s.version, s.engine, s.started, s.namespaces], () => [section("This server", h("dl.facts", [
			["Version", s.version], ["Engine", h("a", {href: view.href("engine")}, s.engine)], ["Level of writes that name none", s.level],
			["Started", when(s.started)], ["Namespaces", h("a", {href: view.href("access")}, count(s.namespaces))],
		].map(([n, v]) => h("div", h("dt", n), h("dd", v)))))]);
	};
	watch.listeners.add(draw);
	view.signal.addEventListener("abort", () => watch.listeners.delete(draw));
	draw();
	watch.start();
}

// change fills an element anew only if what it says has changed.
function change(element, of, f) {
	const sign = JSON.stringify(of);
	if (element.sign === sign) return;
	element.sign = sign;
	set(element, f());
}

function risk(title, [kind, verdict, why]) {
	return h(`article.risk.${kind}`, h("h2", title), h("p.verdict", h(`span.dot.${kind}`), verdict), h("p.dim", why));
}

// levelMark draws the level as steps.
export function levelMark(level) {
	const n = ["memory", "process", "power", "quorum"].indexOf(level);
	return h("span.level", {title: `Writes that name no level are made at ${level}`}, h("span.steps", {"aria-hidden": "true"}, [0, 1, 2, 3].map(i => h(i <= n ? "i.on" : "i"))),
		level ? level[0].toUpperCase() + level.slice(1) : "–");
}
