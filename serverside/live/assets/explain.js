// What a response asks its client for. The page's own server says so; what it says gets
// into the document as text only.

const byId = (id) => document.getElementById(id);

const pause = 150; // milliseconds without typing, after which the server is asked
let timer = 0;
let asked = 0; // how many questions were asked: only the latest is answered on the page

async function ask() {
	const question = {};
	for (const name of ["text", "status", "received", "vendor"]) question[name] = byId(name).value.trim();
	const id = ++asked;
	let answer = null, failure = "";
	if (question.text !== "") {
		try {
			const response = await fetch("explain", {
				method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
			if (response.ok) answer = await response.json();
			else failure = `Not understood: ${await response.text()}`;
		} catch {
			failure = "The server does not answer.";
		}
	}
	if (id === asked) show(answer, failure);
}

// moment is a time by the browser's clock, to a second.
const moment = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });

function make(name, className, text) {
	const node = document.createElement(name);
	if (className) node.className = className;
	node.textContent = text;
	return node;
}

function quotaRow(q) {
	const row = document.createElement("tr");
	const head = make("th", "", q.name);
	head.scope = "row";
	row.append(head,
		make("td", "n", q.left || "not told"),
		make("td", "n", q.of ? `${q.of} ${q.unit}` : "not told"),
		make("td", "", q.per),
		make("td", "", q.next),
		make("td", "", q.reset ? `${q.reset}: ${moment(q.whole)}` : ""));
	return row;
}

// show shows an answer; or if that is null, why there is none.
function show(answer, failure) {
	const a = { assumed: [], fields: [], quotas: [], meaning: "", client: "", call: "", ...answer };
	if (!answer) byId("wait").textContent = failure;
	else byId("wait").textContent = a.known ? `Wait ${a.wait}: until ${moment(a.until)}.` : "It asks for no wait.";
	byId("assumed").textContent = a.assumed.join(" ");
	byId("meaning").textContent = a.meaning;
	byId("fields").textContent = a.fields.length ? `It says so in ${a.fields.join(", ")}.` : "";
	byId("quotas").replaceChildren(...a.quotas.map(quotaRow));
	byId("quotas-region").hidden = !a.quotas.length;
	byId("client").textContent = a.client;
	byId("call").textContent = a.call;
	byId("code").hidden = !answer;
}

byId("form").addEventListener("submit", (event) => event.preventDefault());
byId("form").addEventListener("input", () => {
	clearTimeout(timer);
	timer = setTimeout(ask, pause);
});
ask(); // of what the browser has kept
