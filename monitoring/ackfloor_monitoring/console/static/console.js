// The console's script: a page works without it. It shows times in the reader's zone, replaces the
// changing part of a page when there is something newer, and goes to pages by key.
"use strict";

const local = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
});

const dated = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "2-digit", day: "2-digit",
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
});

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const format = time.className === "dated" ? dated : local;
    time.textContent = format.format(new Date(time.dateTime));
  }
}

// What a person has opened, scrolled or focused stays as it is: only texts that differ are replaced.
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
  const olds = [...old.childNodes];
  const freshes = [...fresh.childNodes];
  freshes.forEach((child, index) => {
    if (index < olds.length) replace(olds[index], child);
    else old.append(child);
  });
  olds.slice(freshes.length).forEach((child) => child.remove());
}

function listen(facts) {
  const live = document.getElementById("live");
  let source = null;
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
    source.addEventListener("over", () => {
      close();
      say("Your session is over: load the page again.");
    });
    source.onerror = () => say("The console does not answer. What you see is getting old.");
  }
  function close() {
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
