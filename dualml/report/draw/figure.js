// Figures answer: the values under the pointer, arms and backends switched on and off, both also
// from the keyboard. Without this script a figure is complete; it only hides and tells.
(() => {
  "use strict";
  const KINDS = ["arm", "series", "backend"];
  const REACH = 32; // pixels of the figure from which a pointer finds a point
  const TOGETHER = 4; // points so close are shown together, at most four

  const tip = document.createElement("div");
  tip.className = "fig-tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);

  class Figure {
    constructor(svg) {
      this.svg = svg;
      this.off = new Set();
      this.labels = new Map();
      this.panels = [...svg.querySelectorAll(".panel")];
      this.known = new Map(); // panel → what it can tell
      this.ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      this.ring.setAttribute("class", "ring");
      this.ring.setAttribute("r", "6");
      for (const key of svg.querySelectorAll(".key")) this.button(key);
      svg.setAttribute("role", "group"); // no image any more: there are buttons in it
      svg.setAttribute("tabindex", "0");
      for (const name of ["pointermove", "pointerdown"])
        svg.addEventListener(name, (event) => this.point(event));
      for (const name of ["pointerleave", "blur"]) svg.addEventListener(name, () => this.quiet());
      svg.addEventListener("keydown", (event) => this.walk(event));
    }

    button(key) {
      const name = `${key.dataset.of} ${key.dataset.name}`;
      this.labels.set(name, key.textContent);
      key.setAttribute("role", "button");
      key.setAttribute("tabindex", "0");
      key.setAttribute("aria-pressed", "true");
      const toggle = () => {
        if (!this.off.delete(name)) this.off.add(name);
        key.setAttribute("aria-pressed", String(!this.off.has(name)));
        for (const mark of this.svg.querySelectorAll(".m"))
          mark.classList.toggle("off", KINDS.some((k) => this.off.has(`${k} ${mark.dataset[k]}`)));
        this.known.clear();
        this.quiet();
      };
      key.addEventListener("click", toggle);
      key.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle();
      });
    }

    // What is visible in a panel and has something to tell, and an index of the nearest point.
    visible(panel) {
      if (this.known.has(panel)) return this.known.get(panel);
      const [width, height] = panel.dataset.size.split(",").map(Number);
      const curves = [];
      for (const mark of panel.querySelectorAll(".m[data-points]:not(.off)"))
        for (const point of mark.dataset.points.split("|")) {
          const [, x, y, texts] = point.match(/^([^,]+),([^,]+),(.*)$/s);
          const p = { panel, mark, x: +x, y: +y, texts: texts.split(";") };
          if (p.x > -5 && p.y > -5 && p.x < width + 5 && p.y < height + 5) curves.push(p);
        }
      const areas = [...panel.querySelectorAll("[data-hint]")]
        .filter((mark) => !mark.closest(".off"))
        .map((mark) => {
          const { x, y, width, height } = mark.getBBox();
          const middle = { x: x + width / 2, y: y + height / 2 };
          return { panel, mark, ...middle, texts: mark.dataset.hint.split(";"), area: true };
        });
      const index = curves.length && d3.Delaunay.from(curves, (p) => p.x, (p) => p.y);
      this.known.set(panel, { all: [...curves, ...areas], curves, areas, index });
      return this.known.get(panel);
    }

    point(event) {
      const hint = event.target.closest("[data-hint]");
      for (const panel of this.panels) {
        const { curves, areas, index } = this.visible(panel);
        if (hint && panel.contains(hint)) return this.tell(areas.filter((p) => p.mark === hint));
        const pointer = new DOMPoint(event.clientX, event.clientY);
        const { x, y } = pointer.matrixTransform(panel.getScreenCTM().inverse());
        const nearest = index && curves[index.find(x, y)];
        if (!nearest || Math.hypot(nearest.x - x, nearest.y - y) > REACH) continue;
        const best = new Map([[nearest.mark, nearest]]); // and those of other marks upon it
        const far = (p) => Math.hypot(p.x - nearest.x, p.y - nearest.y);
        for (const p of curves)
          if (far(p) < Math.min(TOGETHER, best.has(p.mark) ? far(best.get(p.mark)) : TOGETHER))
            best.set(p.mark, p);
        return this.tell([...best.values()].slice(0, 4));
      }
      this.quiet();
    }

    // Left and right along a curve, up and down from mark to mark.
    walk(event) {
      if (event.key === "Escape") this.quiet();
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
      const all = this.panels.flatMap((panel) => this.visible(panel).all);
      if (!step || !all.length || event.target !== this.svg) return;
      event.preventDefault();
      if (!all.includes(this.at)) return this.tell([all[0]]);
      const own = all.filter((p) => p.mark === this.at.mark);
      const along = own[own.indexOf(this.at) + step];
      if (["ArrowRight", "ArrowLeft"].includes(event.key)) return this.tell([along ?? this.at]);
      const marks = [...new Set(all.map((p) => p.mark))];
      const mark = marks[(marks.indexOf(this.at.mark) + step + marks.length) % marks.length];
      this.tell([all.find((p) => p.mark === mark)]);
    }

    tell(points) {
      [this.at] = points;
      const { panel, x, y, area } = this.at;
      tip.replaceChildren(...points.map((p) => this.entry(p)));
      tip.hidden = false;
      const place = new DOMPoint(x, y).matrixTransform(panel.getScreenCTM());
      const right = document.documentElement.clientWidth - tip.offsetWidth - 4;
      const above = place.y - tip.offsetHeight - 12;
      tip.style.left = `${scrollX + Math.max(4, Math.min(place.x + 12, right))}px`;
      tip.style.top = `${scrollY + (above < 4 ? place.y + 14 : above)}px`;
      this.ring.setAttribute("cx", x);
      this.ring.setAttribute("cy", y);
      area ? this.ring.remove() : panel.append(this.ring);
    }

    entry({ panel, mark, texts, area }) {
      const owner = mark.closest(".m").dataset;
      const named = KINDS.filter((k) => owner[k]);
      const names = named.map((k) => this.labels.get(`${k} ${owner[k]}`) ?? owner[k]);
      const axes = area || texts.length !== 2 ? [] : [panel.dataset.x, panel.dataset.y];
      const lines = texts.map((value, k) => (axes[k] ? `${axes[k]}: ${value}` : value));
      const entry = document.createElement("div");
      const head = document.createElement("strong");
      head.textContent = [...new Set(names)].join(" · ");
      entry.append(head, ...lines.flatMap((line) => [document.createElement("br"), line]));
      return entry;
    }

    quiet() {
      tip.hidden = true;
      this.at = null;
      this.ring.remove();
    }
  }

  const start = (root) => root.querySelectorAll("svg.fig").forEach((svg) => new Figure(svg));
  start(document);
  // Figures that a page was given later: whoever put them there says so.
  document.addEventListener("dualml:figures", (event) => start(event.target));
})();
