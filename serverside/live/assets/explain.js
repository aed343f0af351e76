// What a response asks its client for, as the command heed explain says it. Nothing that
// is pasted here leaves the page, or gets into it but as text.

import { judge, meanings, millisecond, parse, parseDate, parseFor, second, sources, wait } from "./ratelimit.js";
import { vendors } from "./vendors.js";

const byId = (id) => document.getElementById(id);

// Reading.

// parseResponse reads what curl -i and -v print, and browsers copy: a status line, if
// there is one, fields up to an empty line, and the body.
function parseResponse(text) {
	const r = { status: 0, header: new Map(), body: "" };
	const lines = text.split("\n");
	for (const [i, raw] of lines.entries()) {
		const line = raw.replace(/^< /, "").trim();
		if (line === "" && r.header.size > 0) {
			r.body = lines.slice(i + 1).join("\n").trim();
			break;
		}
		const [, code] = /^HTTP\/\S* +(\S*)/.exec(line) ?? [];
		if (code !== undefined) {
			r.status = /^[0-9]{1,4}$/.test(code) ? Number(code) : 0;
			continue;
		}
		const [, name, value] = /^([A-Za-z][A-Za-z0-9_-]*):(.*)$/.exec(line) ?? [];
		if (name !== undefined) add(r.header, name, value.trim());
	}
	return r;
}

function add(header, name, value) {
	const canonical = name.toLowerCase().replace(/(^|-)[a-z]/g, (s) => s.toUpperCase());
	header.set(canonical, [...(header.get(canonical) ?? []), value]);
}

// guesses are what a value by itself may be of. One that waits tells a wait, or nothing;
// a number that is until a moment is no delay if it is that large.
const guesses = [
	{ field: "Retry-After", waits: true, until: true },
	{ field: "Ratelimit", called: "RateLimit" },
	{ field: "Ratelimit-Policy", called: "RateLimit-Policy" },
	{ field: "X-Ratelimit-Reset", called: "X-RateLimit-Reset", waits: true },
];

function guess(value, now) {
	for (const g of guesses) {
		const header = new Map([[g.field, [value]]]);
		if (g.field === "X-Ratelimit-Reset") header.set("X-Ratelimit-Remaining", ["0"]);
		const [asked, ok] = wait(429, header, now);
		const far = g.until && asked >= 1_000_000_000n * second;
		if ((ok && !far) || (!g.waits && value.includes("=") && parse(header, now).length > 0))
			return { status: 429, header, body: "", taken: `It is taken for a ${g.called ?? g.field} of a 429. ` };
	}
	return null;
}

// read returns a response, or null.
function read(text, status, now) {
	let r = parseResponse(text);
	if (r.header.size === 0 && !r.status) r = guess(text.trim(), now);
	if (!r) return null;
	r.taken ??= "";
	if (status) r.status = status;
	if (!r.status) {
		r.status = 429;
		r.taken += "No status is told: it is taken for 429. ";
	}
	return r;
}

// explain returns what a response means: {asked, ok, meaning, sources, limits, taken}; or
// null if text is none.
export function explain(text, status, now, profile) {
	const r = read(text, status, now);
	if (!r) return null;
	if (!profile) {
		const [asked, ok] = wait(r.status, r.header, now);
		return { ...r, asked, ok, meaning: "", sources: sources(r.status, r.header, now), limits: parse(r.header, now) };
	}
	const a = judge(profile, r.status, r.header, r.body, now);
	return { ...r, asked: a.wait, ok: a.known, meaning: meanings[a.meaning], sources: [], limits: parseFor(profile, r.header, now) };
}

// Saying.

// duration is a duration as Go prints it, to a millisecond: 1h30m0s.
export function duration(d) {
	const ms = (d + millisecond / 2n) / millisecond;
	if (ms < 1000n) return ms === 0n ? "0s" : `${ms}ms`;
	const [h, m] = [ms / 3_600_000n, (ms / 60_000n) % 60n];
	const rest = ms % 60_000n;
	const s = `${rest / 1000n}.${String(rest % 1000n).padStart(3, "0")}`.replace(/\.?0+$/, "");
	return (h ? `${h}h` : "") + (h || m ? `${m}m` : "") + s + "s";
}

// brief is a duration without the units of which there are none: 1m, 1h30m, 2d.
export function brief(d) {
	const day = 86_400n * second;
	if (d >= day && d % day === 0n) return `${d / day}d`;
	return duration(d).replace(/m0s$/, "m").replace(/h0m$/, "h");
}

// moment is when d is over, by the clock of who reads, to a second.
function moment(now, d) {
	const seconds = (now + d + second - 2n * millisecond) / second; // rounded up, as waits are to a millisecond
	return new Date(Number(seconds) * 1000).toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
}

const usual = (name) => name.replace("Ratelimit", "RateLimit").replace(/-Ms$/, "-ms");

const transport = "client := &http.Client{Transport: &heed.Transport{}}";
const withProfiles = "client := &http.Client{Transport: &heed.Transport{\n\tRetry: heed.RetryPolicy{Profiles: ratelimit.Vendors()},\n}}";

function snippet(e, profile) {
	const answer = `${duration(e.asked)}, ${e.ok}`;
	if (!profile) return `wait, ok := ratelimit.Wait(resp.StatusCode, resp.Header, time.Now()) // ${answer}`;
	return `answer := ratelimit.Vendor(${JSON.stringify(profile.Name)}).Read(resp, time.Now()) // ${e.meaning}, ${answer}`;
}

const sentences = {
	limited: "A limit refused the request, and nothing was done.",
	retry: "The server asks for another attempt, whatever the status is.",
	final: "No wait helps.",
	unsaid: "It says nothing of limits: the status says it all.",
};

// Showing.

function make(name, className, text) {
	const node = document.createElement(name);
	if (className) node.className = className;
	node.textContent = text;
	return node;
}

function quotaRow(l, now) {
	const known = (n) => (n >= 0 ? String(n) : "not told");
	const row = document.createElement("tr");
	const head = make("th", "", l.name || "default");
	head.scope = "row";
	row.append(head,
		make("td", "n", known(l.remaining)),
		make("td", "n", l.quota > 0 ? `${l.quota} ${l.unit || "requests"}` : "not told"),
		make("td", "", l.window > 0n ? brief(l.window) : ""),
		make("td", "", l.next > 0n ? brief(l.next) : ""),
		make("td", "", l.reset > 0n ? `${brief(l.reset)}: ${moment(now, l.reset)}` : ""));
	return row;
}

function clear(text) {
	for (const id of ["wait", "taken", "means", "sources"]) byId(id).textContent = "";
	byId("wait").textContent = text;
	byId("quotas-region").hidden = byId("go").hidden = true;
}

function show() {
	const text = byId("text").value;
	const present = BigInt(Date.now()) * millisecond;
	const received = byId("received").value.trim();
	const now = received === "" ? present : parseDate(received, present);
	if (text.trim() === "") return clear("");
	if (now === null) return clear("When it was received is no date: write as in 2026-11-20T19:30:00Z.");
	const status = byId("status").value.trim();
	if (!/^([1-9][0-9]{2})?$/.test(status)) return clear("The status is no code of three digits.");
	const profile = vendors.find((v) => v.Name === byId("vendor").value);
	const e = explain(text, Number(status), now, profile);
	if (!e) return clear("This is neither a response header nor a value of Retry-After, RateLimit or the like.");
	byId("wait").textContent = e.ok ? `Wait ${brief(e.asked)}: until ${moment(now, e.asked)}.` : "It asks for no wait.";
	byId("taken").textContent = e.taken;
	byId("means").textContent = sentences[e.meaning] ?? "";
	byId("sources").textContent = e.sources.length > 0 ? `It says so in ${e.sources.map(usual).join(", ")}.` : "";
	byId("quotas").replaceChildren(...e.limits.map((l) => quotaRow(l, now)));
	byId("quotas-region").hidden = e.limits.length === 0;
	byId("transport").textContent = profile ? withProfiles : transport;
	byId("snippet").textContent = snippet(e, profile);
	byId("go").hidden = false;
}

for (const v of vendors) {
	const option = make("option", "", v.Title);
	option.value = v.Name;
	byId("vendor").append(option);
}
byId("form").addEventListener("submit", (event) => event.preventDefault());
byId("form").addEventListener("input", show);
show(); // what the browser has kept
