// The frame of the page: signing in and out, the parts of the address, navigation, keys.

import {button, dialog, field, h, head, icon, newID, problem, set, toast} from "./dom.js";
import {call, everyNamespace, get, keep, may, session} from "./api.js";
import {overview, watch} from "./views/overview.js";
import {logs} from "./views/logs.js";
import {messages} from "./views/messages.js";
import {groups} from "./views/groups.js";
import {tasks} from "./views/tasks.js";
import {query} from "./views/query.js";
import {access} from "./views/access.js";
import {engine} from "./views/engine.js";
import {operations} from "./views/operations.js";

// The views. Those that are not of one namespace need a token that is good everywhere.
const views = {
	overview: {name: "Overview", key: "o", view: overview, everywhere: true},
	logs: {name: "Logs", key: "l", view: logs, namespaced: true},
	messages: {name: "Messages", key: "m", view: messages, namespaced: true},
	groups: {name: "Consumer groups", key: "c", view: groups, namespaced: true},
	tasks: {name: "Tasks", key: "t", view: tasks, namespaced: true},
	query: {name: "Query", key: "q", view: query, namespaced: true, role: "query"},
	access: {name: "Namespaces, tokens", key: "n", view: access},
	engine: {name: "Engine", key: "e", view: engine, everywhere: true},
	operations: {name: "API", key: "a", view: operations},
};

const usual = "default"; // the namespace that is always there

// --- addresses: #/view/argument/…?name=value

function address() {
	const [where, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
	let args;
	try {
		args = where.split("/").filter(Boolean).map(decodeURIComponent);
	} catch {
		args = [];
	}
	return {name: args.shift() ?? "", args, params: new URLSearchParams(query)};
}

function href(name, args = [], params = {}) {
	const query = new URLSearchParams();
	if (views[name].namespaced && namespace !== usual && params.ns === undefined) query.set("ns", namespace);
	for (const [key, value] of Object.entries(params)) if (value !== undefined && value !== null && value !== "") query.set(key, value);
	return `#/${[name, ...args.map(encodeURIComponent)].join("/")}${query.size ? `?${query}` : ""}`;
}

let namespace = usual;
let current; // {name, controller}
let frame; // the elements that stay

// --- themes

const themes = ["system", "light", "dark"];

function theme() {
	return document.documentElement.dataset.theme ?? "system";
}

function setTheme(name) {
	try {
		if (name === "system") {
			delete document.documentElement.dataset.theme;
			localStorage.removeItem("holdfast.theme");
		} else {
			document.documentElement.dataset.theme = name;
			localStorage.setItem("holdfast.theme", name);
		}
	} catch {
		// Then it lasts as long as the page.
	}
}

function themeButton() {
	const element = button("", () => {
		setTheme(themes[(themes.indexOf(theme()) + 1) % themes.length]);
		draw();
	}, {kind: "quiet.theme"});
	const draw = () => {
		const name = theme();
		set(element, icon({system: "system", light: "sun", dark: "moon"}[name]), h("span", {system: "System", light: "Light", dark: "Dark"}[name]));
		element.setAttribute("aria-label", `Colours: ${name}. Change`);
	};
	draw();
	return element;
}

// --- signing in and out

function logo() {
	return h("span.logo", h("span.bars", {"aria-hidden": "true"}, h("i"), h("i"), h("i")), "Holdfast");
}

function signIn(refused) {
	current?.controller.abort();
	current = undefined;
	frame = undefined;
	document.title = "Sign in · Holdfast";
	const id = newID("token");
	const input = h("input", {id, type: "password", name: "token", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
		required: true, "aria-describedby": `${id}-note`});
	const message = h("div", {"aria-live": "assertive"});
	if (refused) message.append(problem(refused));
	const submit = h("button.button.primary", {type: "submit"}, "Sign in");
	const form = h("form.signin", {onsubmit: async e => {
		e.preventDefault();
		submit.disabled = true;
		set(message);
		try {
			const token = input.value.trim();
			const info = await call("GET", "v1/token", {token});
			keep(token);
			session.info = info;
			start();
		} catch (err) {
			set(message, problem(err));
			input.select();
		} finally {
			submit.disabled = false;
		}
	}}, logo(), h("h1", "Sign in"), h("div.field", h("label", {for: id}, "Token"), input,
		h("p.note", {id: `${id}-note`}, "A namespace’s token, or one that was made for you. It is kept until this tab is closed, and sent only to this server.")),
	message, submit);
	set(document.body, h("main.center", form), h("div.toasts", {role: "status", "aria-live": "polite"}));
	input.focus();
}

function signOut() {
	keep("");
	watch.clear();
	history.replaceState(null, "", "#/");
	signIn();
}

session.ended = err => {
	if (!session.token) return;
	keep("");
	watch.clear();
	signIn(err);
};

session.reached = ok => {
	if (!frame) return;
	frame.lost.hidden = ok;
};

// --- the frame

function draw() {
	const everywhere = session.info.namespace === "*";
	const names = Object.keys(views).filter(name => (!views[name].everywhere || everywhere) &&
		(!views[name].role || may(views[name].role, session.info.namespace)));
	const links = {};
	const nav = h("nav", {id: "nav", "aria-label": "Views"}, h("ul", names.map(name =>
		h("li", links[name] = h("a", {href: href(name)}, icon(name), h("span", views[name].name), h("kbd", {"aria-hidden": "true"}, `g ${views[name].key}`))))));
	const spaces = h("select", {id: "namespace", onchange: () => {
		if (spaces.value === "") return other();
		enter(spaces.value);
	}});
	const menu = button("", () => {
		const open = side.classList.toggle("open");
		menu.setAttribute("aria-expanded", String(open));
	}, {kind: "quiet.menu", "aria-expanded": "false", "aria-controls": "nav", "aria-label": "Menu"});
	menu.append(icon("menu"));
	const who = session.info.description || (session.info.id ? `token ${session.info.id}` : `token of ${session.info.namespace}`);
	const side = h("div.side", {},
		h("div.top", h("a.home", {href: everywhere ? href("overview") : href("messages")}, logo()), menu),
		h("div.fold", h("div.space", h("label", {for: "namespace"}, "Namespace"), spaces), nav,
			h("footer", h("p.who", {title: who}, h("span", who), h("span.dim", `${session.info.role}${everywhere ? ", everywhere" : ` in ${session.info.namespace}`}`)),
				h("div.row", themeButton(), button("Sign out", signOut, {kind: "quiet.signout"})))));
	const lost = h("div.lost", {role: "alert", hidden: true}, "The server cannot be reached. What you see may be old; this page goes on trying.");
	const main = h("main", {id: "main", tabindex: "-1"});
	set(document.body, h("a.skip", {href: "#main", onclick: e => {
		e.preventDefault();
		main.focus();
	}}, "Skip to the content"), side, h("div.page", lost, main), h("div.toasts", {role: "status", "aria-live": "polite"}));
	frame = {main, links, spaces, lost, side, menu};
	fillSpaces();
}

// enter goes on in a namespace.
function enter(id) {
	namespace = id;
	location.hash = href(views[current?.name]?.namespaced ? current.name : "messages", [], {ns: id});
}

// other asks for a namespace, where the token may not list them.
async function other() {
	frame.spaces.value = namespace;
	const id = await dialog("Another namespace", close => {
		const input = h("input", {type: "text", required: true, autocomplete: "off", spellcheck: "false", "data-focus": true});
		return h("form", {onsubmit: e => {
			e.preventDefault();
			close(input.value.trim());
		}}, field("Namespace", input, "Only administrators are told which there are."), h("div.actions", button("Cancel", () => close()), h("button.button.primary", {type: "submit"}, "Open")));
	});
	if (id) enter(id);
}

async function fillSpaces() {
	let list = [session.info.namespace];
	if (session.info.namespace === "*") {
		list = [usual];
		if (may("admin")) {
			try {
				list = (await everyNamespace()).map(n => n.id).sort();
			} catch (err) {
				toast(`Namespaces: ${err.message}`, "bad");
			}
		}
	}
	if (!frame) return;
	if (!list.includes(namespace)) list.push(namespace);
	set(frame.spaces, list.slice(0, 2000).map(id => h("option", {value: id, selected: id === namespace}, id)));
	if (session.info.namespace === "*" && !may("admin")) frame.spaces.append(h("option", {value: ""}, "Another …"));
	frame.spaces.value = namespace;
}

async function show() {
	if (!frame) return;
	const {name, args, params} = address();
	const everywhere = session.info.namespace === "*";
	if (!views[name]) {
		const first = everywhere ? "overview" : "messages";
		if (!name) {
			location.replace(href(first));
			return;
		}
		current?.controller.abort();
		current = undefined;
		for (const link of Object.values(frame.links)) link.removeAttribute("aria-current");
		document.title = "No such view · Holdfast";
		set(frame.main, h("div.view", {"data-view": "none", "data-ready": "true"}, head("There is no such view", `This page has nothing at #/${name}.`),
			h("p", h("a", {href: href(first)}, views[first].name), " is where it begins.")));
		return;
	}
	const wanted = everywhere ? params.get("ns") ?? (views[name].namespaced ? usual : namespace) : session.info.namespace;
	if (wanted !== namespace || frame.spaces.value !== wanted) {
		namespace = wanted;
		if (![...frame.spaces.options].some(o => o.value === wanted)) frame.spaces.append(h("option", {value: wanted}, wanted));
		frame.spaces.value = wanted;
	}
	current?.controller.abort();
	const controller = new AbortController();
	const mine = current = {name, controller};
	for (const [n, link] of Object.entries(frame.links)) {
		link.href = href(n);
		if (n === name) link.setAttribute("aria-current", "page");
		else link.removeAttribute("aria-current");
	}
	frame.side.classList.remove("open");
	frame.menu.setAttribute("aria-expanded", "false");
	document.title = `${views[name].name} · Holdfast`;
	const root = h("div.view", {"data-view": name});
	set(frame.main, root);
	scrollTo(0, 0);
	const slow = setTimeout(() => {
		if (!root.firstChild) root.append(h("p.loading.dim", {role: "status"}, "Loading …"));
	}, 300);
	const view = {
		args, params, namespace, root, signal: controller.signal, href, refreshSpaces: fillSpaces,
		title: text => { document.title = `${text} · Holdfast`; },
		go: (...where) => { location.hash = href(...where); },
		again: show,
		// replace changes the address without a new view.
		replace: (n, a, p) => history.replaceState(null, "", href(n, a, p)),
		// every calls f now and then again and again, as long as the view is there and the page is seen. What takes long is
		// done less often.
		every: async (ms, f) => {
			await f();
			const turn = async () => {
				if (controller.signal.aborted) return;
				const start = Date.now();
				if (!document.hidden) {
					try {
						await f();
					} catch (err) {
						// That the server cannot be reached is told above the view, and the next turn asks again. What is gone is gone.
						if ((err.status === 404 || err.status === 403) && !controller.signal.aborted) {
							set(root, problem(err, show));
							return;
						}
					}
				}
				if (!controller.signal.aborted) setTimeout(turn, Math.max(ms, 5 * (Date.now() - start)));
			};
			setTimeout(turn, ms);
		},
		put: (...children) => { set(root, ...children); },
	};
	try {
		await views[name].view(view);
		if (mine === current) root.dataset.ready = "true";
	} catch (err) {
		if (err.name === "AbortError" || controller.signal.aborted) return;
		if (!err.status && err.status !== 0) console.error(err);
		set(root, problem(err, show));
		root.dataset.ready = "true";
		// A view that was opened while the server was away comes by itself when it is back.
		if (err.status === 0) setTimeout(() => { if (mine === current) show(); }, 2000);
	} finally {
		clearTimeout(slow);
		root.querySelector(":scope > .loading")?.remove();
	}
}

async function start() {
	if (!session.token) return signIn();
	if (!session.info) {
		try {
			session.info = await get("v1/token");
		} catch (err) {
			if (err.status === 401) return; // ended has said so
			set(document.body, h("main.center", h("div.signin", logo(), problem(err, () => location.reload()), button("Sign out", signOut))),
				h("div.toasts", {role: "status"}));
			return;
		}
	}
	if (session.info.namespace !== "*") namespace = session.info.namespace;
	draw();
	if (session.info.namespace === "*") watch.start();
	show();
}

// --- keys

let g = 0; // when g was pressed

function help() {
	const keys = [["/", "Search in this view"], ["↑ ↓ j k", "Walk along a list"], ["Enter", "Open the row"], ["Home End", "First and last row"],
		...Object.values(views).map(v => [`g ${v.key}`, v.name]), ["?", "This help"], ["Esc", "Close a dialog; leave a field"]];
	dialog("Keys", () => h("table.keys", h("tbody", keys.map(([k, what]) => h("tr", h("td", k.split(" ").map(x => [h("kbd", x), " "])), h("td", what))))));
}

addEventListener("keydown", e => {
	if (e.ctrlKey || e.metaKey || e.altKey || !frame || document.querySelector("dialog[open]")) return;
	if (e.target.closest?.("input, select, textarea, [contenteditable]")) {
		if (e.key === "Escape") e.target.blur();
		return;
	}
	if (g && Date.now() - g < 1500) {
		g = 0;
		const found = Object.entries(views).find(([, v]) => v.key === e.key);
		if (found && frame.links[found[0]]) {
			e.preventDefault();
			location.hash = href(found[0]);
		}
		return;
	}
	g = 0;
	if (e.key === "g") g = Date.now();
	else if (e.key === "?") help();
	else if (e.key === "/") {
		const search = frame.main.querySelector("[data-search]");
		if (search) {
			e.preventDefault();
			search.focus();
			search.select?.();
		}
	} else if ((e.key === "ArrowDown" || e.key === "j") && !e.target.closest("tr, pre")) {
		const row = frame.main.querySelector('tbody tr[tabindex="0"]');
		if (row) {
			e.preventDefault();
			row.focus();
		}
	}
});

addEventListener("hashchange", show);
addEventListener("unhandledrejection", e => {
	if (e.reason?.name === "AbortError" || e.reason?.status !== undefined) e.preventDefault(); // was shown where it was asked for
});

start();
