// What the header fields of a response mean: package ratelimit, in JavaScript. Each
// function is called as it is there, where it is explained, too. Durations and moments
// are BigInts, in nanoseconds (moments since 1970). A header is a Map from canonical
// names to lines. A test compares the two packages on every vector, and on what is made
// up.

const nanosecond = 1n;
const microsecond = 1000n * nanosecond;
export const millisecond = 1000n * microsecond;
export const second = 1000n * millisecond;
const minute = 60n * second;
const hour = 60n * minute;
const day = 24n * hour;

const maxWait = (1n << 31n) * second;
const unknown = -1n;
const impossible = maxWait + 1n;
const maxInteger = 999_999_999_999_999;

const max = (...all) => all.reduce((a, b) => (b > a ? b : a));
const min = (a, b) => (b < a ? b : a);

function cut(s, separator) {
	const i = s.indexOf(separator);
	return i < 0 ? [s, "", false] : [s.slice(0, i), s.slice(i + separator.length), true];
}

// wait.go

export function wait(status, header, now) {
	if (status >= 100 && status < 300) return [0n, false];
	const r = new Reader(header, now);
	const [coarse, fine] = [r.coarse(), r.fine()];
	let found = refine(coarse, fine);
	if (found === unknown) found = r.lastResort();
	else if (limitsOnly(status) && roundedDown(coarse, fine)) found = unrounded(found, r.quotas([], false));
	if (found === unknown && (status < 100 || status >= 400)) found = spent(r.quotas([], false), limitsOnly(status));
	return [max(found, 0n), found !== unknown];
}

class Reader {
	constructor(header, now) {
		this.header = header;
		this.now = now;
	}

	lines(name) {
		return this.header.get(name) ?? [];
	}

	coarse() {
		return this.longest(this.lines("Retry-After"), "delay");
	}

	fine() {
		return max(
			this.longest(this.lines("Retry-After-Ms"), "milliseconds"),
			this.longest(this.lines("X-Ms-Retry-After-Ms"), "milliseconds"),
			this.longest(this.lines("X-Amz-Retry-After"), "milliseconds"),
			this.longest(this.lines("X-Retry-In"), "duration"),
		);
	}

	lastResort() {
		return max(this.longest(this.lines("X-Retry-After"), "reset"), this.longest(this.lines("X-Ratelimit-Retry-After"), "reset"));
	}

	longest(lines, as) {
		return lines.reduce((found, line) => max(found, this.line(line, as)), unknown);
	}

	line(s, as) {
		let found = this.value(s, as);
		if (found !== unknown) return found;
		for (let list = s.includes(","); list; ) {
			const [piece, rest, more] = cut(s, ",");
			if (more && isWeekday(trim(piece))) {
				const [next, after, comma] = cut(rest, ",");
				const date = this.value(piece + "," + next, as);
				if (date !== unknown) {
					[found, s, list] = [max(found, date), after, comma];
					continue;
				}
			}
			[found, s, list] = [max(found, this.value(piece, as)), rest, more];
		}
		return found;
	}

	// value.go

	value(s, as) {
		switch (as) {
			case "javaScript":
				return this.until(parseJavaScript(trim(s)));
			case "window":
				return this.value(windowParameter(s), "delay");
			case "interval":
			case "reset":
				[s] = cut(s, ";");
		}
		s = trim(s);
		const [number, rest, ok] = cutDecimal(s);
		if (ok && rest === "") return this.number(number, as);
		if (as === "duration" || as === "interval" || as === "reset") {
			const d = parseDuration(s);
			if (d !== unknown) return ceilMilli(d);
		}
		return as === "delay" || as === "reset" ? this.until(parseDate(s, this.now)) : unknown;
	}

	number(d, as) {
		switch (as) {
			case "delay":
			case "interval":
				return ceilMilli(times(d, second));
			case "milliseconds":
				return ceilMilli(times(d, millisecond));
			case "minutes":
				return ceilMilli(times(d, minute));
			case "reset":
				return this.resetNumber(d);
		}
		return unknown;
	}

	resetNumber(d) {
		const n = d.whole.length;
		if (n === 9 && this.now < 1_000_000_000n * second) return this.epoch(d, 0, second);
		if (n <= 9) return ceilMilli(times(d, second));
		if (n <= 11) return this.epoch(d, 0, second);
		if (n <= 14) return this.epoch(d, 3, millisecond);
		if (n <= 17) return this.epoch(d, 6, microsecond);
		if (n <= 20) return this.epoch(d, 9, nanosecond);
		return unknown;
	}

	epoch(d, shift, unit) {
		const point = d.whole.length - shift;
		const seconds = min(BigInt(d.whole.slice(0, point) || "0"), 100_000_000_000n);
		return this.until(seconds * second + fractionOf(d.whole.slice(point), second) + fractionOf(d.fraction, unit));
	}

	// clock.go

	// until returns how long it is until a moment, or unknown if there is none.
	until(moment) {
		if (moment === null) return unknown;
		let found = moment - this.serverTime();
		if (found > day) {
			const local = moment - this.now;
			if (local >= 0n && local <= day) found = local;
		}
		return ceilMilli(min(max(found, 0n), maxWait));
	}

	serverTime() {
		const dates = this.lines("Date").map((line) => parseDate(trim(line), this.now)).filter((date) => date !== null);
		return dates.length === 1 ? dates[0] + age(this.lines("Age")) : this.now;
	}

	// quotas.go

	quotas(dst, all) {
		const families = new Set();
		let states = null, policies = null;
		const first = dst.length;
		for (const [name, lines] of this.header) {
			const family = familyOf(name);
			switch (family) {
				case null:
					break;
				case "age":
					if (age(lines) > 0n) return dst.slice(0, first);
					break;
				case "dimension":
					this.dimension(dst, name, all);
					break;
				case "state":
					states = lines;
					break;
				case "policy":
					policies = lines;
					break;
				default:
					families.add(family);
			}
		}
		if (all) return this.described(dst, families, states, policies);
		dst.push(...readStates(states));
		for (const names of undimensioned) if (families.has(names)) dst.push(this.triple(names));
		return dst;
	}

	described(dst, families, states, lines) {
		const first = dst.length;
		const policies = readPolicies(lines, 0);
		dst.push(...readStates(states));
		describe(dst.slice(first), policies);
		for (const names of undimensioned) {
			if (!families.has(names)) continue;
			const l = this.triple(names);
			readQuota(l, policies, this.lines(names.limit));
			if (same(l, stateless()) || merged(dst.slice(first), l)) continue;
			dst.push(l);
			describe([l], policies);
		}
		dst.push(...policies.filter((p) => !p.told).map((p) => p.limit));
		return dst;
	}

	triple(names) {
		const l = stateless();
		l.remaining = leftOf(this.lines(names.remaining)).least;
		l.reset = this.longest(this.lines(names.after), "interval");
		if (l.reset === unknown) l.reset = this.longest(this.lines(names.reset), "reset");
		return l;
	}

	// dimension.go

	dimension(dst, name, all) {
		const [d, part] = dimensionOf(name);
		if (part === "" || (part !== "Reset" && !(all && this.stands(d, part)))) return;
		const left = leftOf(this.field(d, "Remaining"));
		if (left.sentinel) return;
		const l = stateless();
		l.remaining = left.least;
		l.reset = this.longest(this.field(d, "Reset"), "reset");
		if (all) {
			l.quota = Math.max(leftOf(this.field(d, "Limit")).least, 0);
			l.name = d.word.toLowerCase();
			l.unit = unitOf(l.name);
			l.window = windowOf(l.name);
		}
		dst.push(l);
	}

	field(d, part) {
		return this.lines(d.prefix + (d.last ? part + "-" + d.word : d.word + "-" + part));
	}

	stands(d, part) {
		const has = (other) => this.field(d, other).length > 0;
		return !has("Reset") && (part === "Remaining" || !has("Remaining"));
	}
}

function spent(limits, limited) {
	let found = unknown, perhaps = unknown, empty = false;
	for (const l of limits) {
		if (l.remaining === 0) [found, empty] = [max(found, until(l)), true];
		else if (l.remaining < 0) perhaps = max(perhaps, until(l));
	}
	return !empty && limited ? perhaps : found;
}

const roundedDown = (coarse, fine) => coarse !== unknown && coarse % second === 0n && fine === unknown;

const mostRounded = 2n * second;

function unrounded(after, limits) {
	const empty = limits.filter((l) => l.remaining === 0);
	const exact = empty.some((l) => l.next >= 0n);
	const near = empty.filter((l) => !exact || l.next >= 0n).map(until).filter((found) => found <= after + mostRounded);
	return max(after, ...near);
}

const limitsOnly = (status) => status === 429 || status === 420 || status === 430;

const refine = (coarse, fine) => (fine !== unknown && coarse - fine < second ? fine : coarse);

function windowParameter(s) {
	for (const parameter of s.split(";")) {
		const trimmed = trim(parameter);
		if (trimmed.startsWith("w=")) return trimmed.slice(2);
	}
	return "";
}

const trim = (s) => s.replace(/^[ \t]+/, "").replace(/[ \t]+$/, "");

const ceilMilli = (d) => ((d + millisecond - 1n) / millisecond) * millisecond;

// clock.go

function age(lines) {
	if (lines.length === 0) return 0n;
	const [d, rest] = cutDecimal(trim(cut(lines[0], ",")[0]));
	return rest !== "" || d.fraction !== "" ? 0n : times(d, second);
}

// number.go

function cutDecimal(s) {
	const [text, whole, fraction] = /^([0-9]+)(?:\.([0-9]+))?/.exec(s) ?? ["", "", undefined];
	return [{ whole: whole.replace(/^0+/, ""), fraction: fraction ?? "" }, s.slice(text.length), text !== ""];
}

function times(d, unit) {
	if (d.whole.length > 20) return maxWait;
	return min(BigInt(d.whole || "0") * unit + fractionOf(d.fraction, unit), maxWait);
}

const floor = (d) => (d.whole.length > 15 ? maxInteger : Number(d.whole || "0"));

function fractionOf(digits, unit) {
	const kept = digits.slice(0, 18);
	const denominator = 10n ** BigInt(kept.length);
	const product = BigInt(kept || "0") * unit;
	const exact = product % denominator === 0n && !/[1-9]/.test(digits.slice(18));
	return product / denominator + (exact ? 0n : 1n);
}

// duration.go

const units = [
	["ns", nanosecond], ["us", microsecond], ["\u00b5s", microsecond], ["\u03bcs", microsecond], ["ms", millisecond],
	["s", second], ["m", minute], ["h", hour], ["d", day],
];

function parseDuration(s) {
	let total = unknown;
	while (s !== "") {
		const [number, rest, ok] = cutDecimal(s);
		const unit = units.find(([name]) => rest.startsWith(name));
		if (!ok || !unit) return unknown;
		total = min(max(total, 0n) + times(number, unit[1]), maxWait);
		s = rest.slice(unit[0].length);
	}
	return total;
}

// date.go

const months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const weekdays = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

const lower = (s) => s.replace(/[A-Z]/g, (c) => c.toLowerCase()); // of ASCII only

function formOf(word) {
	const name = lower(word);
	if (weekdays.includes(name)) return "long";
	return weekdays.some((w) => w.slice(0, 3) === name) ? "short" : "";
}

const isWeekday = (word) => formOf(word) !== "";

class Scanner {
	failed = false;

	constructor(s) {
		this.rest = s;
	}

	is(c) {
		return this.rest[0] === c;
	}

	skip(c) {
		if (this.rest === "" || lower(this.rest[0]) !== c) this.failed = true;
		else this.rest = this.rest.slice(1);
	}

	comma() {
		this.skip(",");
		this.rest = this.rest.replace(/^[ \t]+/, "");
	}

	number(least, most) {
		const digits = this.digits().slice(0, most);
		if (digits.length < least) {
			this.failed = true;
			return 0;
		}
		this.rest = this.rest.slice(digits.length);
		return Number(digits);
	}

	digits() {
		return /^[0-9]*/.exec(this.rest)[0];
	}

	fraction() {
		if (!this.is(".")) return 0n;
		this.skip(".");
		const digits = this.digits();
		if (digits === "") this.failed = true;
		this.rest = this.rest.slice(digits.length);
		return fractionOf(digits, second);
	}

	word() {
		const [word] = /^[A-Za-z]*/.exec(this.rest);
		this.rest = this.rest.slice(word.length);
		return word;
	}

	weekday() {
		const word = this.word();
		const form = formOf(word);
		if (form === "" && word !== "") this.failed = true;
		return form;
	}

	month() {
		const i = months.indexOf(lower(this.word()));
		if (i < 0) this.failed = true;
		return i + 1;
	}

	zone() {
		if (this.is("+") || this.is("-")) return this.offset();
		if (!["gmt", "utc", "ut", "z"].includes(lower(this.word()))) this.failed = true;
		return 0n;
	}

	offset() {
		const west = this.is("-");
		this.rest = this.rest.slice(1);
		const hours = this.number(2, 2);
		if (this.is(":")) this.skip(":");
		const minutes = this.number(2, 2);
		if (hours > 23 || minutes > 59) this.failed = true;
		const east = BigInt(hours) * hour + BigInt(minutes) * minute;
		return west ? -east : east;
	}

	// date.go

	imfFixdate(d) {
		d.day = this.number(1, 2);
		this.skip(" ");
		d.month = this.month();
		this.skip(" ");
		d.year = this.number(4, 4);
		this.skip(" ");
		this.timeOfDay(d);
		this.skip(" ");
		d.offset = this.zone();
	}

	rfc850(d) {
		d.day = this.number(1, 2);
		this.skip("-");
		d.month = this.month();
		this.skip("-");
		d.year = this.number(2, 2);
		d.short = true;
		this.skip(" ");
		this.timeOfDay(d);
		this.skip(" ");
		d.offset = this.zone();
	}

	asctime(d) {
		this.skip(" ");
		d.month = this.month();
		this.skip(" ");
		if (this.is(" ")) {
			this.skip(" ");
			d.day = this.number(1, 1);
		} else d.day = this.number(1, 2);
		this.skip(" ");
		this.timeOfDay(d);
		this.skip(" ");
		d.year = this.number(4, 4);
	}

	rfc3339(d) {
		d.year = this.number(4, 4);
		this.skip("-");
		d.month = this.number(2, 2);
		this.skip("-");
		d.day = this.number(2, 2);
		if (this.is(" ")) this.skip(" ");
		else this.skip("t");
		d.hour = this.number(2, 2);
		this.skip(":");
		d.minute = this.number(2, 2);
		if (this.is(":")) {
			this.skip(":");
			d.second = this.number(2, 2);
			d.nanos = this.fraction();
		}
		if (this.is(" ")) this.skip(" ");
		d.offset = this.zone();
	}

	timeOfDay(d) {
		d.hour = this.number(2, 2);
		this.skip(":");
		d.minute = this.number(2, 2);
		this.skip(":");
		d.second = this.number(2, 2);
	}
}

// parseDate returns a moment, or null.
export function parseDate(s, now) {
	const d = civil();
	const sc = new Scanner(s);
	switch (sc.weekday()) {
		case "":
			sc.rfc3339(d);
			break;
		case "long":
			sc.comma();
			sc.rfc850(d);
			break;
		case "short":
			if (sc.is(",")) {
				sc.comma();
				sc.imfFixdate(d);
			} else sc.asctime(d);
	}
	if (d.short) near(d, now);
	return sc.failed || sc.rest !== "" || !valid(d) ? null : time(d);
}

function parseJavaScript(s) {
	const d = civil();
	const sc = new Scanner(s);
	sc.weekday();
	sc.skip(" ");
	d.month = sc.month();
	sc.skip(" ");
	d.day = sc.number(1, 2);
	sc.skip(" ");
	d.year = sc.number(4, 4);
	sc.skip(" ");
	sc.timeOfDay(d);
	sc.skip(" ");
	d.offset = sc.zone();
	if (sc.is("+") || sc.is("-")) d.offset = sc.offset();
	return sc.failed || (sc.rest !== "" && !sc.is(" ")) || !valid(d) ? null : time(d);
}

// civil.go

const civil = () => ({ year: 0, short: false, month: 0, day: 0, hour: 0, minute: 0, second: 0, nanos: 0n, offset: 0n });

const daysIn = (year, month) => new Date(new Date(0).setUTCFullYear(year, month, 0)).getUTCDate();

function valid(d) {
	return d.month >= 1 && d.month <= 12 && d.day >= 1 && d.day <= daysIn(d.year, d.month) && d.hour <= 23 && d.minute <= 59 && d.second <= 60;
}

function time(d) {
	const seconds = new Date(0).setUTCFullYear(d.year, d.month - 1, d.day) / 1000 + d.hour * 3600 + d.minute * 60 + d.second;
	return BigInt(seconds) * second + d.nanos - d.offset;
}

function near(d, now) {
	const at = new Date(Number(now / millisecond));
	const year = at.getUTCFullYear() + 50;
	const latest = BigInt(at.setUTCFullYear(year)) * millisecond + (now % millisecond);
	d.year += Math.floor(new Date(Number(latest / millisecond)).getUTCFullYear() / 100) * 100;
	for (let i = 0; i < 2; i++) if (time(d) > latest) d.year -= 100;
}

// parse.go

export function parse(header, now) {
	return finish(new Reader(header, now).quotas([], true));
}

function finish(limits) {
	limits.forEach(whole);
	return limits.sort(tightness);
}

// limit.go

function until(l) {
	return l.next >= 0n ? l.next : max(l.reset, unknown);
}

function whole(l) {
	if (l.quota > 0 && l.remaining >= l.quota) [l.next, l.reset] = [max(l.next, 0n), max(l.reset, 0n)];
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function tightness(a, b) {
	return compare(left(a), left(b)) || compare(until(b), until(a)) || compare(a.name, b.name) || compare(a.unit, b.unit) ||
		compare(a.partition, b.partition) || compare(a.quota, b.quota) || compare(a.window, b.window) || compare(a.remaining, b.remaining) || compare(a.cost, b.cost);
}

function left(l) {
	if (l.remaining < 0) return 3;
	if (l.remaining === 0) return 0;
	return l.quota <= 0 ? 2 : Math.min(l.remaining / l.quota, 1);
}

const stateless = () => ({ name: "", unit: "", partition: "", quota: 0, window: 0n, remaining: -1, next: unknown, reset: unknown, cost: 0 });

const same = (a, b) => Object.keys(a).every((key) => a[key] === b[key]);

// families.go

const triple = (prefix) => ({ limit: prefix + "Limit", remaining: prefix + "Remaining", reset: prefix + "Reset", after: prefix + "Reset-After" });
const undimensioned = ["Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-"].map(triple);

function familyOf(name) {
	switch (name) {
		case "Age":
			return "age";
		case "Ratelimit":
			return "state";
		case "Ratelimit-Policy":
			return "policy";
	}
	const family = undimensioned.find((names) => Object.values(names).includes(name));
	if (family) return family;
	return name.startsWith("X-Ratelimit-") || name.startsWith("Anthropic-Ratelimit-") ? "dimension" : null;
}

function dimensionOf(name) {
	const x = name.startsWith("X-Ratelimit-");
	const prefix = x ? "X-Ratelimit-" : "Anthropic-Ratelimit-";
	const rest = name.slice(prefix.length);
	for (const part of ["Reset", "Remaining", "Limit"]) {
		const n = rest.length - part.length - 1;
		if (n < 1) continue;
		if (x && rest.startsWith(part + "-")) return [{ prefix, word: rest.slice(part.length + 1), last: true }, part];
		if (rest.slice(n) === "-" + part) return [{ prefix, word: rest.slice(0, n), last: false }, part];
	}
	return [null, ""];
}

function unitOf(word) {
	const requests = word === "requests" || (word.endsWith("-requests") && word !== "concurrent-requests");
	return requests || windowOf(word) > 0n ? "" : word;
}

const windows = { second, minute, hour, day };
const windowOf = (word) => (Object.hasOwn(windows, word) ? windows[word] : 0n);

// quotas.go

function readQuota(l, policies, lines) {
	if (lines.length === 0) return;
	const n = policies.length;
	const read = readPolicies(lines.slice(0, 1), n);
	if (read.length > 0 && !read[0].named) {
		[l.quota, l.window] = [read[0].limit.quota, read[0].limit.window];
		policies.push(...read.slice(1));
		return;
	}
	l.quota = Math.max(leftOf(lines.slice(0, 1)).least, 0);
}

function merged(limits, l) {
	for (const m of limits.slice(0, mostPolicies)) {
		const apart = m.reset > l.reset ? m.reset - l.reset : l.reset - m.reset;
		if (m.quota === l.quota && l.quota > 0 && m.remaining === l.remaining && l.remaining >= 0 &&
			(m.reset === unknown || l.reset === unknown || apart <= second) &&
			(m.window === 0n || l.window === 0n || m.window === l.window)) {
			[m.window, m.reset] = [max(m.window, l.window), max(m.reset, l.reset)];
			return true;
		}
	}
	return false;
}

function leftOf(lines) {
	const all = { least: -1, sentinel: false };
	for (const line of lines) {
		const text = trim(line.split(/[;,]/)[0]);
		all.sentinel ||= text.startsWith("-");
		const [d, rest, ok] = cutDecimal(text);
		if (!ok || rest !== "") continue;
		const n = floor(d);
		if (all.least < 0 || n < all.least) all.least = n;
	}
	return all;
}

// state.go

function readStates(lines) {
	if (lines === null) return [];
	const s = new Structured(lines.join(", "));
	const states = [];
	while (s.next()) states.push(s.state());
	if (!s.failed) return states;
	const l = readState07(s.in);
	return l ? [l] : [];
}

function readState07(text) {
	const s = new Structured(text);
	const has = {};
	while (s.next()) {
		const key = s.key();
		has[key] = s.member();
	}
	const l = stateless();
	l.quota = s.count(has.limit, 0);
	l.remaining = s.count(has.remaining, -1);
	l.reset = s.seconds(has.reset, unknown);
	return !s.failed && has.limit && has.reset ? l : null;
}

// policy.go

const mostPolicies = 64;

// readPolicies reads those that there is room for beside n.
function readPolicies(lines, n) {
	if (lines === null) return [];
	const s = new Structured(lines.join(", "));
	const policies = [];
	while (s.next()) {
		const p = s.policy();
		if (n + policies.length < mostPolicies) policies.push(p);
	}
	return s.failed ? [] : policies;
}

function isOf(p, l) {
	const q = p.limit;
	if (l.name === "" && l.quota > 0) return l.quota === q.quota && (l.window === 0n || l.window === q.window) && !(p.named && p.told);
	return p.named && l.name === q.name && (q.partition === "" || l.partition === "" || l.partition === q.partition);
}

function describe(states, policies) {
	for (const p of policies)
		for (const l of states.slice(0, mostPolicies))
			if (isOf(p, l)) {
				const { name, unit, quota, window } = p.limit;
				Object.assign(l, { name, unit, quota, window });
				p.told = true;
			}
}

// structured.go

class Structured {
	at = 0;
	begun = false;
	failed = false;

	constructor(text) {
		this.in = text;
	}

	next() {
		if (!this.begun) {
			this.begun = true;
			this.skipAll(" ");
			return !this.end();
		}
		this.skipAll(" \t");
		if (this.failed || this.end()) return false;
		this.expect(",");
		this.skipAll(" \t");
		if (this.end()) this.failed = true;
		return !this.failed;
	}

	// parameter returns the key of the next parameter, or null.
	parameter() {
		if (this.failed || !this.is(";")) return null;
		this.expect(";");
		this.skipAll(" ");
		const key = this.key();
		return this.failed ? null : key;
	}

	value() {
		if (!this.is("=")) return { kind: "another" };
		this.expect("=");
		return this.bareItem();
	}

	member() {
		let value;
		if (this.in.startsWith("=(", this.at)) {
			this.expect("=");
			this.skipInnerList();
			value = { kind: "another" };
		} else value = this.value();
		this.parameters();
		return value;
	}

	// parameters returns all by their keys. Of those of one key the last counts.
	parameters() {
		const all = new Map();
		for (let key = this.parameter(); key !== null; key = this.parameter()) all.set(key, this.value());
		return all;
	}

	skipInnerList() {
		this.expect("(");
		for (this.skipAll(" "); !this.failed && !this.is(")"); this.skipAll(" ")) {
			this.bareItem();
			this.parameters();
			if (!this.is(" ") && !this.is(")")) this.failed = true;
		}
		this.expect(")");
	}

	key() {
		return this.match(/[a-z*][a-z0-9_.*-]*/y);
	}

	state() {
		const item = this.bareItem();
		const has = this.parameters();
		this.failed ||= item.kind !== "string" || (!has.has("r") && !has.has("a"));
		const l = stateless();
		l.name = this.text(item);
		l.partition = this.bytes(has.get("pk"));
		l.remaining = this.count(has.get("r"), -1);
		const left = this.count(has.get("a"), -1);
		if (l.remaining < 0 || (left >= 0 && left < l.remaining)) l.remaining = left;
		l.next = max(this.seconds(has.get("t"), unknown), this.seconds(has.get("w"), unknown));
		l.cost = this.count(has.get("c"), 0);
		return l;
	}

	policy() {
		const item = this.bareItem();
		const has = this.parameters();
		const p = { limit: stateless(), named: item.kind === "string", told: false };
		p.limit.window = this.seconds(has.get("w"), 0n);
		if (!p.named) {
			p.limit.quota = this.count(item, 0);
			return p;
		}
		p.limit.name = this.text(item);
		p.limit.unit = this.text(has.get("qu"));
		p.limit.partition = this.bytes(has.get("pk"));
		if (p.limit.unit === "requests") p.limit.unit = "";
		p.limit.quota = this.count(has.get("q"), 0);
		this.failed ||= !has.has("q");
		return p;
	}

	count(b, n) {
		if (!b) return n;
		if (b.kind !== "integer" || b.integer < 0) {
			this.failed = true;
			return n;
		}
		return b.integer;
	}

	seconds(b, d) {
		const n = this.count(b, -1);
		return n < 0 ? d : min(BigInt(n) * second, maxWait);
	}

	text(b) {
		if (!b) return "";
		if (b.kind !== "string") {
			this.failed = true;
			return "";
		}
		return b.text.replace(/\\([\\"])/g, "$1");
	}

	bytes(b) {
		if (!b) return "";
		const text = b.kind === "bytes" ? b.text.replace(/=+$/, "") : "";
		if (b.kind !== "bytes" || !/^[A-Za-z0-9+/]*$/.test(text) || text.length % 4 === 1) {
			this.failed = true;
			return "";
		}
		return atob(text);
	}

	bareItem() {
		const c = this.peek();
		if (/^[-0-9]/.test(c)) return this.number();
		if (c === '"') return { kind: "string", text: this.string() };
		if (c === ":") return { kind: "bytes", text: this.byteSequence() };
		if (/^[*A-Za-z]/.test(c)) this.match(/[*A-Za-z][A-Za-z0-9!#$%&'*+.^_`|~:/-]*/y);
		else if (c === "?") this.match(/\?[01]/y);
		else if (c === "@") this.date();
		else if (c === "%") this.displayString();
		else this.failed = true;
		return { kind: "another" };
	}

	number() {
		const text = this.match(/-?[0-9]+(\.[0-9]*)?/y);
		const [whole, places] = text.replace("-", "").split(".");
		if (places === undefined) {
			this.failed ||= whole.length > 15;
			return { kind: "integer", integer: Number(text) };
		}
		this.failed ||= whole.length > 12 || places.length < 1 || places.length > 3;
		return { kind: "another" };
	}

	string() {
		return this.match(/"((?:[ !#-[\]-~]|\\[\\"])*)"/y, 1);
	}

	byteSequence() {
		return this.match(/:([^:]*):/y, 1);
	}

	date() {
		this.expect("@");
		if (this.failed || this.number().kind !== "integer") this.failed = true;
	}

	displayString() {
		const text = this.match(/%"((?:%[0-9a-f]{2}|[ !#$&-~])*)"/y, 1);
		const bytes = text.match(/%..|./g)?.map((c) => (c.length > 1 ? parseInt(c.slice(1), 16) : c.charCodeAt(0))) ?? [];
		try {
			new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
		} catch {
			this.failed = true;
		}
	}

	// match reads what a sticky pattern matches, and returns a part of it.
	match(pattern, part = 0) {
		pattern.lastIndex = this.at;
		const found = pattern.exec(this.in);
		if (!found) {
			this.failed = true;
			return "";
		}
		this.at = pattern.lastIndex;
		return found[part];
	}

	end() {
		return this.at >= this.in.length;
	}

	peek() {
		return this.in[this.at] ?? "";
	}

	is(c) {
		return this.peek() === c;
	}

	expect(c) {
		if (this.is(c)) this.at++;
		else this.failed = true;
	}

	skipAll(characters) {
		while (!this.end() && characters.includes(this.peek())) this.at++;
	}
}

// sources.go

export function sources(status, header, now) {
	const [asked, ok] = wait(status, header, now);
	if (!ok) return [];
	const says = (h) => {
		const [other, told] = wait(status, h, now);
		return told && other === asked;
	};
	const names = [...header.keys()].sort().filter((name) => name !== "Date" && name !== "Age");
	const without = (name) => new Map([...header].filter(([other]) => other !== name));
	const only = (name) => new Map([...header].filter(([other]) => [name, "Date", "Age"].includes(other)));
	const needed = names.filter((name) => !says(without(name)));
	return needed.length > 0 ? needed : names.filter((name) => says(only(name)));
}

// profile.go: profiles are as Go's JSON has them.

export const meanings = ["unsaid", "limited", "retry", "final"];
const [unsaid, limited, , final] = [0, 1, 2, 3];
const forms = ["reset", "delay", "milliseconds", "duration", "javaScript", "window", "minutes"];

export function judge(profile, status, header, body, now) {
	const e = new Evidence(profile, status, header, body, now);
	let meaning = e.meaning();
	let found = meaning === final ? unknown : e.wait(meaning);
	if (found === impossible) [meaning, found] = [final, unknown];
	return { meaning, wait: max(found, 0n), known: found !== unknown };
}

export function parseFor(profile, header, now) {
	const e = new Evidence(profile, 200, header, "", now);
	return finish(e.reader.quotas(e.quotas([]), true));
}

function namesField(profile, name) {
	return (profile.Delays ?? []).some((d) => d.Header === name) || (profile.Quotas ?? []).some((q) =>
		q.In !== "" ? matches(name, q.In) : [q.Limit, q.Remaining, q.Used, q.Reset, q.Window].includes(name));
}

// evidence.go

class Evidence {
	constructor(profile, status, header, body, now) {
		Object.assign(this, { profile, status, header, body: new Body(body) });
		this.reader = new Reader(new Map([...header].filter(([name]) => !namesField(profile, name))), now);
	}

	meaning() {
		const sign = (this.profile.Signs ?? []).find((s) => this.shows(s));
		return sign ? sign.Means : this.status === 429 ? limited : unsaid;
	}

	shows(s) {
		return this.mayShow(s) && (s.Body === "" || this.body.values(s.Body).some((value) => isOneOf(value, s.Is ?? [])));
	}

	mayShow(s) {
		const statuses = s.Status ?? [];
		if (statuses.length === 0 ? this.status >= 100 && this.status < 400 : !statuses.includes(this.status)) return false;
		if (s.Without !== "" && this.header.has(s.Without)) return false;
		if (s.Spent && !this.spent()) return false;
		if (s.Header === "") return true;
		const is = s.Body !== "" ? [] : s.Is ?? [];
		return (this.header.get(s.Header) ?? []).some((line) => isOneOf(trim(line), is));
	}

	spent() {
		return this.reader.quotas(this.quotas([]), false).some((l) => l.remaining === 0);
	}

	wait(meaning) {
		const certain = meaning === limited || limitsOnly(this.status);
		const refused = certain || this.status < 100 || this.status >= 400;
		if (!refused && this.status < 300) return unknown;
		if (!refused) this.body = new Body("");
		const [coarse, fine] = [this.reader.coarse(), max(this.reader.fine(), this.delay())];
		let found = refine(coarse, fine);
		if (found === unknown) found = this.reader.lastResort();
		else if (certain && roundedDown(coarse, fine)) found = unrounded(found, this.reader.quotas(this.quotas([]), false));
		if (found === unknown && refused) found = this.untilRestored(certain);
		if (found === unknown && meaning === limited && this.profile.Otherwise > 0) found = min(BigInt(this.profile.Otherwise), maxWait);
		return found;
	}

	untilRestored(certain) {
		const found = this.cost();
		if (found !== unknown) return found;
		return spent(this.reader.quotas(this.quotas([]), false), certain);
	}

	delay() {
		let longest = unknown;
		for (const d of this.profile.Delays ?? []) {
			const lines = this.header.get(d.Header) ?? [];
			const within = (body) => body.values(d.Body).map((value) => this.reader.value(value, forms[d.Form]));
			let found;
			if (d.Body === "") found = this.reader.longest(lines, forms[d.Form]);
			else found = max(unknown, ...(d.Header === "" ? within(this.body) : lines.flatMap((line) => within(new Body(line)))));
			if (found > 0n || (found === 0n && !d.NotZero)) longest = max(longest, found);
		}
		return longest;
	}

	quotas(dst) {
		if (age(this.header.get("Age") ?? []) > 0n) return dst;
		for (const q of this.profile.Quotas ?? []) {
			if (q.In === "") this.quota(dst, q, q.Name, this.header);
			else
				for (const [name, lines] of this.header)
					if (matches(name, q.In)) {
						const called = q.In.endsWith("*") ? name.slice(q.In.length - 1).toLowerCase() : q.Name;
						for (const line of lines) this.quota(dst, q, called, recordOf(line));
					}
		}
		return dst;
	}

	quota(dst, q, name, record) {
		const of = (field) => record.get(field) ?? [];
		const l = stateless();
		l.remaining = leftOf(of(q.Remaining)).least;
		l.quota = Math.max(leftOf(of(q.Limit)).least, 0);
		const used = usage(of(q.Used));
		if (used) [l.remaining, l.quota] = [Math.max(used.limit - used.used, 0), used.limit];
		l.reset = this.reader.longest(of(q.Reset), forms[q.Form]);
		l.window = max(this.reader.longest(of(q.Window), forms[q.WindowForm]), 0n);
		if (!same(l, stateless())) dst.push({ ...l, name });
	}

	cost() {
		const c = this.profile.Cost;
		if (!c) return unknown;
		const [requested, available, rate, maximum] = [c.Requested, c.Available, c.Rate, c.Maximum].map((path) => this.body.number(path));
		if (requested === null) return unknown;
		if (maximum !== null && less(maximum, requested)) return impossible;
		if (available === null || rate === null || rate.n === 0n) return unknown;
		// (requested − available) / rate seconds, in milliseconds rounded up
		const missing = requested.n * available.d - available.n * requested.d;
		if (missing <= 0n) return 0n;
		const [n, d] = [missing * rate.d * 1000n, requested.d * available.d * rate.n];
		return min(((n + d - 1n) / d) * millisecond, maxWait);
	}
}

const less = (a, b) => a.n * b.d < b.n * a.d;

function usage(lines) {
	for (const line of lines) {
		const [head, tail, ok] = cut(line, "/");
		const used = leftOf([head]).least, limit = leftOf([tail]).least;
		if (ok && used >= 0 && limit >= 0) return { used, limit };
	}
	return null;
}

// document.go

class Body {
	constructor(text) {
		this.text = text;
	}

	values(path) {
		if (path === "" || this.text === "") return [];
		if (path[0] === "<") return this.elements(path);
		return walk(decode(this.text), path.split("."));
	}

	elements(tag) {
		const all = [];
		for (let text = this.text; ; ) {
			const [, after, begun] = cut(text, tag);
			const [value, rest, ended] = cut(after, "</" + tag.slice(1));
			if (!begun || !ended) return all;
			all.push(value.trim());
			text = rest;
		}
	}

	number(path) {
		const [value] = this.values(path);
		if (value === undefined) return null;
		const [number, rest, ok] = cutDecimal(value);
		if (!ok || rest !== "" || value.length > 40) return null;
		return { n: BigInt("0" + number.whole + number.fraction), d: 10n ** BigInt(number.fraction.length) };
	}
}

// A Literal is a number as it was written.
class Literal {
	constructor(text) {
		this.text = text;
	}
}

function decode(text) {
	try {
		return JSON.parse(text, (key, value, context) => (typeof value === "number" ? new Literal(context?.source ?? String(value)) : value));
	} catch {
		return null;
	}
}

function walk(node, path) {
	if (path.length === 0) {
		if (node instanceof Literal) return [node.text];
		return typeof node === "string" || typeof node === "boolean" ? [String(node)] : [];
	}
	const [step, ...rest] = path;
	if (Array.isArray(node)) return step === "*" ? node.flatMap((element) => walk(element, rest)) : [];
	if (node === null || typeof node !== "object" || node instanceof Literal) return [];
	if (step === "*") return Object.values(node).flatMap((member) => walk(member, rest));
	if (!Object.hasOwn(node, step)) return [];
	return walk(node[step], rest);
}

function isOneOf(value, patterns) {
	if (patterns.length === 0) return value !== "";
	const [code] = cut(value.slice(value.lastIndexOf("#") + 1), ":");
	return patterns.some((pattern) => matches(value, pattern) || code === pattern);
}

function matches(value, pattern) {
	const open = pattern.endsWith("*");
	const head = open ? pattern.slice(0, -1) : pattern;
	const floating = head.startsWith("*");
	if (open && floating) return value.includes(head.slice(1));
	if (open) return value.startsWith(head);
	return floating ? value.endsWith(head.slice(1)) : value === pattern;
}

function recordOf(line) {
	const record = new Map();
	const text = trim(line);
	if (text.startsWith("{")) {
		for (const [key, node] of Object.entries(decode(text) ?? {})) {
			const [value] = walk(node, []);
			if (value !== undefined) record.set(key, [value]);
		}
		return record;
	}
	for (const pair of text.split(";")) {
		const [key, value, ok] = cut(pair, "=");
		if (ok) record.set(trim(key), [...(record.get(trim(key)) ?? []), trim(value)]);
	}
	return record;
}
