// Shows what a response asks of its client. The page's own server explains it. The explanation goes
// into the document only as text.

const byId = (id) => document.getElementById(id);

const pause = 150; // milliseconds without typing before the server is asked
let timer = 0;
let asked = 0; // number of questions so far; only the latest answer is shown

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

// moment formats a time by the browser's clock.
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
		make("td", "n", q.left || "unknown"),
		make("td", "n", q.of ? `${q.of} ${q.unit}` : "unknown"),
		make("td", "", q.per),
		make("td", "", q.next),
		make("td", "", q.reset ? `${q.reset}: ${moment(q.whole)}` : ""));
	return row;
}

// show shows an answer or, if that is null, the failure.
function show(answer, failure) {
	const a = { assumed: [], fields: [], quotas: [], meaning: "", client: "", call: "", ...answer };
	if (!answer) byId("wait").textContent = failure;
	else byId("wait").textContent = a.known ? `Wait ${a.wait}: until ${moment(a.until)}.` : "It does not ask to wait.";
	byId("assumed").textContent = a.assumed.join(" ");
	byId("meaning").textContent = a.meaning;
	byId("fields").textContent = a.fields.length ? `This is in ${a.fields.join(", ")}.` : "";
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
ask(); // with the text that the browser has kept
