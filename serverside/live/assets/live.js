// Shows what the limiter does. All data comes from one stream of server-sent events, and goes into
// the document only as text.

const span = 120; // seconds that are shown
const outcomes = ["admitted", "denied", "uncounted", "trusted", "would"]; // in the order of counts
const shown = 50; // the most denials and notices shown

const byId = (id) => document.getElementById(id);

// State: what was received so far.
let now = 0; // seconds
let config = null;
let keys = [];
let paused = false;
let stale = false;
const counted = new Map(); // nameOf(rule) -> {rule, pattern, seconds: Map of counts}
const denials = []; // newest first
const notices = [];
const hot = new Set();

const nameOf = (r) => JSON.stringify([r.rule ?? "", r.pattern ?? ""]);

function countedOf(r) {
	const name = nameOf(r);
	if (!counted.has(name)) counted.set(name, { rule: r.rule, pattern: r.pattern, seconds: new Map() });
	return counted.get(name);
}

function receive(m) {
	now = Math.floor(m.now / 1000);
	if (m.title) document.title = byId("title").textContent = m.title;
	if (m.config) config = m.config;
	keys = m.keys ?? [];
	for (const r of m.counts ?? []) {
		const { seconds } = countedOf(r);
		r.seconds.forEach((counts, i) => seconds.set(m.first + i, counts));
	}
	for (const { seconds } of counted.values())
		for (const second of seconds.keys()) if (second <= now - span) seconds.delete(second);
	for (const e of m.denials ?? []) denials.unshift(e);
	for (const e of m.notices ?? []) {
		notices.unshift(e);
		if (e.kind === "hot key") hot.add(nameOf(e) + e.key);
	}
	denials.length = Math.min(denials.length, shown);
	notices.length = Math.min(notices.length, shown);
	if (!m.outage) status(byId("store"), "The Store answers", true);
	else status(byId("store"),
		`The Store has failed since ${clock(m.outage.since)}: requests ${modes[m.outage.mode]}`, false);
}

const modes = { open: "are admitted uncounted", closed: "are refused", local: "are counted in this process" };

// series returns the summed counts of some rules for the last seconds, the oldest first.
function series(some) {
	const all = Array.from({ length: span }, () => outcomes.map(() => 0));
	for (const { seconds } of some)
		for (const [second, counts] of seconds) {
			const at = all[second - now + span - 1];
			if (at) counts.forEach((n, i) => (at[i] += n));
		}
	return all;
}

// The numbers on the page, from counts. Requests admitted by an Allow entry are admitted.
const meanings = {
	all: (t) => t[0] + t[1] + t[2] + t[3],
	admitted: (t) => t[0] + t[3],
	denied: (t) => t[1],
	uncounted: (t) => t[2],
	would: (t) => t[4],
};

const sum = (seconds, of) => seconds.reduce((n, t) => n + of(t), 0);
const number = new Intl.NumberFormat();
const count = (n) => number.format(n);
const clock = (ms) => new Date(ms).toLocaleTimeString();

function duration(ms) {
	if (!ms) return "never fits";
	if (ms < 1000) return `${ms} ms`;
	const s = Math.ceil(ms / 1000);
	if (s < 60) return `${s} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
	return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

// Building the document.

function put(node, text) {
	if (node.textContent !== text) node.textContent = text;
}

function status(node, text, good) {
	put(node, text);
	node.className = good ? "good" : "bad";
}

function make(name, className, ...children) {
	const node = document.createElement(name);
	if (className) node.className = className;
	node.append(...children);
	return node;
}

function drawing(name, attributes) {
	const node = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
	return node;
}

// arrange updates the rows of a table body or list to those of items, in order. It keeps existing
// rows, so that selections and screen readers are not disturbed.
function arrange(body, items, nameOf, build, fill, empty) {
	const before = new Map(Array.from(body.children, (row) => [row.name, row]));
	let at = body.firstElementChild;
	for (const item of items) {
		const name = nameOf(item);
		let row = before.get(name);
		if (row) before.delete(name);
		else {
			row = build(item);
			row.name = name;
		}
		fill?.(row, item);
		if (row === at) at = at.nextElementSibling;
		else body.insertBefore(row, at);
	}
	for (const row of before.values()) row.remove();
	if (!body.firstElementChild) body.append(body.tagName === "UL" ? make("li", "", empty) : emptyRow(empty));
}

function emptyRow(text) {
	const cell = make("td", "empty", text);
	cell.colSpan = 9;
	return make("tr", "", cell);
}

function row(head, ...cells) {
	const first = make("th", "", head);
	first.scope = "row";
	return make("tr", "", first, ...cells.map(([className, ...content]) => make("td", className, ...content)));
}

const codes = (all) => (all ?? []).flatMap((name, i) => [i ? " " : "", make("code", "", name)]);

function key(text) {
	const node = make("span", "key", text.length > 16 ? text.slice(0, 12) + "…" : text);
	node.title = text;
	return node;
}

// Drawing.

// area returns the path of the area between two lines.
function area(lower, upper, x, y) {
	const points = (values) => values.map((v, i) => `${x(i).toFixed(1)} ${y(v).toFixed(1)}`);
	return `M${points(upper).join("L")}L${points(lower).reverse().join("L")}Z`;
}

function line(values, x, y) {
	return "M" + values.map((v, i) => `${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join("L");
}

// ceiling returns a round number that is at least n and at least 2.
function ceiling(n) {
	const power = 10 ** Math.floor(Math.log10(Math.max(n, 2)));
	return [1, 1.2, 1.6, 2, 3, 4, 6, 8, 10].map((f) => f * power).find((c) => c >= Math.max(n, 2));
}

// draw draws all seconds except the current one into svg, which is width × height. If left is not 0,
// it is the space for an axis.
function draw(svg, all, width, height, left) {
	const seconds = all.slice(0, -1);
	const layers = ["admitted", "uncounted", "denied"];
	const stacks = [seconds.map(() => 0)];
	for (const layer of layers) stacks.push(seconds.map((t, i) => stacks.at(-1)[i] + meanings[layer](t)));
	const would = seconds.map(meanings.would);
	const top = ceiling(Math.max(...stacks.at(-1), ...would));
	const x = (i) => left + (i / (seconds.length - 1)) * (width - left);
	const [above, below] = left ? [18, 6] : [2, 1];
	const y = (v) => height - below - (v / top) * (height - above - below);
	const paths = [];
	if (left) paths.push(...axis(top, x, y, width, left));
	layers.forEach((layer, i) => paths.push(drawing("path", { class: layer, d: area(stacks[i], stacks[i + 1], x, y) })));
	if (would.some(Boolean))
		for (const name of ["halo", "would"]) paths.push(drawing("path", { class: name, d: line(would, x, y) }));
	svg.replaceChildren(...paths);
}

function axis(top, x, y, width, left) {
	const all = [];
	for (const v of [0, top / 2, top]) {
		all.push(drawing("path", { class: "grid", d: `M${left} ${y(v)}H${width}` }));
		const label = drawing("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" });
		label.textContent = count(v);
		all.push(label);
	}
	for (const [ago, text] of [[90, "90 s ago"], [60, "60 s ago"], [30, "30 s ago"]]) {
		const label = drawing("text", { x: x(span - 1 - ago), y: 13, "text-anchor": "middle" });
		label.textContent = text;
		all.push(label);
	}
	return all;
}

// Showing.

function showRequests() {
	const seconds = series(counted.values());
	for (const [name, of] of Object.entries(meanings)) {
		put(byId(name), count(of(seconds.at(-2))));
		put(byId(name + "-sum"), `${count(sum(seconds, of))} in 2 min`);
	}
	draw(byId("chart"), seconds, 1000, 200, 56);
	const [admitted, uncounted, denied] = ["admitted", "uncounted", "denied"].map((name) => sum(seconds, meanings[name]));
	byId("chart").setAttribute("aria-label",
		`Requests per second in the last two minutes: ${admitted} admitted, ${uncounted} failed open, ${denied} denied`);
}

// shownRules returns the rules of the configuration, and others that were counted.
function shownRules() {
	const rules = config?.rules ?? [];
	const named = new Set(rules.map(nameOf));
	const others = Array.from(counted.values()).filter((r) => !named.has(nameOf(r)) && r.seconds.size > 0);
	return rules.concat(others.map((r) => ({ rule: r.rule, pattern: r.pattern, policies: [],
		text: r.pattern ? "No longer a rule." : "An entry of allow, or no longer a rule." })));
}

function showRules() {
	if (config) put(byId("config"),
		`Rule set ${config.hash}, in effect since ${new Date(config.since).toLocaleString()}.`);
	arrange(byId("rules"), shownRules(), (r) => nameOf(r) + r.text, (r) => {
		const spark = drawing("svg", {
			class: "spark", viewBox: "0 0 120 28", preserveAspectRatio: "none", "aria-hidden": "true" });
		const made = row(r.rule, ["", r.text], ["", ...codes(r.policies)], ["", spark], ["n"], ["n"], ["n"], ["n"]);
		if (r.dryRun) made.cells[0].append(make("span", "tag", "dry run"));
		return made;
	}, (made, r) => {
		const seconds = series([countedOf(r)]);
		draw(made.querySelector("svg"), seconds, 120, 28, 0);
		for (const [i, name] of ["admitted", "denied", "uncounted", "would"].entries())
			put(made.cells[4 + i], count(sum(seconds, meanings[name])));
	}, "None yet.");
}

// policiesLike returns the policies of a key's rule with this limit.
function policiesLike(k, limit) {
	const rule = config?.rules.find((r) => nameOf(r) === nameOf(k));
	return [...new Set(rule?.policies.filter((_, i) => rule.atOnce[i] === limit))];
}

// fillQuota fills in one line of a quota in several cells.
function fillQuota([policy, left, units, seen], k, q) {
	const meter = left.querySelector("meter") ?? left.appendChild(make("meter", ""));
	const names = policiesLike(k, q.limit);
	meter.max = meter.optimum = q.limit;
	meter.low = q.limit / 4;
	meter.value = q.remaining;
	meter.setAttribute("aria-label", `${q.remaining} of ${q.limit} left${names.length ? `, ${names.join(" or ")}` : ""}`);
	put(policy, names.join(" "));
	put(units, `${count(q.remaining)} of ${count(q.limit)}`);
	put(seen, clock(q.at));
}

function showKeys() {
	arrange(byId("keys"), keys, (k) => nameOf(k) + k.key, (k) => {
		return row(key(k.key), ["", k.rule], ["quotas key"], ["quotas"], ["quotas n"], ["quotas"], ["n"]);
	}, (made, k) => {
		const quotas = Array.from(made.cells).slice(2, 6);
		for (const cell of quotas) {
			while (cell.children.length > k.quotas.length) cell.lastElementChild.remove();
			while (cell.children.length < k.quotas.length) cell.append(make("div", ""));
		}
		k.quotas.forEach((q, i) => fillQuota(quotas.map((cell) => cell.children[i]), k, q));
		put(made.cells[6], count(k.denied));
		const head = made.cells[0];
		if (hot.has(nameOf(k) + k.key) && !head.querySelector(".tag")) head.append(make("span", "tag bad", "hot"));
	}, "None yet.");
}

function showDenials() {
	arrange(byId("denials"), denials, (e) => String(e.id), (e) => row(clock(e.at), ["", e.rule ?? ""],
		["", ...codes(e.policies)], ["", key(e.key ?? "")], ["n", duration(e.wait)],
		["", e.kind === "denied" ? String(e.status) : "none: a dry run"]), null, "No denials.");
}

const notice = {
	"hot key": (e) => `a key was denied more than 100 times within a minute: ${e.key}, rule ${e.rule}`,
	"penalized": (e) => `a key is blocked for ${duration(e.wait)}: ${e.key}, rule ${e.rule}`,
	"store failed": (e) => `the Store failed; requests ${modes[e.mode]}. The error is in the log`,
	"store recovered": () => "the Store answers again",
	"configured": (e) => `rule set ${e.hash} is in effect`,
	"config rejected": () =>
		"a configuration was rejected, and the previous one stays in effect. The error is in the log",
	"forwarding ignored": () => "an untrusted peer sent X-Forwarded-For: " +
		"if it is a proxy, all its clients share one quota",
};

function showNotices() {
	arrange(byId("notices"), notices, (e) => String(e.id),
		(e) => make("li", "", `${clock(e.at)}: ${notice[e.kind]?.(e) ?? e.kind}`), null, "None.");
}

function show() {
	stale = false;
	if (paused) return;
	showRequests();
	showRules();
	showKeys();
	showDenials();
	showNotices();
}

function update() {
	if (!stale) requestAnimationFrame(show);
	stale = true;
}

// The stream.

function connect() {
	const stream = new EventSource("events");
	const connection = byId("connection");
	stream.onmessage = (event) => {
		receive(JSON.parse(event.data));
		status(connection, "Live", true);
		update();
	};
	stream.addEventListener("replaced", () => {
		stream.close();
		status(connection, "Not connected: too many viewers. Reload to watch again", false);
	});
	stream.onopen = () => { // the server sends everything again
		counted.clear();
		denials.length = notices.length = 0;
	};
	stream.onerror = () => {
		status(connection, "Not connected; trying again", false);
		if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 5000); // a proxy without a server, for example
	};
}

byId("pause").addEventListener("click", () => {
	paused = !paused;
	byId("pause").setAttribute("aria-pressed", String(paused));
	update();
});
connect();
