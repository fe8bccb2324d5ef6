// What several views share.

import {button, h, say, toast} from "./dom.js";
import {follow} from "./api.js";

// liveSwitch is a button that follows and gives up following. start says what to follow; each is called for what comes.
export function liveSwitch(view, {start, each}) {
	let controller;
	const word = h("span");
	const element = button("", () => controller ? stop() : run(), {kind: "live", "aria-pressed": "false"});
	element.append(h("span.dot"), word);
	const say_ = state => {
		element.dataset.state = state;
		element.setAttribute("aria-pressed", String(state !== "off"));
		word.textContent = {off: "Live", starting: "Live …", live: "Live", waiting: "Live: connecting again"}[state];
		element.title = state === "off" ? "Show what comes as it comes" : "Stop";
	};
	say_("off");
	view.signal.addEventListener("abort", () => controller?.abort());

	function stop() {
		controller?.abort();
		controller = undefined;
		say_("off");
	}

	async function run() {
		const mine = controller = new AbortController();
		say_("starting");
		try {
			const {where, query} = await start();
			if (mine !== controller) return;
			for await (const item of follow(where, query, {signal: mine.signal, state: s => { if (mine === controller) say_(s); }})) {
				if (mine !== controller) return;
				each(item);
			}
		} catch (err) {
			if (mine.signal.aborted || view.signal.aborted) return;
			toast(`Live: ${say(err)}`, "bad");
			if (mine === controller) stop();
		}
	}

	return {element, stop, run, get on() { return controller !== undefined; }};
}
