// Which page is shown, and what keeps it up to date.

import * as calls from "./calls.mjs";
import * as deployment from "./deployment.mjs";
import { h, patch } from "./dom.mjs";
import * as form from "./form.mjs";
import { clock } from "./format.mjs";
import * as graph from "./graph.mjs";
import { History } from "./history.mjs";
import { Refused, Stream, setToken, token } from "./live.mjs";
import * as models from "./models.mjs";
import * as overview from "./overview.mjs";
import * as scaling from "./scaling.mjs";

const PAGES = [
  ["", overview], ["graph", graph], ["calls", calls], ["models", models], ["scaling", scaling],
  ["try", form],
];
const NAMED = new Map([...PAGES, ["deployments", deployment]]);

const place = (id) => document.getElementById(id);
const shown = {
  page: overview, parameters: [], overview: null, details: undefined, problem: "", trouble: "",
  isPaused: false, asksToken: false,
};
const history = new History();
const stream = new Stream("/api/events", onOverview, onTrouble);

function onOverview(found) {
  history.add(found);
  tellBad(found);
  Object.assign(shown, { overview: found, trouble: "", asksToken: false });
  draw();
  const { isSettled } = shown.page;
  if (isSettled === undefined || !isSettled(shown.parameters, shown.details, found)) {
    refresh();
  }
}

function onTrouble(error) {
  shown.asksToken = error instanceof Refused && error.status === 401;
  if (shown.trouble === "") {
    say(`No news of the mesh: ${error.message}`);
  }
  shown.trouble = error.message;
  draw();
}

/** Speaks of what has become bad since the last look, and of nothing else that changes. */
function tellBad(found) {
  const before = new Set((shown.overview?.events ?? []).map((event) => event.text));
  const bad = found.events.filter((event) => event.level === "bad" && !before.has(event.text));
  if (shown.overview !== null && bad.length > 0) {
    say(`${bad[0].where}: ${bad[0].text}`);
  } else if (shown.trouble !== "") {
    say("The mesh answers again.");
  }
}

function say(words) {
  place("spoken").textContent = words;
}

async function refresh() {
  const { page, parameters } = shown;
  if (page.refresh === undefined) {
    return;
  }
  let found = {};
  try {
    found = { details: await page.refresh(parameters), problem: "" };
  } catch (error) {
    found = { problem: error.message };
  }
  // Another page may have been chosen meanwhile.
  if (shown.page === page && shown.parameters.join() === parameters.join()) {
    Object.assign(shown, found);
    draw();
  }
}

function draw() {
  patch(place("live"), live());
  const name = titleOf();
  place("title").textContent = name;
  document.title = `${name} · pyserve`;
  patch(place("pages"), PAGES.map(([path, page]) => h("li", { key: path },
    h("a", { href: `#/${path}`, "aria-current": page === shown.page ? "page" : null }, nameOf(page)))));
  patch(place("page"), content());
}

function titleOf() {
  const { title } = shown.page;
  return typeof title === "string" ? title : title(shown.parameters);
}

/** What leads to a page: its title without parameters. */
function nameOf(page) {
  return typeof page.title === "string" ? page.title : page.title([]);
}

function live() {
  if (shown.trouble !== "") {
    return h("span", { class: "state bad" }, `no news: ${shown.trouble}`);
  }
  if (shown.overview === null) {
    return h("span", { class: "state warning" }, "waiting for a first look");
  }
  const at = `${shown.overview.version}, ${clock(shown.overview.at)}`;
  return h("span", { class: `state ${shown.isPaused ? "warning" : "fine"}` },
    shown.isPaused ? `paused at ${at}` : at);
}

function content() {
  if (shown.asksToken) {
    return tokenForm();
  }
  if (shown.overview === null) {
    return h("p", { class: "none" }, "Loading.");
  }
  return [
    shown.problem !== "" && h("p", { class: "notice", key: "problem" }, shown.problem),
    h("div", { key: `${location.hash}` },
      shown.page.render({ ...shown, history, redraw: draw })),
  ];
}

function tokenForm() {
  const submit = (event) => {
    event.preventDefault();
    setToken(place("token").value);
    Object.assign(shown, { asksToken: false, trouble: "" });
    restart();
  };
  return h("form", { key: "token", onsubmit: submit, class: "try" },
    h("p", null, "This server asks for the viewing key of its mesh: what `pyserve viewing-key` "
      + "prints where the mesh token is. It is kept until this tab closes."),
    token() !== "" && h("p", { class: "bad-text" }, "That was not the viewing key of this mesh."),
    h("div", { class: "field" }, h("label", { for: "token" }, "Viewing key"),
      h("input", { id: "token", type: "password", autocomplete: "off" })),
    h("button", { type: "submit", class: "main" }, "Show the mesh"));
}

function restart() {
  stream.stop();
  if (!document.hidden && !shown.isPaused) {
    stream.start();
  }
  draw();
}

function navigate() {
  const [path, ...parameters] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const page = NAMED.get(path) ?? overview;
  Object.assign(shown, { page, parameters, details: undefined, problem: "" });
  draw();
  refresh();
}

place("pause").onclick = () => {
  shown.isPaused = !shown.isPaused;
  place("pause").setAttribute("aria-pressed", String(shown.isPaused));
  restart();
};
document.onvisibilitychange = restart;
addEventListener("hashchange", () => {
  navigate();
  place("title").focus();
  scrollTo(0, 0);
});
navigate();
restart();
