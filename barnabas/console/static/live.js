// Ask for the live part of this page again at each tick of the server.
"use strict";
(() => {
  // The element that has the focus is another one after an update: find it by what it is.
  const same = at => [...document.querySelectorAll(`#live ${at.tagName}`)].filter(each =>
    ["href", "id", "name", "value", "aria-label"].every(
      name => each.getAttribute(name) === at.getAttribute(name)));
  let focused = null;
  document.addEventListener("htmx:beforeSwap", () => {
    const at = document.activeElement;
    focused = at.closest("#live") ? { at, index: same(at).indexOf(at) } : null;
  });
  document.addEventListener("htmx:afterSwap", () => {
    if (focused) same(focused.at)[focused.index]?.focus({ preventScroll: true });
  });
  const isLive = () => document.querySelector("#live[hx-get]") !== null;
  const pause = document.getElementById("pause");
  // It is another element after a failure of the cluster.
  const stale = isHidden => (document.getElementById("stale").hidden = isHidden);
  if (!isLive()) return;
  let stream = null;
  let paused = false;
  const update = () => {
    // A tab in the background asks for nothing.
    const wanted = !paused && !document.hidden;
    if (wanted && !stream) {
      stream = new EventSource("/live");
      const tick = () => isLive() && htmx.trigger("#live", "tick");
      stream.addEventListener("open", () => stale(true));
      stream.addEventListener("error", event => {
        stale(false);
        // Closed for good: the console refuses, and the answer to a page says why.
        if (event.target.readyState === EventSource.CLOSED) tick();
      });
      stream.addEventListener("tick", tick);
    } else if (!wanted && stream) {
      stream.close();
      stream = null;
    }
  };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    update();
  });
  document.addEventListener("visibilitychange", update);
  window.addEventListener("pagehide", () => stream && stream.close());
  update();
})();
