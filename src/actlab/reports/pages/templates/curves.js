// Draw the figures of the page: bands, published curves, medians. Buttons hide lines; pointer and keys read values.
(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const plots = [];

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const faint = (colour, share) => colour + Math.round(255 * share).toString(16).padStart(2, "0");
  const DASHES = { training: [6, 3], "held out": [], learnt: [], published: [1.5, 3] };

  // Numbers with three significant digits, as in the table, without trailing zeros.
  const number = (v) => (v == null ? "–" : Math.abs(v) >= 100 ? v.toFixed(0) : v === 0 ? "0" : String(Number(v.toPrecision(3))));
  const padded = (v) => (v == null ? "∞" : v.toPrecision(3).includes("e") ? number(v) : v.toPrecision(3));

  // Tick labels; on a logarithmic axis only for values with one significant digit, so not for an uneven first value.
  function tick(v, log) {
    if (v == null || (log && Number(v.toPrecision(1)) !== Number(v.toPrecision(4)))) return "";
    const far = Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3);
    return far ? Number(v.toPrecision(3)).toExponential() : String(Number(v.toPrecision(6)));
  }

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function interpolated([xs, ys], x) {
    if (x < xs[0] || x > xs[xs.length - 1]) return null;
    const i = xs.findIndex((at) => at >= x);
    if (i <= 0 || xs[i] === x) return ys[Math.max(i, 0)];
    return ys[i - 1] + ((ys[i] - ys[i - 1]) * (x - xs[i - 1])) / (xs[i] - xs[i - 1]);
  }

  // Add the series in layers, so that medians are drawn on top: all bands, all published curves, all medians.
  function layers(panel, colourOf, isOwn) {
    const tables = [], series = [{}], bands = [];
    const above = (v) => (panel.log && !(v > 0) ? null : v);  // a logarithmic axis has no 0
    const add = (line, what, xs, columns, options) => {
      tables.push([xs, ...columns.map((column) => column.map(above))]);
      for (const _ of columns) series.push({ line, what, spanGaps: false, points: { show: false }, ...options });
    };
    for (const line of panel.lines) {
      if (!line.shaded || line.x.length < 2) continue;
      add(line, "band", line.x, [line.high, line.low], { width: 0, stroke: "transparent" });
      const high = series.length - 2;
      bands.push({ series: [high, high + 1], fill: () => faint(colourOf(line.label), 0.18) });
    }
    for (const line of panel.lines) {
      if (!line.published) continue;
      const stroke = () => colourOf(line.label);
      add(line, "published", line.published[0], [line.published[1]], { stroke, width: 1.5, dash: DASHES.published });
    }
    for (const line of [...panel.lines].sort((a, b) => isOwn(a.label) - isOwn(b.label))) {
      const stroke = () => colourOf(line.label);
      const few = !panel.over_epochs && line.x.length <= 12;
      const points = { show: few || line.x.length === 1, size: 6, fill: stroke };
      add(line, line.kind, line.x, [line.median], { stroke, width: isOwn(line.label) ? 3.5 : 2, dash: DASHES[line.kind] ?? line.dash, points });
    }
    return { data: uPlot.join(tables), series, bands };
  }

  function draw(figure, panel, place, state) {
    const legend = new Map(figure.legend.map((entry) => [entry.label, entry]));
    const colourOf = (label) => legend.get(label)[dark.matches && !printing ? "dark" : "light"];
    const isOwn = (label) => legend.get(label).own;  // the user's activation: thick and on top
    const { data, series, bands } = layers(panel, colourOf, isOwn);
    const visible = (line) => !state.labels.has(line.label) && !state.kinds.has(line.kind);
    const shown = (s) => !state.labels.has(s.line.label) && (s.what === "published"
      ? !state.kinds.has("published")
      : visible(s.line) && !(s.what === "band" && state.kinds.has("bands")));
    const all = [...new Set(panel.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const shared = all.filter((x) => panel.lines.every((line) => line.x.includes(x)));
    const ours = shared.length > 1 ? shared : all;  // x values that can be read: those at which every line has a value
    const first = panel.over_epochs ? 0 : all[0], last = all[all.length - 1];
    const margin = first === last ? 0.5 : panel.over_epochs ? 0 : 0.02 * (last - first);
    const whole = { x: [first - margin, last + margin], y: panel.ylim };
    const several = new Set(panel.lines.map((line) => line.metric)).size > 1;

    const reading = element("div", undefined, "reading");
    reading.setAttribute("aria-live", "polite");
    reading.hidden = true;
    const nearest = (x) => ours.reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a));

    function read(plot, x) {
      reading.replaceChildren(element("b", `${panel.xlabel} ${number(x)}`));
      const table = element("table"), head = element("tr"), body = element("tbody");
      const lines = panel.lines.filter(visible).filter((line) => line.x.includes(x));
      const at = (line, values) => values[line.x.indexOf(x)];
      const theirs = lines.some((line) => line.published) && !state.kinds.has("published");
      const bandsShown = lines.some((line) => line.shaded);
      head.append(element("th", ""), element("th", "median"));
      if (bandsShown) head.append(element("th", "[low, high]"));
      if (theirs) head.append(element("th", "published"));
      const order = (line) => at(line, line.median) ?? Infinity;
      for (const line of [...lines].sort((a, b) => order(b) - order(a))) {
        const row = element("tr"), name = element("th"), mark = element("i", undefined, "swatch");
        mark.style.background = colourOf(line.label);
        name.append(mark, ` ${line.label}${several ? ` ${line.metric}` : ""}`);
        row.append(name, element("td", padded(at(line, line.median))));
        if (bandsShown) row.append(element("td", line.shaded ? `[${padded(at(line, line.low))}, ${padded(at(line, line.high))}]` : "", "quiet"));
        if (theirs) {
          const value = line.published && interpolated(line.published, x);
          row.append(element("td", value == null ? "–" : padded(value)));
        }
        body.append(row);
      }
      const top = element("thead");
      top.append(head);
      table.append(top, body);
      reading.append(table);
      reading.hidden = false;
      const left = plot.over.offsetLeft + plot.valToPos(x, "x"), width = reading.offsetWidth;
      const beside = left + 12 + width <= place.clientWidth ? left + 12 : left - 12 - width;
      reading.style.left = `${Math.max(0, Math.min(beside, place.clientWidth - width))}px`;
      reading.style.top = `${place.offsetTop + 8}px`;
      place.dataset.x = x;
    }

    const axis = (label, more) => ({
      label, labelSize: 20, labelFont: "12px system-ui, sans-serif", font: "12px system-ui, sans-serif",
      stroke: () => (printing ? "#444" : css("--quiet")),
      grid: { stroke: () => (printing ? "#e5e5e5" : css("--line")), width: 1 }, ticks: { show: false }, ...more,
    });
    const wholeNumbers = panel.over_epochs || all.every((x) => Number.isInteger(x));
    const options = {
      width: place.clientWidth, height: place.clientHeight, legend: { show: false }, series, bands, padding: [8, 12, 0, 0],
      scales: { x: { time: false, range: (u, low, high) => (low == null ? whole.x : [low, high]) }, y: { range: () => whole.y, distr: panel.log ? 3 : 1 } },
      axes: [
        axis(panel.xlabel, { size: 28, space: 45, incrs: wholeNumbers ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] : undefined }),
        axis(panel.ylabel, { size: 50, values: (u, splits) => splits.map((v) => tick(v, panel.log)) }),
      ],
      cursor: {
        points: { show: false }, drag: { x: true, y: true, uni: 24 },
        bind: { dblclick: () => () => reset(plot) },
        move: (u, left, top) => (left < 0 ? [left, top] : [u.valToPos(nearest(u.posToVal(left, "x")), "x"), top]),
      },
      hooks: {
        setCursor: [(u) => {
          if (u.cursor.left < 0) reading.hidden = true;
          else read(u, nearest(u.posToVal(u.cursor.left, "x")));
        }],
        draw: [(u) => {  // the band of a line with a single x value is a bar
          const bars = state.kinds.has("bands") ? [] : panel.lines.filter((l) => l.x.length === 1 && l.shaded && visible(l));
          for (const line of bars) {
            const at = (v) => u.valToPos(v, "y", true), x = u.valToPos(line.x[0], "x", true);
            u.ctx.save();
            u.ctx.strokeStyle = faint(colourOf(line.label), 0.5);
            u.ctx.lineWidth = 2 * devicePixelRatio;
            u.ctx.beginPath();
            u.ctx.moveTo(x, at(line.low[0]));
            u.ctx.lineTo(x, at(line.high[0]));
            u.ctx.stroke();
            u.ctx.restore();
          }
        }],
      },
    };
    const plot = new uPlot(options, data, place);
    place.after(reading);
    function reset(u) {
      u.batch(() => {
        u.setScale("x", { min: whole.x[0], max: whole.x[1] });
        u.setScale("y", { min: whole.y[0], max: whole.y[1] });
      });
    }
    reset(plot);

    let index = -1;
    const go = (i) => {
      index = Math.max(0, Math.min(ours.length - 1, i));
      plot.setCursor({ left: plot.valToPos(ours[index], "x"), top: plot.over.clientHeight / 2 });
    };
    const keys = {
      ArrowLeft: () => go(index < 0 ? ours.length - 1 : index - 1), ArrowRight: () => go(index + 1),
      Home: () => go(0), End: () => go(ours.length - 1),
      Escape: () => { index = -1; reset(plot); plot.setCursor({ left: -10, top: -10 }); },
    };
    place.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    place.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));

    const update = () => plot.batch(() => series.forEach((s, i) => i && plot.setSeries(i, { show: shown(s) })));
    const fit = () => plot.setSize({ width: place.clientWidth, height: place.clientHeight });
    new ResizeObserver(() => { if (!printing && place.clientWidth !== plot.width) fit(); }).observe(place);
    return { plot, update, fit };
  }

  for (const box of document.querySelectorAll("[data-figure]")) {
    const figure = figures[box.dataset.figure];
    const state = { labels: new Set(), kinds: new Set() };
    const drawn = [...box.querySelectorAll("[data-panel]")].map((place) => draw(figure, figure.panels[place.dataset.panel], place, state));
    plots.push(...drawn);
    for (const button of box.querySelectorAll("button[aria-pressed]")) {
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        const [off, name] = button.dataset.label === undefined ? [state.kinds, button.dataset.kind] : [state.labels, button.dataset.label];
        button.setAttribute("aria-pressed", String(on));
        off[on ? "delete" : "add"](name);
        drawn.forEach((one) => one.update());
      });
    }
  }

  const redraw = () => plots.forEach(({ plot }) => plot.redraw());
  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", () => {
    printing = true;
    plots.forEach(({ plot }) => plot.setSize({ width: 480, height: 250 }));
    redraw();
  });
  addEventListener("afterprint", () => {
    printing = false;
    plots.forEach(({ fit }) => fit());
    redraw();
  });
})();
