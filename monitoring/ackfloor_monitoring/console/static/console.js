// The console's script: a page works without it. It shows times in the reader's zone, replaces the
// changing part of a page when there is something newer, and goes to pages by key.
"use strict";

const local = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
});

const localDay = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "2-digit", day: "2-digit",
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
});

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const format = time.dataset.shown === "day" ? localDay : local;
    time.textContent = format.format(new Date(time.dateTime));
  }
}

// What a person has opened, scrolled or focused stays as it is: only texts that differ are replaced,
// and what has a name in data-row stays that row's, whatever comes before it.
function replace(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const same = old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName;
  if (!same || old.nodeType !== Node.ELEMENT_NODE) {
    old.replaceWith(fresh);
    return;
  }
  for (const name of new Set([...old.getAttributeNames(), ...fresh.getAttributeNames()])) {
    if (old.nodeName === "DETAILS" && name === "open") continue;
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    else if (old.getAttribute(name) !== fresh.getAttribute(name)) {
      old.setAttribute(name, fresh.getAttribute(name));
    }
  }
  replaceChildren(old, [...fresh.childNodes]);
}

const rowOf = (node) => (node.dataset ? node.dataset.row : undefined);

// A row that is moved would lose the focus: those that are gone are taken out first.
function replaceChildren(old, freshes) {
  const wanted = new Set(freshes.map(rowOf));
  const rows = new Map();
  for (const child of [...old.childNodes]) {
    const row = rowOf(child);
    if (row && wanted.has(row)) rows.set(row, child);
    else if (row) child.remove();
  }
  let at = old.firstChild;
  function drop() {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  for (const fresh of freshes) {
    const row = rowOf(fresh);
    const match = row ? rows.get(row) : at && !rowOf(at) && at;
    rows.delete(row);
    while (row && match && at && at !== match && !rowOf(at)) drop();
    if (at && at === match) at = at.nextSibling;
    else old.insertBefore(match || fresh, at);
    if (match) replace(match, fresh);
  }
  while (at) drop();
}

// Milliseconds until a page that was refused its news asks again.
const AGAIN_MS = 5000;

function listen(facts) {
  const live = document.getElementById("live");
  let source = null;
  let again = 0;
  function say(text) {
    live.hidden = !text;
    live.textContent = text;
  }
  function open() {
    source = new EventSource(facts.dataset.events);
    source.addEventListener("facts", (event) => {
      const fresh = facts.cloneNode(false);
      fresh.innerHTML = event.data;
      showTimes(fresh);
      replace(facts, fresh);
      say("");
    });
    source.addEventListener("over", over);
    source.addEventListener("again", () => {
      close();
      open();
    });
    source.onerror = () => {
      say("The console does not answer. What you see is getting old.");
      // A browser asks again by itself where nobody answered, but not where it was refused.
      if (source.readyState === EventSource.CLOSED) {
        close();
        again = setTimeout(open, AGAIN_MS);
        refused();
      }
    };
  }
  function over() {
    close();
    say("Your session is over: load the page again.");
  }
  // Refused because nobody is logged in: the page itself would lead to the login.
  function refused() {
    const asked = { redirect: "manual", headers: { Accept: "text/html" } };
    fetch(location.href, asked).then((answer) => {
      if (answer.type === "opaqueredirect") over();
    }, () => {}); // nobody answers, which is said already
  }
  function close() {
    clearTimeout(again);
    if (source) source.close();
    source = null;
  }
  // A browser has few connections to one host: a page that nobody sees takes none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!source) open();
  });
  window.addEventListener("pagehide", close);
  open();
}

function keys() {
  let after = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "g") {
      after = Date.now();
      return;
    }
    if (Date.now() - after > 1500) return;
    after = 0;
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
  });
}

showTimes(document);
keys();
const facts = document.getElementById("facts");
if (facts) listen(facts);
