// A page that stays up to date: it asks for itself again and puts in what has changed. Without this
// script it is a page like any other, and its forms have buttons.
(() => {
  "use strict";
  const every = 1000 * Number(document.body.dataset.every);
  const lost = document.querySelector("#lost");
  document.documentElement.classList.add("by-script");

  // The token stands in a cookie now, and need not stand where shoulders and histories see it.
  const here = new URL(location.href);
  here.searchParams.delete("token");
  here.searchParams.delete("lang");
  history.replaceState(null, "", here);

  for (const form of document.querySelectorAll("form[data-auto]"))
    form.addEventListener("change", () => form.requestSubmit());

  // --- several runs -----------------------------------------------------------------------------

  const choice = document.querySelector("#choice");
  const boxes = () => [...document.querySelectorAll("input[form=choice]")];
  const count = () => {
    if (choice)
      choice.querySelector("button").disabled = boxes().filter((box) => box.checked).length < 2;
  };
  document.addEventListener("change", count);
  count();

  // --- parts ------------------------------------------------------------------------------------

  const shown = new Map(); // part → its markup as it came
  let pointer = null;
  for (const name of ["pointermove", "pointerdown"])
    document.addEventListener(name, (event) => (pointer = event));

  // What a reader has done to a part is done again to what replaces it.
  const state = (part) => {
    const focus = part.contains(document.activeElement) ? document.activeElement : null;
    const path = [];
    for (let node = focus; node && node !== part; node = node.parentElement)
      path.unshift([...node.parentElement.children].indexOf(node));
    return {
      path: focus && path,
      boxes: [...part.querySelectorAll("input:checked")].map((box) => box.value),
      off: [...part.querySelectorAll(".key[aria-pressed=false]")].map((key) => key.dataset.name),
      scroll: [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft),
    };
  };
  const again = (part, { path, boxes, off, scroll }) => {
    for (const box of part.querySelectorAll("input"))
      if (boxes.includes(box.value)) box.checked = true;
    part.dispatchEvent(new CustomEvent("dualml:figures", { bubbles: true }));
    for (const key of part.querySelectorAll(".key"))
      if (off.includes(key.dataset.name)) key.dispatchEvent(new MouseEvent("click"));
    part.querySelectorAll(".scroll").forEach((box, k) => (box.scrollLeft = scroll[k] ?? 0));
    path?.reduce((node, k) => node?.children[k], part)?.focus({ preventScroll: true });
    const under = pointer && document.elementFromPoint(pointer.clientX, pointer.clientY);
    if (under && part.contains(under)) under.dispatchEvent(new PointerEvent("pointermove", pointer));
  };

  const put = (fresh) => {
    const sections = [...fresh.querySelectorAll("main > section")];
    if (sections.some((section) => !document.getElementById(section.id))) return location.reload();
    for (const part of fresh.querySelectorAll("[data-live]")) {
      const old = document.getElementById(part.id);
      const markup = part.innerHTML;
      if (!old || (shown.get(part.id) ?? old.innerHTML) === markup) continue;
      const kept = state(old);
      old.replaceChildren(...part.childNodes);
      shown.set(part.id, markup);
      again(old, kept);
    }
    document.body.dataset.every = fresh.body.dataset.every;
    count();
  };

  // --- the log ----------------------------------------------------------------------------------

  const log = document.querySelector("#text");
  const follow = document.querySelector("#follow");
  const down = () => follow?.checked && (log.scrollTop = log.scrollHeight);
  follow?.addEventListener("change", down);
  if (log) down();

  const more = async (fresh) => {
    if (!log) return fresh.querySelector("#text") && location.reload();
    const last = fresh.querySelector("#text")?.dataset.log;
    if (last && last !== log.dataset.log && !here.searchParams.has("log")) {
      // another rank is at work: its log is the last one written to
      log.dataset.log = last;
      log.dataset.end = "-1";
      const select = document.querySelector("#log select");
      const name = new URL(last, here).searchParams.get("log");
      if (![...select.options].some((option) => option.value === name))
        select.add(new Option(name, name), 0);
      select.value = name;
    }
    await read();
  };
  const read = async () => {
    const answer = await fetch(`${log.dataset.log}&after=${log.dataset.end}`, { cache: "no-store" });
    if (!answer.ok) return;
    const text = await answer.text();
    const from = answer.headers.get("X-Start");
    if (from !== log.dataset.end) log.replaceChildren();
    else if (!text) return;
    log.append(text);
    log.dataset.end = answer.headers.get("X-End");
    if (log.textContent.length > Number(log.dataset.most))
      log.textContent = log.textContent.slice(-Number(log.dataset.most) / 2);
    down();
  };

  // --- asking again -----------------------------------------------------------------------------

  const target = new URL(here);
  target.hash = "";
  target.searchParams.set("live", "1");
  let tag = null;
  let timer = 0;
  let page = null;
  const ask = async () => {
    clearTimeout(timer);
    if (document.hidden) return; // asked again when it is seen
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(target, { headers, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        page = new DOMParser().parseFromString(await answer.text(), "text/html");
        put(page);
      }
      if (answer.ok || answer.status === 304) await more(page ?? document);
      lost.hidden = answer.ok || answer.status === 304;
      if (!lost.hidden) lost.textContent = await answer.text();
    } catch {
      lost.textContent = document.body.dataset.lost;
      lost.hidden = false;
    }
    timer = setTimeout(ask, 1000 * Number(document.body.dataset.every) || every);
  };
  document.addEventListener("visibilitychange", ask);
  timer = setTimeout(ask, every);
})();
