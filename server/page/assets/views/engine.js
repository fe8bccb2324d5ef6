// The engine: its settings and caveats, what it counts, verification, compaction, backups.

import {busy, button, bytes, count, duration, empty, h, head, problem, save, section, set, toast} from "../dom.js";
import {failure, get, may, post, send} from "../api.js";
import {levelMark} from "./overview.js";

export async function engine(view) {
	let s;
	const known = await get("openapi.json", {}, view.signal), has = where => known.paths?.[where] !== undefined;
	const counters = h("tbody"), writes = may("admin");
	const title = h("span");
	const draw = () => {
		const c = s.counters;
		const rows = [["Commits", count(c.commits), "batches applied"], ["Groups", count(c.groups), "transactions they were merged into"], ["Syncs", count(c.syncs), "times the disk was asked to keep what was written"],
			["Written", bytes(c.bytes_written), "bytes given to the operating system"], ["On disk", bytes(c.disk_bytes), `in ${count(c.files)} files`],
			["In memory", bytes(c.memory_bytes), "caches and write buffers"], ["Stalls", count(c.stalls), "times a writer waited for background work"]];
		if (c.standbys_needed > 0) rows.push(["Standbys", count(c.standbys), `machines that keep up; a commit waits for ${count(c.standbys_needed)}`]);
		const b = s.backup;
		if (b) rows.push(["Backup", duration(b.lag_ms), b.trouble ? `behind, which the loss of the machine would cost: ${b.trouble}` : `behind; ${count(b.objects)} objects, ${bytes(b.bytes)} uploaded`]);
		set(counters, rows.map(([n, v, why]) => h("tr", h("th", {scope: "row"}, n), h("td.number", v), h("td.dim.wide", why))));
	};
	const trouble = h("div");
	const result = h("div", {role: "status"});
	const verify = button("Verify now", () => busy(verify, async () => {
		set(result, h("p.dim", "Reads everything, and checks every checksum; writers go on meanwhile …"));
		const started = Date.now();
		try {
			const v = await post("v1/server/verify", undefined, view.signal);
			const ok = v.problems.length === 0;
			set(result, h(`div.verdict.${ok ? "good" : "bad"}`, h("p.strong", h(`span.dot.${ok ? "good" : "bad"}`), ok ? "All is intact" : `${count(v.problems.length)} problems`),
				h("p.dim", `${count(v.keys)} keys, ${bytes(v.bytes)}, in ${duration(Date.now() - started)}`), !ok && h("ul.problems", v.problems.slice(0, 200).map(p => h("li", p)))));
		} catch (err) {
			set(result, err.name === "AbortError" ? [] : problem(err));
		}
	}), {kind: "primary"});
	const compact = button("Compact", () => busy(compact, async () => {
		const before = s.counters.disk_bytes;
		await post("v1/server/compact", undefined, view.signal);
		await load();
		toast(`Compacted: ${bytes(before)} before, ${bytes(s.counters.disk_bytes)} now`);
	}));
	const loaded = h("div", {role: "status"}), processes = h("div");
	const backup = button("Download a backup", () => download(view, backup, loaded));

	async function load() {
		s = await get("v1/server", {}, view.signal);
		draw();
		if (has("/v1/nodes")) set(processes, nodes(await get("v1/nodes", {}, view.signal)));
		set(trouble, s.trouble && h("div.problem", {role: "alert"}, h("p.strong", "Trouble"), h("p", s.trouble)));
	}
	view.put(head("Engine", title, writes && has("/v1/server/compact") && compact), trouble,
		h("div.columns", section("Counters", h("div.scroll", {}, h("table", {"aria-label": "Counters"}, counters))),
			section("Check and keep", writes ? h("div.stack", h("div", h("p.dim", "A verification reads all keys and checks what the engine can check."), h("p", verify), result),
				h("div", h("p.dim", "A backup is a copy of a moment, taken while others write; unpacked, it opens like any directory."), h("p", backup), loaded))
				: empty("Verifications and backups need the role admin for all namespaces."))));
	view.root.append(processes);
	await load();
	set(title, s.engine, " ", levelMark(s.level));
	view.root.append(section("Caveats", s.caveats?.length ? h("ul.caveats", s.caveats.map(c => h("li", c))) : h("p.dim", "This engine names none.")),
		section("Settings, as the engine reads them back", s.settings?.length ? h("div.scroll", {}, h("table", {"aria-label": "Settings"}, h("thead", h("tr", h("th", {scope: "col"}, "Setting"), h("th", {scope: "col"}, "Value"))),
			h("tbody", s.settings.map(x => h("tr", h("td", x.name), h("td.mono", x.value)))))) : h("p.dim", "This engine tells none.")));
	await view.every(2000, load);
}

// nodes shows the processes that are one server, and who owns what; nothing if there is one process.
function nodes(n) {
	if (n.nodes.length === 0) return [];
	const table = (name, heads, rows) => h("div.scroll", {}, h("table", {"aria-label": name}, h("thead", h("tr", heads.map(x => h("th", {scope: "col"}, x)))), h("tbody", rows)));
	const several = n.clusters.length > 1, unseen = c => c.seenMs > 5000 ? `not seen for ${duration(c.seenMs)}` : c.trouble;
	const absent = p => n.clusters.filter(c => !unseen(c) && !p.clusters.includes(c.cluster)).map(c => count(c.cluster)).join(", ");
	const standbys = x => x.standbysNeeded > 0 ? `${count(x.standbys)}, ${count(x.standbysNeeded)} needed` : "";
	return [section("Processes", table("Processes", ["Process", "Version", "Spaces", ""], n.nodes.map(p => h("tr", h("td.mono", p.address), h("td", p.version), h("td.number", count(p.spaces)),
		h("td", h(`span.dot.${p.alive ? "good" : "bad"}`), p.alive ? " alive" : " gives no sign of life", p.alive && absent(p) && `, but not in cluster ${absent(p)}`, p.address === n.self && ", says this")))),
	n.clusters.filter(c => unseen(c)).map(c => h("p.problem", {role: "alert"}, several ? `Cluster ${c.cluster} of PostgreSQL: ${unseen(c)}.` : `PostgreSQL: ${unseen(c)}.`))),
	several && section("Clusters", table("Clusters", ["Cluster", "Address", "Spaces", "Processes", ""], n.clusters.map(c => h("tr", h("td.number", count(c.cluster)), h("td.mono", c.address), h("td.number", count(c.spaces)), h("td.number", count(c.alive)),
		h("td", h(`span.dot.${unseen(c) ? "bad" : "good"}`), ` ${unseen(c) || (c.spaces > 0 ? "seen" : "not used before all processes have it")}`))))),
	section("Spaces", table("Spaces", ["Space", several && "Cluster", "Owner", "Machine", "Epoch", "Transactions", "Standbys", "Behind", ""].filter(Boolean), n.spaces.map(x => h("tr", h("td.number", count(x.space)), several && h("td.number", count(x.cluster)), h("td.mono", x.owner || "nobody"), h("td", x.host),
		h("td.number", count(x.epoch)), h("td.number", count(x.transactions)), h("td", x.standbysNeeded > 0 && x.standbys < x.standbysNeeded && h("span.dot.bad"), " ", standbys(x)), h("td.number", x.standbysNeeded > 0 && bytes(x.standbyLag)), h("td", x.free && h("span.dot.bad"), x.stillMs > 0 && ` nothing heard for ${duration(x.stillMs)}`)))))].filter(Boolean);
}

// download streams a backup into a file that the user chooses, where the browser can do that; elsewhere it collects it first.
async function download(view, b, out) {
	const controller = new AbortController();
	view.signal.addEventListener("abort", () => controller.abort());
	const name = `holdfast-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.tar`;
	let file;
	if (globalThis.showSaveFilePicker) {
		try {
			file = await showSaveFilePicker({suggestedName: name, types: [{accept: {"application/x-tar": [".tar"]}}]});
		} catch (err) {
			if (err.name === "AbortError") return;
		}
	}
	b.disabled = true;
	const told = h("span", "Asking …");
	set(out, h("p", told, " ", button("Stop", () => controller.abort(), {kind: "small"})));
	try {
		const response = await send("GET", "v1/server/backup", {signal: controller.signal});
		if (!response.ok) throw await failure(response);
		let n = 0, at = 0;
		const counted = response.body.pipeThrough(new TransformStream({transform(chunk, c) {
			n += chunk.length;
			if (Date.now() - at > 200) {
				at = Date.now();
				told.textContent = `${bytes(n)} …`;
			}
			c.enqueue(chunk);
		}}));
		if (file) await counted.pipeTo(await file.createWritable(), {signal: controller.signal});
		else save(name, await new Response(counted).blob());
		set(out, h("p", h("span.dot.good"), ` ${bytes(n)} in ${file ? file.name : name}`));
	} catch (err) {
		set(out, controller.signal.aborted ? h("p.dim", "Stopped; there is no backup.") : problem(Object.assign(err, {title: "There is no backup"})));
	} finally {
		b.disabled = false;
	}
}
