// Markdown to HTML, safe by construction: the text is escaped first, so that the only tags are the ones written here,
// and links go to http, https and mailto only. What is no known mark stays text.

export function escapeHtml(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (c) => names[c]);
}

// Inline marks. Code and links are set aside under a control character, so that no mark inside them counts.
function inline(text) {
  const kept = [];
  const keep = (html) => `\u0001${kept.push(html) - 1}\u0001`;
  const link = (url, label) => keep(`<a href="${url}" target="_blank" rel="noopener noreferrer">${label}</a>`);
  text = text
    .replace(/(`+)(.+?)\1(?!`)/g, (_, __, code) => keep(`<code>${code.trim()}</code>`))
    .replace(/\[([^\]\n]+)\]\(((?:https?:\/\/|mailto:)[^\s)]+)\)/g, (_, label, url) => link(url, label))
    .replace(/(^|[\s(])(https?:\/\/[^\s\u0001]*[^\s\u0001.,;:!?)])/g, (_, before, url) => before + link(url, url))
    .replace(/\*\*(?=\S)(.+?)\*\*/g, "<strong>$1</strong>")
    .replace(/(^|[^\w*])\*(?=[^\s*])(.+?)\*(?!\w)/g, "$1<em>$2</em>")
    .replace(/(^|\W)_(?=\S)(.+?)_(?!\w)/g, "$1<em>$2</em>")
    .replace(/~~(?=\S)(.+?)~~/g, "<del>$1</del>");
  while (/\u0001\d+\u0001/.test(text)) text = text.replace(/\u0001(\d+)\u0001/g, (_, n) => kept[n]);
  return text;
}

function codeBlock(lines, language) {
  const head = `<div><span>${language}</span><button type="button" class="copy">Copy</button></div>`;
  return `<div class="code">${head}<pre><code>${lines.join("\n")}</code></pre></div>`;
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

// Items of one depth; deeper ones are a list inside the item before them.
function list(lines, at, depth) {
  const ordered = /\d/.test(ITEM.exec(lines[at])[2]);
  const first = ordered ? ` start="${parseInt(ITEM.exec(lines[at])[2], 10)}"` : "";
  let html = `<${ordered ? "ol" + first : "ul"}>`;
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[1].length < depth || /\d/.test(found[2]) !== ordered) break;
    html += `<li>${inline(found[3])}`;
    at += 1;
    while (at < lines.length) {
      const next = ITEM.exec(lines[at]);
      if (next && next[1].length > depth + 1) {
        const [inner, end] = list(lines, at, next[1].length);
        html += inner;
        at = end;
      } else if (!next && /^\s{2,}\S/.test(lines[at])) {
        html += `<br>${inline(lines[at].trim())}`;
        at += 1;
      } else break;
    }
    html += "</li>";
    if (at + 1 < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1])) at += 1;
  }
  return [html + (ordered ? "</ol>" : "</ul>"), at];
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
}

function table(lines, at) {
  const row = (line, tag) => `<tr>${cells(line).map((c) => `<${tag}>${c}</${tag}>`).join("")}</tr>`;
  let html = row(lines[at], "th");
  for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) html += row(lines[at], "td");
  return [`<div class="table"><table>${html}</table></div>`, at];
}

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+#.-]*)[^`]*$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const HEAD = /^(#{1,6})\s+(.*?)\s*#*$/;
const QUOTE = /^\s*&gt;\s?/;

function isTable(lines, at) {
  return lines[at].includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1] || "") && lines[at + 1].includes("|");
}

function blocks(lines) {
  let html = "";
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const head = HEAD.exec(line);
    if (fence) {
      let end = at + 1;  // a fence that is not closed yet runs to the end
      while (end < lines.length && !(lines[end].trim().startsWith(fence[1]) && !lines[end].trim().slice(fence[1].length))) end += 1;
      html += codeBlock(lines.slice(at + 1, end), fence[2]);
      at = end + 1;
    } else if (!line.trim()) {
      at += 1;
    } else if (head) {
      const level = Math.min(head[1].length, 4);
      html += `<h${level}>${inline(head[2])}</h${level}>`;
      at += 1;
    } else if (RULE.test(line)) {
      html += "<hr>";
      at += 1;
    } else if (QUOTE.test(line)) {
      let end = at;
      while (end < lines.length && QUOTE.test(lines[end])) end += 1;
      html += `<blockquote>${blocks(lines.slice(at, end).map((l) => l.replace(QUOTE, "")))}</blockquote>`;
      at = end;
    } else if (ITEM.test(line)) {
      const [inner, end] = list(lines, at, ITEM.exec(line)[1].length);
      html += inner;
      at = end;
    } else if (isTable(lines, at)) {
      const [inner, end] = table(lines, at);
      html += inner;
      at = end;
    } else {
      let end = at + 1;
      const ends = (l) => !l.trim() || FENCE.test(l) || HEAD.test(l) || QUOTE.test(l) || ITEM.test(l);
      while (end < lines.length && !ends(lines[end])) end += 1;
      html += `<p>${lines.slice(at, end).map(inline).join("<br>")}</p>`;
      at = end;
    }
  }
  return html;
}

export function markdown(text) {
  return blocks(escapeHtml(text.replace(/[\u0000\u0001\r]/g, "")).split("\n"));
}
