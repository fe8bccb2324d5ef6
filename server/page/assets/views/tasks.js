// Tasks: queues and how they are doing, the tasks of one, one task.

import {Table, busy, button, chip, confirm, count, duration, empty, facts, field, h, head, isTime, payload, section, set, toast, when} from "../dom.js";
import {del, get, may, post, within} from "../api.js";
import {bar} from "../chart.js";

const states = ["waiting", "scheduled", "blocked", "running", "completed", "cancelled", "dead"];
const page = 50;

export async function tasks(view) {
	if (view.args[0] === "task") return one(view, view.args[1]);
	if (view.args[0] === "list") return list(view);
	return queues(view);
}

const kinds = {running: "accent", completed: "good", dead: "bad", cancelled: "", waiting: "", scheduled: "", blocked: ""};
const stateChip = s => chip(s, kinds[s] ?? "");
const total = q => Object.values(q.counts ?? {}).reduce((a, b) => a + b, 0);
const of = (q, s) => q.counts?.[s] ?? 0;

function limits(o = {}) {
	const per = (n, ms) => `${count(n)} in ${duration(ms)}`;
	return [o.concurrency && `${count(o.concurrency)} at once`, o.rate_n && per(o.rate_n, o.rate_per_ms), o.key_concurrency && `${count(o.key_concurrency)} at once a key`,
		o.key_rate_n && `${per(o.key_rate_n, o.key_rate_per_ms)} a key`].filter(Boolean).join(", ") || "none";
}

// controls are what can be done with a queue.
function controls(view, q, after) {
	if (!may("write", view.namespace)) return [];
	const where = within(view.namespace, "queues", q.name);
	const pause = button(q.paused ? "Resume" : "Pause", () => busy(pause, async () => {
		await post(`${where}/${q.paused ? "resume" : "pause"}`);
		toast(q.paused ? `${q.name} goes on` : `${q.name} is paused; what runs goes on to its end`);
		await after();
	}), {kind: "small", "aria-label": `${q.paused ? "Resume" : "Pause"} ${q.name}`});
	const retry = of(q, "dead") > 0 && button("Retry dead", () => busy(retry, async () => {
		const {count: n} = await post(`${where}/retry`);
		toast(`${count(n)} dead ${n === 1 ? "task is" : "tasks are"} tried again`);
		await after();
	}), {kind: "small", "aria-label": `Retry all dead tasks of ${q.name}`});
	return [retry, pause];
}

async function queues(view) {
	const table = new Table({
		label: "Queues", key: q => q.name, open: q => view.go("tasks", ["list"], {queue: q.name}), columns: [
			{name: "Queue", cell: q => h("span", h("a", {href: view.href("tasks", ["list"], {queue: q.name})}, q.name), q.paused && [" ", chip("paused", "warn")])},
			{name: "Progress", class: "fill", cell: q => progress(q)},
			...["waiting", "running", "dead"].map(s => ({name: s[0].toUpperCase() + s.slice(1), class: "number", cell: q => number(q, s)})),
			...["scheduled", "blocked", "completed", "cancelled"].map(s => ({name: s[0].toUpperCase() + s.slice(1), class: "number wide", cell: q => number(q, s)})),
			{label: "Actions", class: "do", cell: q => h("div.row", controls(view, q, load))},
		],
		none: () => empty("There are no queues in this namespace yet.", h("p.dim", "A queue is there as soon as a task is: POST ", h("code", `/v1/namespaces/${view.namespace}/tasks`),
			". You can try it under ", h("a", {href: view.href("operations")}, "API"), ".")),
	});
	const number = (q, s) => of(q, s) ? h("a", {class: s === "dead" ? "bad" : null, href: view.href("tasks", ["list"], {queue: q.name, state: s})}, count(of(q, s))) : h("span.dim", "0");
	const search = h("input", {type: "search", "data-search": true, placeholder: "Name", oninput: () => draw()});
	const id = h("input", {type: "text", placeholder: "Task id", autocomplete: "off", spellcheck: "false"});
	// Periodic tasks are added by programs; there is nothing to do with them here.
	const periodic = new Table({
		label: "Periodic tasks", key: p => p.name, columns: [
			{name: "Periodic task", cell: p => p.name},
			{name: "Last tick", class: "time", cell: p => when(p.last)},
			{name: "Next tick", class: "time", cell: p => when(p.next)},
			{name: "Refused", class: "number", cell: p => h(p.refused ? "span.bad" : "span.dim", count(p.refused))},
		],
	});
	const ticks = section("Periodic tasks", periodic.element);
	let all = [];
	const draw = () => table.show(all.filter(q => q.name.includes(search.value.trim())).slice(0, 1000));
	async function load() {
		const [queues, list] = await Promise.all([get(within(view.namespace, "queues"), {}, view.signal),
			get(within(view.namespace, "periodic"), {}, view.signal)]);
		all = queues;
		draw();
		periodic.show(list);
		ticks.hidden = list.length === 0;
	}
	view.put(head("Tasks", "Queues of tasks that are claimed under a lease and tried again when they fail.", h("a.button", {href: view.href("tasks", ["list"])}, "All tasks")),
		h("form.tools", {onsubmit: e => {
			e.preventDefault();
			if (id.value.trim()) view.go("tasks", ["task", id.value.trim()]);
		}}, field("Find a queue", search), field("Open a task", id), h("button.button", {type: "submit"}, "Open")), table.element, legend(), ticks);
	await view.every(2000, load);
}

const legend = () => h("p.legend", {"aria-hidden": "true"}, states.map(s => h("span", h(`i.s-${s}`), s)));

function progress(q) {
	const n = total(q), done = of(q, "completed") + of(q, "cancelled");
	return h("div.progress", bar(states.map(s => ({name: s, kind: s, value: of(q, s)})), `${count(n)} tasks, ${count(done)} of them done`),
		h("span.small.dim", n ? `${Math.floor(done / n * 100)} % done` : "empty"));
}

async function list(view) {
	const queue = view.params.get("queue") ?? "", state = view.params.get("state") ?? "", cursor = view.params.get("cursor") ?? "";
	const title = queue || "All tasks";
	view.title(title);
	const table = new Table({
		label: "Tasks", key: t => t.id, open: t => view.go("tasks", ["task", t.id]), columns: [
			{name: "Task", cell: t => h("a.mono", {href: view.href("tasks", ["task", t.id])}, t.id)},
			{name: "Kind", cell: t => h("span.type", t.kind)},
			...queue ? [] : [{name: "Queue", class: "wide", cell: t => t.queue}],
			{name: "State", cell: t => stateChip(t.state)},
			{name: "Attempt", class: "number wide", cell: t => count(t.attempt)},
			{name: "Created", class: "time wide", cell: t => when(t.created)},
			{name: "Due or ended", class: "time wide", cell: t => when(isTime(t.finished) ? t.finished : t.due)},
			{name: "Last failure", class: "fill wide", cell: t => h("span.glance", t.failure)},
		],
		none: () => empty(state ? `No task is ${state}${queue ? ` in ${queue}` : ""}.` : "No tasks here.", state || queue ? "Choose another state or queue." : "Enqueue one to see it here."),
	});
	const about = h("div"), tabs = h("nav.tabs", {"aria-label": "States"});
	const nav = counts => set(tabs, ["", ...states].map(s => h("a", {href: view.href("tasks", ["list"], {queue, state: s}), "aria-current": s === state ? "page" : null},
		s || "all", counts && h("span.count", count(s ? counts[s] ?? 0 : Object.values(counts).reduce((a, b) => a + b, 0))))));
	nav();
	const next = h("a.button", {hidden: true}, "Next page"), start = h("a.button", {href: view.href("tasks", ["list"], {queue, state}), hidden: !cursor}, "First page");
	const actions = h("div.row");
	async function load() {
		const [answer, q] = await Promise.all([get(within(view.namespace, "tasks"), {queue, state, cursor, limit: page}, view.signal),
			queue ? get(within(view.namespace, "queues", queue), {}, view.signal).catch(err => { if (err.status !== 404) throw err; }) : undefined]);
		table.show(answer.tasks.map(t => ({id: t.id, kind: t.kind, queue: t.queue, state: t.state, attempt: t.attempt, created: t.created, due: t.due, finished: t.finished,
			failure: t.failures?.at(-1)?.message?.slice(0, 160) ?? ""})));
		next.hidden = !answer.next;
		next.href = view.href("tasks", ["list"], {queue, state, cursor: answer.next});
		if (!q) return;
		nav(q.counts);
		const sign = JSON.stringify([q.paused, of(q, "dead") > 0]);
		if (actions.sign !== sign) {
			actions.sign = sign;
			set(actions, q.paused && chip("paused", "warn"), controls(view, q, load));
		}
		set(about, progress(q), facts([["Limits", limits(q.options)], ["Finished tasks are kept", keep(q.options.keep_ms)], ["Dead tasks are kept", q.options.keep_dead_ms ? keep(q.options.keep_dead_ms) : "until retried or deleted"]]));
	}
	view.put(head(title, queue ? "A queue of tasks." : "The tasks of all queues.", actions), h("nav.crumbs", {"aria-label": "Path"}, h("a", {href: view.href("tasks")}, "Tasks"), " / ", h("span", title)),
		about, tabs, table.element, h("div.tools.below", start, next));
	await view.every(2000, load);
}

const keep = ms => !ms ? "as usual" : ms < 0 ? "not at all" : duration(ms);

async function one(view, id) {
	view.title(`Task ${id}`);
	const where = within(view.namespace, "tasks", id), writes = may("write", view.namespace);
	const body = h("div"), actions = h("div.row");
	let sign = "";
	async function load() {
		const t = await get(where, {}, view.signal);
		const now = JSON.stringify(t);
		if (now === sign) return;
		sign = now;
		const finished = ["completed", "cancelled", "dead"].includes(t.state);
		const act = (text, what, done, more) => {
			const b = button(text, () => busy(b, async () => {
				await post(`${where}/${what}`);
				toast(done);
				await load();
			}), more);
			return b;
		};
		const remove = button("Delete …", () => busy(remove, async () => {
			if (!await confirm({title: "Delete this task?", text: `${t.kind} ${t.id} is removed with its payload and output. Tasks that wait for it are cancelled.`, action: "Delete"})) return;
			await del(where);
			toast("Task deleted");
			view.go("tasks", ["list"], {queue: t.queue});
		}), {kind: "danger"});
		set(actions, writes && [(t.state === "dead" || t.state === "cancelled") && act("Retry", "retry", "It will be tried again", {kind: "primary"}),
			!finished && act("Cancel", "cancel", t.state === "running" ? "Its worker is told to give up" : "Task cancelled"), t.state !== "running" && remove]);
		set(body, facts([["State", stateChip(t.state)], ["Kind", t.kind], ["Queue", h("a", {href: view.href("tasks", ["list"], {queue: t.queue})}, t.queue)],
			["Attempt", `${count(t.attempt)} of ${t.max_attempts ? count(t.max_attempts) : "usual"}`], ["Created", when(t.created)],
			isTime(t.due) && !finished && ["Due", when(t.due)], isTime(t.started) && ["Started", when(t.started)], isTime(t.finished) && ["Finished", when(t.finished)],
			t.worker && ["Worker", t.worker], t.state === "running" && ["Lease until", when(t.lease_until)], ["Priority", String(t.priority ?? 0)], t.key && ["Key", t.key],
			t.sequence && ["Sequence", t.sequence], t.unique && ["Unique", t.unique],
			t.after?.length > 0 && ["After", t.after.slice(0, 20).map(a => [h("a.mono", {href: view.href("tasks", ["task", a])}, a), " "])]]),
		payload("Payload", t.payload ?? "", {base64: true}), t.output && payload("Output", t.output, {base64: true}),
		section("Failures", t.failures?.length ? h("ol.failures", {reversed: true}, t.failures.slice().reverse().map(f => h("li.panel", h("header", h("span.strong", f.attempt ? `Attempt ${f.attempt}` : "Failure"),
			h("span.grow"), when(f.time)), h("p.message", f.message || "–"), f.stack && h("details", h("summary", "Stack"), h("pre", {tabindex: "0"}, f.stack))))) : h("p.dim", "None.")));
	}
	view.put(head(h("span.mono", id), "A task.", actions), h("nav.crumbs", {"aria-label": "Path"}, h("a", {href: view.href("tasks")}, "Tasks"), " / ", h("span.mono", id)), body);
	await view.every(2000, load);
}
