// The page: calls as they come, a call opened, savings, settings. Whatever comes from a payload is put into text nodes
// and attributes that hold text, never into HTML.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { calls: [], chosen: 0, open: null, cuts: null, about: null, connected: false };
const number = new Intl.NumberFormat("en");
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

// Makes an element: make("td", {class: "number"}, "text", child, …).
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

async function ask(address, values = {}) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value != null));
  const response = await fetch(`${address}?${query}`);
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.message), answer);
  return answer;
}

const failure = (error) =>
  make("p", { class: "failure" }, error.code ? `${error.code}: ${error.message} ${error.hint ?? ""}` : String(error.message));

// -- views ------------------------------------------------------------------------------------------------------

function view(name) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== name;
  for (const button of document.querySelectorAll("[data-view]")) {
    if (button.dataset.view === name) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  if (name === "savings") savings();
  if (name === "settings") settings();
}

// -- calls ------------------------------------------------------------------------------------------------------

const outcome = (call) =>
  call.observed ? ["observed", ""] : call.code ? [call.code, "cut"] : call.cuts ? ["cut", "part"] : ["whole", "kept"];

function visible() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  return state.calls.filter((call) => {
    const text = `${call.tool} ${call.client} ${call.server} ${call.code}`.toLowerCase();
    return (!$("only-cut").checked || call.cuts) && words.every((word) => text.includes(word));
  });
}

function row(call) {
  const [text, kind] = outcome(call);
  const when = new Date(call.at * 1000);
  const tokens = call.before === call.after ? number.format(call.after) : `${number.format(call.before)} → ${number.format(call.after)}`;
  return make("tr", { "data-number": call.number, tabindex: call.number === state.chosen ? 0 : -1, "aria-selected": call.number === state.chosen },
    make("td", null, make("time", { datetime: when.toISOString() }, when.toLocaleTimeString())),
    make("td", null, call.tool), make("td", null, call.client || "–"),
    make("td", { class: "number" }, tokens + (call.unit === "bytes" ? " B" : "")), make("td", { class: kind }, text));
}

function calls() {
  const shown = visible();
  if (!shown.some((call) => call.number === state.chosen)) state.chosen = shown[0]?.number ?? 0;
  const table = document.querySelector("#call-table tbody");
  const focused = table.contains(document.activeElement);
  table.replaceChildren(...shown.map(row));
  if (focused) table.querySelector('[tabindex="0"]')?.focus();
  $("no-calls").hidden = state.calls.length > 0;
  $("call-table").hidden = state.calls.length === 0;
  summary();
}

function summary() {
  const saved = state.calls.filter((call) => !call.observed && call.unit === "tokens").reduce((sum, call) => sum + call.before - call.after, 0);
  const cut = state.calls.filter((call) => call.cuts).length;
  const live = state.connected ? "" : " – not connected";
  $("summary").textContent = `${number.format(state.calls.length)} calls, ${number.format(cut)} cut, ${number.format(saved)} tokens saved${live}`;
}

function choose(step) {
  const shown = visible();
  const at = shown.findIndex((call) => call.number === state.chosen);
  const next = shown[Math.max(0, Math.min(shown.length - 1, at + step))];
  if (!next) return;
  state.chosen = next.number;
  calls();
  document.querySelector('#call-table [tabindex="0"]')?.focus();
}

function listen() {
  const source = new EventSource(`events?after=${state.calls[0]?.number ?? 0}`);
  source.onopen = () => { state.connected = true; summary(); };
  source.onmessage = (event) => {
    const call = JSON.parse(event.data);
    if (call.number <= (state.calls[0]?.number ?? 0)) return;
    state.calls.unshift(call);
    calls();
  };
  source.onerror = () => {
    state.connected = false;
    summary();
    source.close();
    setTimeout(listen, 1000);
  };
}

async function older() {
  const found = await ask("calls", { before: state.calls.at(-1).number });
  state.calls.push(...found);
  $("older").hidden = found.length === 0;
  calls();
}

// -- a call, opened ---------------------------------------------------------------------------------------------

async function open(call) {
  state.open = call;
  state.chosen = call.number;
  $("calls").classList.add("open");
  $("detail").hidden = false;
  $("detail-title").textContent = call.tool;
  const facts = {
    Client: call.client || "unknown", Server: call.server || "–", Dialect: call.dialect,
    Size: `${number.format(call.bytesBefore)} bytes, ${number.format(call.bytesAfter)} sent`,
    Time: [call.toolMs && `tool ${call.toolMs.toFixed(1)} ms`, call.sealMs && `envelope ${call.sealMs.toFixed(1)} ms`].filter(Boolean).join(", ") || "–",
    Handle: call.handle || "–",
  };
  $("facts").replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [make("dt", null, name), make("dd", null, value)]));
  $("stored").hidden = !call.handle;
  $("not-stored").hidden = Boolean(call.handle);
  $("not-stored").textContent = call.stored
    ? "It was stored, but is no longer there: it has expired, or is in another vault."
    : "It passed unchanged, so none of it was stored.";
  calls();
  $("detail").focus();
  if (!call.handle) return;
  const known = [...$("client").options].find((option) => option.value && call.client.toLowerCase().startsWith(option.value.replace("*", "")));
  $("client").value = known?.value ?? "";
  $("dialect").value = call.dialect;
  $("tokens").value = call.unit === "tokens" && call.budget ? call.budget : "";
  $("answer").replaceChildren();
  tab("tab-payload");
  await lanes();
}

function close() {
  state.open = null;
  $("calls").classList.remove("open");
  $("detail").hidden = true;
  document.querySelector('#call-table [tabindex="0"]')?.focus();
}

function tab(id) {
  for (const each of document.querySelectorAll('[role="tab"]')) {
    const chosen = each.id === id;
    each.setAttribute("aria-selected", chosen);
    each.tabIndex = chosen ? 0 : -1;
    $(each.getAttribute("aria-controls")).hidden = !chosen;
  }
}

async function lanes() {
  const call = state.open;
  try {
    const asked = { handle: call.handle, client: $("client").value, dialect: $("dialect").value, tokens: $("tokens").value };
    state.asked = asked;
    const made = await ask("lanes", asked);
    // Another call may have been opened in the meantime, or another client chosen.
    if (state.open !== call || state.asked !== asked) return;
    state.cuts = made.structured ? [...made.structuredCuts] : [...made.contentCuts];
    $("shown").replaceChildren(...shownLanes(made));
  } catch (error) {
    state.cuts = null;
    $("shown").replaceChildren(failure(error));
  }
  await tree(call);
}

function shownLanes(made) {
  const parts = [make("p", null, `${number.format(made.used)} of ${number.format(made.limit)} ${made.unit}; the whole has about ${number.format(made.whole)}.`)];
  parts.push(...profiles(made));
  const showsText = made.shows !== "structured" || !made.structured;
  const showsStructure = made.shows !== "content" && made.structured;
  parts.push(make("h3", null, showsText ? "Text" : "Text, which this client doesn't show its model"));
  for (const block of made.content) parts.push(contentBlock(block));
  if (made.structured) {
    parts.push(make("h3", null, showsStructure ? "Structure" : "Structure, which this client doesn't show its model"));
    parts.push(make("pre", { tabindex: 0 }, pretty(made.structured)));
  }
  return parts;
}

// What the notice says of the lists that were cut.
function profiles(made) {
  for (const text of [made.structured, ...made.content.map((block) => block.text)]) {
    let found;
    try { found = JSON.parse(text)._envelope?.profile; } catch { continue; }
    if (!Array.isArray(found)) continue;
    return found.flatMap((each) => [
      make("h3", null, `What ${each.path || "the list"} holds: ${number.format(each.rows)} rows${each.sampled ? ", sampled" : ""}`),
      recordTable(Object.entries(each.fields ?? {}).map(([field, holds]) => ({ field, holds }))),
    ]);
  }
  return [];
}

function contentBlock(block) {
  if (block.type === "image" && IMAGES.includes(block.mimeType)) {
    return make("img", { src: `data:${block.mimeType};base64,${block.data}`, alt: "An image in the result" });
  }
  return make("pre", { tabindex: 0 }, block.type === "text" ? pretty(block.text) : JSON.stringify(block, null, 1));
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 1); } catch { return text; }
}

// -- the payload as a tree --------------------------------------------------------------------------------------

async function tree(call) {
  try {
    const root = await ask("tree", { handle: call.handle, path: "" });
    if (state.open !== call) return;
    const item = treeItem({ ...root, name: "result" }, { index: 0 });
    item.tabIndex = 0;
    $("tree").replaceChildren(item);
    await expand(item);
    // A result is often one list in an object.
    const inner = item.querySelectorAll('[role="treeitem"]');
    if (inner.length === 1) await expand(inner[0]);
  } catch (error) {
    $("tree").replaceChildren(make("li", null, failure(error)));
  }
}

// What became of a value: the cut at the nearest path above it decides.
function fate(path, index) {
  if (!state.cuts) return "";
  for (const cut of state.cuts) {
    if (cut.path === path) return "part";
    if (path === "" || cut.path.startsWith(`${path}/`)) continue;
    if (path.startsWith(`${cut.path}/`) || cut.path === "") {
      const step = path.slice(cut.path.length + 1).split("/")[0];
      const at = path === `${cut.path}/${step}` ? index : Number(step);
      if (cut.kind === "items" && !isKept(cut, at)) return "cut";
      if (cut.kind !== "items" && cut.kind !== "characters" && cut.kept === 0) return "cut";
    }
  }
  return state.cuts.some((cut) => path === "" || cut.path.startsWith(`${path}/`)) ? "part" : "kept";
}

function isKept(cut, at) {
  if (!cut.rows) return at < cut.kept;
  return String(cut.rows).split(",").some((range) => {
    const [first, last] = range.trim().split("-").map(Number);
    return at >= first && at <= (last ?? first);
  });
}

function treeItem(value, { index }) {
  const isParent = (value.kind === "object" || value.kind === "array") && value.total > 0;
  const count = { array: "item", object: "member" }[value.kind];
  const text = count ? `${number.format(value.total)} ${count}${value.total === 1 ? "" : "s"}` : value.text + (value.text.length < value.total ? "…" : "");
  const became = fate(value.path, index);
  const inside = isParent && value.preview ? make("span", { class: "preview" }, value.preview) : null;
  const item = make("li", { role: "treeitem", tabindex: -1, "aria-expanded": isParent ? "false" : null, "data-path": value.path },
    make("span", { class: became }, `${value.name}: `, make("span", { class: "value" }, text), inside));
  if (became === "cut") item.firstChild.append(make("span", { class: "value" }, " (cut)"));
  return item;
}

async function expand(item) {
  if (item.getAttribute("aria-expanded") !== "false") return;
  item.setAttribute("aria-expanded", "true");
  let group = item.querySelector(':scope > [role="group"]');
  if (group) { group.hidden = false; return; }
  group = make("ul", { role: "group" });
  item.append(group);
  await page(item, group, 0);
}

async function page(item, group, offset) {
  const call = state.open;
  try {
    const found = await ask("tree", { handle: call.handle, path: item.dataset.path, offset });
    if (state.open !== call) return;
    group.append(...found.children.map((child) => treeItem(child, child)));
    if (found.more !== null) {
      const more = make("li", { role: "treeitem", tabindex: -1 }, make("span", null, `next, from ${number.format(found.more)} of ${number.format(found.total)}`));
      more.dataset.more = found.more;
      group.append(more);
    }
  } catch (error) {
    group.append(make("li", null, failure(error)));
  }
}

async function act(item) {
  if (item.dataset.more) {
    const group = item.parentElement;
    const before = item.previousElementSibling;
    item.remove();
    await page(group.parentElement, group, item.dataset.more);
    focusItem(before?.nextElementSibling ?? group.firstElementChild);
  } else if (item.getAttribute("aria-expanded") === "true") collapse(item);
  else await expand(item);
}

function collapse(item) {
  item.setAttribute("aria-expanded", "false");
  item.querySelector(':scope > [role="group"]').hidden = true;
}

function focusItem(item) {
  if (!item) return;
  for (const each of $("tree").querySelectorAll('[tabindex="0"]')) each.tabIndex = -1;
  item.tabIndex = 0;
  item.focus();
}

async function treeKey(event) {
  const item = event.target.closest('[role="treeitem"]');
  if (!item) return;
  const items = [...$("tree").querySelectorAll('[role="treeitem"]')].filter((each) => !each.closest("[hidden]"));
  const at = items.indexOf(item);
  const isOpen = item.getAttribute("aria-expanded") === "true";
  const steps = { ArrowDown: items[at + 1], ArrowUp: items[at - 1], Home: items[0], End: items.at(-1) };
  if (event.key in steps) focusItem(steps[event.key]);
  else if (event.key === "ArrowRight") { if (isOpen) focusItem(items[at + 1]); else await expand(item); }
  else if (event.key === "ArrowLeft") { if (isOpen) collapse(item); else focusItem(item.parentElement.closest('[role="treeitem"]')); }
  else if (event.key === "Enter" || event.key === " ") await act(item);
  else return;
  event.preventDefault();
}

// -- questions --------------------------------------------------------------------------------------------------

async function question(event) {
  event.preventDefault();
  const target = $("answer");
  const call = state.open;
  target.replaceChildren(make("p", null, "…"));
  try {
    const result = await ask("read", { handle: call.handle, [$("way").value]: $("asked").value });
    if (state.open !== call) return;
    const texts = result.content.filter((block) => block.type === "text").map((block) => block.text);
    const rows = records(texts.at(-1));
    if (result.isError || !rows) target.replaceChildren(...texts.map((text) => make("pre", { tabindex: 0 }, pretty(text))));
    else target.replaceChildren(...texts.slice(0, -1).map((text) => make("p", null, text)), recordTable(rows));
  } catch (error) {
    target.replaceChildren(failure(error));
  }
}

function records(text) {
  try {
    const found = JSON.parse(text);
    const isTable = Array.isArray(found) && found.length > 0 && found.every((each) => each !== null && typeof each === "object" && !Array.isArray(each));
    return isTable ? found : null;
  } catch { return null; }
}

function recordTable(rows) {
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const cell = (value) => (value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rows" }, make("table", null,
    make("thead", null, make("tr", null, ...columns.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", null, ...rows.map((each) => make("tr", null, ...columns.map((name) => make("td", { class: typeof each[name] === "number" ? "number" : null }, cell(each[name]))))))));
}

// -- savings and settings ---------------------------------------------------------------------------------------

async function savings() {
  const by = $("by").value;
  const totals = await ask("totals", { by });
  const most = Math.max(1, ...totals.map((total) => total.tokensBefore));
  const heads = [by, "Calls", "Cut", "Read back", "Failed", "Before", "After", "Saved", "Relative to the largest"];
  $("totals").tHead.replaceChildren(make("tr", null, ...heads.map((head, at) => make("th", { scope: "col", class: at && at < 8 ? "number" : null }, head))));
  $("totals").tBodies[0].replaceChildren(...totals.map((total) => {
    const cells = [total.calls, total.cut, total.read, total.failed, total.tokensBefore, total.tokensAfter + total.tokensRead, total.tokensSaved];
    const meter = make("span", { class: "meter" });
    meter.style.width = `${(100 * Math.max(0, total.tokensSaved)) / most}%`;
    return make("tr", null, make("th", { scope: "row" }, total.group || "–"),
      ...cells.map((each) => make("td", { class: "number" }, number.format(each))), make("td", null, meter));
  }));
}

async function settings() {
  const found = await ask("settings", { tool: $("tool").value });
  $("settings-file").textContent = found.file ? `File: ${found.file}` : "No settings file.";
  $("problems").replaceChildren(...found.problems.map((problem) => make("li", { class: "failure" }, problem)));
  document.querySelector("#settings-table tbody").replaceChildren(...found.settings.map((each) =>
    make("tr", null, make("th", { scope: "row" }, each.name),
      make("td", null, make("code", null, each.value === null || each.value === "" ? "–" : typeof each.value === "string" ? each.value : JSON.stringify(each.value))),
      make("td", null, each.source))));
}

// -- start ------------------------------------------------------------------------------------------------------

async function start() {
  state.about = await ask("about");
  const option = (value, text) => make("option", { value }, text ?? value);
  $("client").append(option("", "any client"), ...state.about.clients.map((name) => option(name)));
  $("dialect").append(...state.about.dialects.map((name) => option(name)));
  $("by").append(...state.about.by.map((name) => option(name)));
  state.calls = await ask("calls");
  $("older").hidden = state.calls.length < 200;
  calls();
  listen();
}

for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => view(button.dataset.view));
$("filter").addEventListener("input", calls);
$("only-cut").addEventListener("change", calls);
$("older").addEventListener("click", older);
$("close").addEventListener("click", close);
$("question").addEventListener("submit", question);
$("by").addEventListener("change", savings);
$("tool-form").addEventListener("submit", (event) => { event.preventDefault(); settings(); });
for (const id of ["client", "dialect", "tokens"]) $(id).addEventListener("change", lanes);
for (const each of document.querySelectorAll('[role="tab"]')) {
  each.addEventListener("click", () => tab(each.id));
  each.addEventListener("keydown", (event) => {
    const tabs = [...document.querySelectorAll('[role="tab"]')];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(each) + step + tabs.length) % tabs.length];
    tab(next.id);
    next.focus();
  });
}
$("tree").addEventListener("keydown", treeKey);
$("tree").addEventListener("click", (event) => {
  const item = event.target.closest('[role="treeitem"]');
  if (item) { focusItem(item); act(item); }
});
$("call-table").addEventListener("click", (event) => {
  const chosen = event.target.closest("tr[data-number]");
  if (chosen) open(state.calls.find((call) => call.number === Number(chosen.dataset.number)));
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && state.open) close();
  else if (event.key === "/" && !isTyping) { event.preventDefault(); $("filter").focus(); }
  else if (event.target.closest("#call-table tbody")) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); choose(event.key === "ArrowDown" ? 1 : -1); }
    else if (event.key === "Enter") open(state.calls.find((call) => call.number === state.chosen));
  }
});
start().catch((error) => { $("summary").textContent = error.message; });
