// Small charts of the last minutes.

import {h, svg} from "./dom.js";

const width = 240, height = 44;

// Spark draws how a value has gone.
export class Spark {
	constructor(label, write) {
		this.label = label;
		this.write = write;
		this.area = svg("path", {class: "area"});
		this.line = svg("path", {class: "line", "vector-effect": "non-scaling-stroke"});
		this.mark = svg("path", {class: "mark", "vector-effect": "non-scaling-stroke"});
		this.element = h("div.spark");
		this.svg = svg("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img"}, this.area, this.line, this.mark);
		this.tip = h("span.tip", {hidden: true});
		this.element.append(this.svg, this.tip);
		this.element.addEventListener("pointermove", e => this.#point(e));
		this.element.addEventListener("pointerleave", () => {
			this.tip.hidden = true;
			this.mark.setAttribute("d", "");
		});
	}

	// show draws points {at, value} from a time on; a value that is no number is a gap.
	show(points, from, to) {
		this.points = points.filter(p => Number.isFinite(p.value));
		this.from = from;
		this.to = to;
		if (this.points.length < 2) {
			this.line.setAttribute("d", "");
			this.area.setAttribute("d", "");
			this.svg.setAttribute("aria-label", `${this.label}: not enough measured yet`);
			return;
		}
		let low = Infinity, high = -Infinity, sum = 0;
		for (const {value} of this.points) {
			low = Math.min(low, value);
			high = Math.max(high, value);
			sum += value;
		}
		const bottom = low > high * 0.6 && low > 0 ? low - (high - low || high * 0.2) : 0; // what hardly moves is not drawn from 0
		const x = at => ((at - from) / (to - from) * width).toFixed(1);
		const y = value => (height - 3 - (value - bottom) / (high - bottom || 1) * (height - 8)).toFixed(1);
		this.y = y;
		const line = this.points.map((p, i) => `${i ? "L" : "M"}${x(p.at)} ${y(p.value)}`).join("");
		this.line.setAttribute("d", line);
		this.area.setAttribute("d", `${line}L${x(this.points.at(-1).at)} ${height}L${x(this.points[0].at)} ${height}Z`);
		this.svg.setAttribute("aria-label", `${this.label}, last ${Math.round((this.points.at(-1).at - this.points[0].at) / 1000)} seconds: ` +
			`from ${this.write(low)} to ${this.write(high)}, mean ${this.write(sum / this.points.length)}`);
	}

	#point(e) {
		if (!this.points || this.points.length < 2) return;
		const box = this.element.getBoundingClientRect();
		const at = this.from + (e.clientX - box.left) / box.width * (this.to - this.from);
		const p = this.points.reduce((a, b) => Math.abs(b.at - at) < Math.abs(a.at - at) ? b : a);
		const px = (p.at - this.from) / (this.to - this.from);
		this.mark.setAttribute("d", `M${(px * width).toFixed(1)} 0V${height}`);
		this.tip.hidden = false;
		this.tip.textContent = `${this.write(p.value)}, ${Math.max(0, Math.round((Date.now() - p.at) / 1000))} s ago`;
		this.tip.classList.toggle("left", px > 0.5);
		this.tip.style.setProperty("--x", `${(px * 100).toFixed(1)}%`);
	}
}

// bar is one bar in parts: [{value, kind, name}].
export function bar(parts, label) {
	const total = parts.reduce((sum, p) => sum + p.value, 0);
	const element = h("div.bar", {role: "img", "aria-label": label});
	for (const p of parts) {
		if (p.value <= 0) continue;
		const part = h(`span.s-${p.kind}`, {title: `${p.name}: ${p.value}`});
		part.style.setProperty("flex-grow", String(Math.max(p.value / total, 0.01)));
		element.append(part);
	}
	return element;
}
