// The chat page: conversations kept in the browser, answers streamed from /v1/chat/completions.

import { markdown } from "/markdown.js";

const $ = (id) => document.getElementById(id);
const DEFAULTS = { system: "", temperature: 0.7, top_p: 0.95, theme: "auto", token: "", model: "" };
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];

let settings = { ...DEFAULTS, ...read("pyflame.settings", {}) };
let chats = read("pyflame.chats", []);
let current = chats[0] || begin();
let writing = null; // the answer that is being written: { chat, message, abort, shown }

function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise; // what another version has left there
  }
}

function store() {
  try {
    localStorage.setItem("pyflame.settings", JSON.stringify(settings));
    localStorage.setItem("pyflame.chats", JSON.stringify(chats));
  } catch {
    notice("The browser has no room to keep this conversation; delete old ones.");
  }
}

function notice(text) {
  $("notice").textContent = text || "";
  $("notice").hidden = !text;
}

// --- conversations ---------------------------------------------------------------------------------------------

function begin() {
  const made = { id: String(Date.now()), title: "", messages: [] };
  chats.unshift(made);
  return made;
}

function open(chat) {
  current = chat;
  slide(false);
  notice("");
  $("speed").textContent = "";
  show();
  $("text").focus();
}

function fresh() {
  open(current.messages.length ? begin() : current);
}

function remove(chat) {
  if (chat.messages.length && !confirm("Delete this conversation?")) return;
  if (writing?.chat === chat) stop();
  chats = chats.filter((one) => one !== chat);
  store();
  open(chat === current ? chats[0] || begin() : current);
}

function showChats() {
  $("chats").replaceChildren(
    ...chats.map((chat) => {
      const item = document.createElement("li");
      const title = chat.title || "New conversation";
      if (chat === current) item.setAttribute("aria-current", "true");
      item.append(button(title, () => open(chat), "open"), button("✕", () => remove(chat), "delete"));
      item.lastChild.setAttribute("aria-label", `Delete ${title}`);
      return item;
    }),
  );
}

function button(text, action, kind = "") {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.className = kind;
  made.addEventListener("click", action);
  return made;
}

// --- messages --------------------------------------------------------------------------------------------------

function show() {
  showChats();
  const nodes = current.messages.map(messageNode);
  if (!nodes.length) {
    nodes.push(document.createElement("p"));
    nodes[0].className = "empty";
    nodes[0].textContent = "Ask something.";
  }
  $("log").replaceChildren(...nodes);
  $("log").scrollTop = $("log").scrollHeight;
  showState();
}

function messageNode(message, at) {
  const node = document.createElement("article");
  node.className = `message ${message.role}`;
  node.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
  const body = document.createElement("div");
  body.className = "body";
  if (message.role === "user") body.textContent = message.content;
  else body.innerHTML = markdown(message.content);
  node.append(body, tools(message, at));
  if (writing?.message === message) node.classList.add("writing");
  return node;
}

function tools(message, at) {
  const bar = document.createElement("div");
  bar.className = "tools";
  if (writing?.message === message) return bar;
  bar.append(button("Copy", (event) => copy(event.target, message.content)));
  if (message.role === "assistant" && at === current.messages.length - 1) {
    bar.append(button("Regenerate", regenerate, "regenerate"));
  }
  if (message.role === "user") bar.append(button("Edit", () => edit(at)));
  if (message.stats) bar.append(message.stats);
  return bar;
}

async function copy(from, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea"); // without https there is no clipboard of the page's own
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  const before = from.textContent;
  from.textContent = "Copied";
  setTimeout(() => (from.textContent = before), 1200);
}

function edit(at) {
  if (writing) return;
  $("text").value = current.messages[at].content;
  current.messages.length = at;
  store();
  show();
  grow();
  $("text").focus();
}

// The last answer grows: only it is drawn anew, once per frame, and the view follows unless the reader has scrolled.
function showGrowth() {
  if (!writing || writing.shown || writing.chat !== current) return;
  writing.shown = requestAnimationFrame(() => {
    if (!writing) return;
    writing.shown = 0;
    const log = $("log");
    const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    const body = log.lastElementChild?.querySelector(".body");
    if (body) body.innerHTML = markdown(writing.message.content);
    if (follows) log.scrollTop = log.scrollHeight;
  });
}

function showState() {
  $("send").hidden = Boolean(writing);
  $("stop").hidden = !writing;
}

// --- answers ---------------------------------------------------------------------------------------------------

function send() {
  const text = $("text").value.trim();
  if (!text || writing) return;
  $("text").value = "";
  grow();
  current.title ||= text.slice(0, 60);
  chats = [current, ...chats.filter((one) => one !== current)];
  current.messages.push({ role: "user", content: text });
  answer();
}

function regenerate() {
  if (writing) return;
  while (current.messages.at(-1)?.role === "assistant") current.messages.pop();
  if (current.messages.length) answer();
}

async function answer() {
  const chat = current;
  const body = request(chat);
  const message = { role: "assistant", content: "" };
  chat.messages.push(message);
  writing = { chat, message, abort: new AbortController(), shown: 0, begun: performance.now(), first: 0, tokens: 0 };
  notice("");
  show();
  try {
    await stream(body);
  } catch (error) {
    if (error.name !== "AbortError") notice(error.message);
  }
  finish();
}

function request(chat) {
  const system = settings.system ? [{ role: "system", content: settings.system }] : [];
  const messages = chat.messages.map(({ role, content }) => ({ role, content }));
  const numbers = NUMBERS.filter((name) => typeof settings[name] === "number").map((name) => [name, settings[name]]);
  return {
    model: $("model").value,
    messages: [...system, ...messages],
    stream: true,
    stream_options: { include_usage: true },
    ...Object.fromEntries(numbers),
  };
}

async function stream(body) {
  const answer = await call("/v1/chat/completions", {
    method: "POST",
    body: JSON.stringify(body),
    signal: writing.abort.signal,
  });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: {")) take(JSON.parse(line.slice(6)));
  }
}

function take(event) {
  if (event.error) throw new Error(event.error.message);
  const text = event.choices[0]?.delta.content;
  if (event.usage) writing.tokens = event.usage.completion_tokens;
  else if (text) writing.tokens += 1;
  if (text) {
    writing.first ||= performance.now();
    writing.message.content += text;
    showGrowth();
    $("speed").textContent = rate();
  }
}

function rate() {
  const seconds = (performance.now() - writing.first) / 1000;
  return writing.first && seconds > 0 ? `${((writing.tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
}

function finish() {
  const { chat, message, first, begun, tokens } = writing;
  if (message.content) {
    message.stats = `${tokens} tokens, ${rate()}, first after ${((first - begun) / 1000).toFixed(2)} s`;
  } else chat.messages.pop();
  $("speed").textContent = message.content ? rate() : "";
  cancelAnimationFrame(writing.shown);
  writing = null;
  store();
  show();
}

function stop() {
  writing?.abort.abort();
}

async function call(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  if (settings.token) headers.Authorization = `Bearer ${settings.token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) showSettings("token");
  const found = await answer.json().catch(() => null);
  throw new Error(found?.error?.message || `The server answered ${answer.status}.`);
}

async function listModels() {
  try {
    const found = await (await call("/v1/models")).json();
    const names = found.data.filter((one) => one.kind !== "embeddings").map((one) => one.id);
    $("model").replaceChildren(...names.map((name) => new Option(name, name, false, name === settings.model)));
    notice("");
  } catch (error) {
    notice(error.message);
  }
}

// --- settings, keys and sizes ----------------------------------------------------------------------------------

function theme() {
  if (settings.theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
}

function showSettings(focus) {
  const form = $("dialog").querySelector("form");
  for (const field of form.elements) if (field.name) field.value = settings[field.name] ?? "";
  if (!$("dialog").open) $("dialog").showModal();
  if (focus) form.elements[focus].focus();
}

function takeSettings(event) {
  const { name, value, type } = event.target;
  settings[name] = type !== "number" ? value : value === "" ? null : Number(value);
  store();
  theme();
  if (name === "token") listModels();
}

function slide(open) {
  document.body.classList.toggle("sliding", open);
  $("menu").setAttribute("aria-expanded", String(open));
}

function grow() {
  $("text").style.height = "auto"; // set by script, which the page's policy allows
  $("text").style.height = `${$("text").scrollHeight + 2}px`;
}

function key(event) {
  const typing = /^(TEXTAREA|INPUT|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && writing) stop();
  else if (event.key === "Escape") slide(false);
  else if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) fresh();
  else if (event.key === "/" && !typing && !$("dialog").open) $("text").focus();
  else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    const next = chats[chats.indexOf(current) + (event.key === "ArrowUp" ? -1 : 1)];
    if (next) open(next);
  } else return;
  event.preventDefault();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("text").addEventListener("input", grow);
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
$("log").addEventListener("click", (event) => {
  if (event.target.matches(".copy")) copy(event.target, event.target.closest(".code").querySelector("code").textContent);
});
$("stop").addEventListener("click", stop);
$("new").addEventListener("click", fresh);
$("menu").addEventListener("click", () => slide(!document.body.classList.contains("sliding")));
$("shade").addEventListener("click", () => slide(false));
$("settings").addEventListener("click", () => showSettings());
$("dialog").addEventListener("input", takeSettings);
$("model").addEventListener("change", () => {
  settings.model = $("model").value;
  store();
});
document.addEventListener("keydown", key);

theme();
show();
listModels();
