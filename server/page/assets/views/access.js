// Namespaces and tokens: what there is, making and removing them. A secret is shown once.

import {Table, busy, button, chip, confirm, copy, count, dialog, empty, field, h, head, problem, section, set, toast, when} from "../dom.js";
import {del, everyNamespace, get, may, post, session} from "../api.js";

export async function access(view) {
	const everywhere = session.info.namespace === "*";
	view.put(head("Namespaces and tokens", everywhere ? "A namespace has its own messages, logs and tasks. A token is good for one of them, or for all."
		: `This token is good for the namespace ${session.info.namespace}.`));
	const parts = [];
	if (everywhere && may("admin")) parts.push(await namespaces(view));
	else {
		const n = await get(`v1/namespaces/${encodeURIComponent(view.namespace)}`, {}, view.signal);
		view.root.append(section(`Namespace ${n.id}`, h("p", n.description || h("span.dim", "No description.")),
			h("p.dim", `${count(n.messages)} messages in ${count(n.streams)} streams, made `, when(n.created))));
	}
	if (may("admin", session.info.namespace)) parts.push(await tokens(view, everywhere));
	else view.root.append(section("Tokens", empty("Tokens are shown to administrators.", `This token has the role “${session.info.role}”.`)));
	for (const p of parts) view.root.append(p);
}

// secret shows a token that has just been made.
function secret(title, text, of) {
	return dialog(title, close => {
		const input = h("textarea.mono.secret", {rows: "3", readOnly: true, value: text, "data-secret": true, onfocus: () => input.select(), "data-focus": true});
		return h("div", h("p", "Keep it now: it is shown this once, and the server keeps only its hash."), field(of, input),
			h("div.actions", button("Copy", () => copy(text)), button("I have kept it", () => close(true), {kind: "primary"})));
	}, {hold: true});
}

// form is a dialog that does something and closes if that succeeds.
function form(title, action, fields, submit) {
	return dialog(title, close => {
		const message = h("div"), go = h("button.button.primary", {type: "submit"}, action);
		return h("form", {onsubmit: async e => {
			e.preventDefault();
			go.disabled = true;
			set(message);
			try {
				close(await submit());
			} catch (err) {
				set(message, problem(err));
			} finally {
				go.disabled = false;
			}
		}}, fields, message, h("div.actions", button("Cancel", () => close()), go));
	});
}

async function namespaces(view) {
	const table = new Table({
		label: "Namespaces", key: n => n.id, open: n => view.go("messages", [], {ns: n.id}), columns: [
			{name: "Namespace", cell: n => h("a", {href: view.href("messages", [], {ns: n.id})}, n.id)},
			{name: "Description", class: "fill wide", cell: n => h("span.glance", n.description || "–")},
			{name: "Messages", class: "number", cell: n => count(n.messages)}, {name: "Streams", class: "number wide", cell: n => count(n.streams)},
			{name: "Made", class: "time wide", cell: n => when(n.created)},
			{label: "Actions", class: "do", cell: n => n.id === "default" ? h("span.dim.small", "always there") : (() => {
				const b = button("Delete …", () => busy(b, () => remove(n)), {kind: "small.danger", "aria-label": `Delete namespace ${n.id}`});
				return b;
			})()},
		],
		none: () => empty("There is no namespace."),
	});
	const search = h("input", {type: "search", "data-search": true, placeholder: "Name", oninput: () => draw()});
	let all = [];
	const draw = () => table.show(all.filter(n => n.id.includes(search.value.trim())).slice(0, 500));
	async function load() {
		all = (await everyNamespace(view.signal)).sort((a, b) => a.id < b.id ? -1 : 1);
		draw();
		view.refreshSpaces();
	}
	async function remove(n) {
		if (!await confirm({title: "Delete a namespace", typed: n.id, action: "Delete for ever",
			text: `All that is in ${n.id} is removed for ever: ${count(n.messages)} messages, its logs, its tasks, and its tokens.`})) return;
		await del(`v1/namespaces/${encodeURIComponent(n.id)}`);
		toast(`Namespace ${n.id} deleted`);
		await load();
	}
	const create = button("New namespace", async () => {
		const id = h("input", {type: "text", required: true, autocomplete: "off", spellcheck: "false", "data-focus": true}), about = h("input", {type: "text", autocomplete: "off"});
		const made = await form("New namespace", "Make it", [field("Name", id), field("Description", about, "For people; may be empty.")],
			() => post("v1/namespaces", {id: id.value.trim(), description: about.value.trim()}));
		if (!made) return;
		await load();
		await secret(`Namespace ${made.id} is made`, made.token, "Its token");
	}, {kind: "primary"});
	await load();
	return section("Namespaces", h("div.tools", field("Find", search), h("span.grow"), create), table.element);
}

async function tokens(view, everywhere) {
	const table = new Table({
		label: "Tokens", key: t => t.id, columns: [
			{name: "Token", cell: t => [h("code", t.id), h("div.narrow.dim.small", `${t.namespace === "*" ? "everywhere" : t.namespace}${t.description ? `, ${t.description}` : ""}`)]}, {name: "Description", class: "fill wide", cell: t => h("span.glance", t.description || "–")},
			{name: "Good for", class: "wide", cell: t => t.namespace === "*" ? "everywhere" : t.namespace},
			{name: "Role", cell: t => chip(t.role, t.role === "admin" ? "warn" : "")},
			{name: "Made", class: "time wide", cell: t => when(t.created)},
			{name: "Expires", class: "time wide", cell: t => !t.expires ? "never" : new Date(t.expires) < new Date() ? chip("expired", "bad") : when(t.expires)},
			{label: "Actions", class: "do", cell: t => {
				const b = button("Revoke …", () => busy(b, async () => {
					if (!await confirm({title: "Revoke a token", text: `Whoever uses ${t.id}${t.description ? ` (${t.description})` : ""} is refused from now on.`, action: "Revoke"})) return;
					await del(`v1/tokens/${encodeURIComponent(t.id)}`);
					toast(`Token ${t.id} revoked`);
					await load();
				}), {kind: "small.danger", "aria-label": `Revoke token ${t.id}`});
				return b;
			}},
		],
		none: () => empty("No tokens have been made yet.", "Each namespace has its own token. Make more for programs that should do less, or that you may want to shut out alone."),
	});
	const own = everywhere ? undefined : session.info.namespace;
	async function load() {
		const list = await get("v1/tokens", {namespace: own}, view.signal);
		table.show(list.sort((a, b) => a.created < b.created ? 1 : -1).slice(0, 1000));
	}
	const create = button("New token", async () => {
		const space = h("input", {type: "text", required: true, value: own ?? view.namespace, readOnly: !everywhere, autocomplete: "off", spellcheck: "false"});
		const role = h("select", ["read", "query", "write", "admin"].map(r => h("option", {value: r}, {read: "read: looks", query: "query: looks, also by SQL", write: "write: also writes, claims, acknowledges", admin: "admin: also namespaces, tokens, the server"}[r])));
		const about = h("input", {type: "text", autocomplete: "off", "data-focus": true});
		const expires = h("select", [["", "never"], ["1", "in a day"], ["7", "in a week"], ["30", "in 30 days"], ["365", "in a year"]].map(([v, t]) => h("option", {value: v}, t)));
		const made = await form("New token", "Make it", [field("Description", about, "Who uses it, and for what."),
			field("Namespace", space, everywhere ? "* is good for all of them." : undefined), field("Role", role), field("Expires", expires)],
		() => post("v1/tokens", {namespace: space.value.trim(), role: role.value, description: about.value.trim(),
			expires: expires.value ? new Date(Date.now() + Number(expires.value) * 86400_000).toISOString() : undefined}));
		if (!made) return;
		await load();
		await secret("The token is made", made.secret, "Token");
	}, {kind: "primary"});
	await load();
	return section("Tokens", h("div.tools", h("span.grow"), create), table.element);
}
