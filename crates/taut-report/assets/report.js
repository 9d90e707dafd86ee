"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const STAGES = ["program", "call", "socket", "driver", "medium", "broker", "peer program"];
  const root = document.documentElement;

  // Figures. Tables come ready in words; these are for axes and hovers.
  const digits = (value) => {
    const text = value.toPrecision(3);
    return text.includes("e") ? String(Math.round(value)) : text;
  };
  const scaled = (value, units) => {
    const [size, unit] = units.findLast(([size]) => Math.abs(value) >= size) ?? units[0];
    return [value / size, unit];
  };
  const TIME = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  const RATE = [[1, "bit/s"], [1e3, "kbit/s"], [1e6, "Mbit/s"], [1e9, "Gbit/s"], [1e12, "Tbit/s"]];
  const exact = (units) => (value) => { const [v, unit] = scaled(value, units); return `${digits(v)} ${unit}`; };
  const round = (units) => (value) => { const [v, unit] = scaled(value, units); return `${+v.toPrecision(3)} ${unit}`; };
  const UNIT = {
    ns: { exact: exact(TIME), tick: round(TIME) },
    bps: { exact: exact(RATE), tick: round(RATE) },
    ratio: { exact: digits, tick: (value) => String(+value.toPrecision(3)) },
    share: { exact: (v) => `${digits(v * 100)} %`, tick: (v) => `${+(v * 100).toPrecision(2)} %` },
  };
  const percentile = (x) => `${+(100 * (1 - 10 ** -x)).toFixed(Math.max(0, Math.ceil(x)))} %`;

  // Colours come from the style sheet, as the reader's theme has them.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const seriesColour = (i) => colour(`series${i % 7}`);
  const font = "12px system-ui, sans-serif";

  // 1-2-5 ticks of a logarithmic axis; even ticks where the range is too short for them.
  const logSplits = (min, max, most) => {
    const from = Math.floor(Math.log10(min)), to = Math.ceil(Math.log10(max));
    for (const steps of [[1, 2, 5], [1]]) {
      const splits = [];
      for (let e = from; e <= to; e++) for (const s of steps) splits.push(s * 10 ** e);
      const inside = splits.filter((v) => v >= min * 0.9999 && v <= max * 1.0001);
      if (inside.length < 3 && steps.length === 3) return linearSplits(min, max, most);
      if (inside.length <= most) return inside;
    }
    return linearDecades(from, to, most);
  };
  const linearDecades = (from, to, most) => {
    const step = Math.ceil((to - from) / most), splits = [];
    for (let e = from; e <= to; e += step) splits.push(10 ** e);
    return splits;
  };
  const linearSplits = (min, max, most) => {
    const raw = (max - min) / Math.max(2, most), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= raw), splits = [];
    for (let v = Math.ceil(min / step) * step; v <= max; v += step) splits.push(v);
    return splits;
  };

  const axis = (extra) => ({
    stroke: colour("faint"), font, labelFont: font, labelSize: 20, labelGap: 2,
    grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, filter: (u, splits) => splits, ...extra,
  });
  const roomFor = (u, side, each) => Math.max(2, Math.floor((side === "x" ? u.bbox.width : u.bbox.height) / devicePixelRatio / each));

  const tipFor = (host) => {
    const tip = host.appendChild(document.createElement("div"));
    tip.className = "tip";
    tip.hidden = true;
    return (u, title, lines) => {
      tip.hidden = !title;
      if (!title) return;
      const head = document.createElement("strong");
      head.textContent = title;
      const table = document.createElement("table");
      for (const line of lines) {
        const row = table.insertRow();
        for (const text of line) row.insertCell().textContent = text;
      }
      tip.replaceChildren(head, table);
      const { left, top } = u.cursor, box = u.over;
      const x = box.offsetLeft + left + 14, room = host.clientWidth - tip.offsetWidth;
      tip.style.left = `${Math.max(0, x > room ? box.offsetLeft + left - tip.offsetWidth - 14 : x)}px`;
      tip.style.top = `${Math.max(0, box.offsetTop + Math.min(top + 12, box.clientHeight - tip.offsetHeight))}px`;
    };
  };

  // Curves: one x for all, values of the nearest point of each curve in the legend.
  const nearest = (u, series, index) => {
    const data = u.data[series];
    for (let d = 0; d < data.length; d++) {
      if (data[index - d] != null) return index - d;
      if (data[index + d] != null) return index + d;
    }
    return index;
  };
  const curves = (chart, host, x, y) => {
    const data = uPlot.join(chart.series.map((s) => [s.x, s.y]));
    const most = Math.max(...data[0]);
    return new uPlot({
      width: host.clientWidth, height: 340, padding: [12, 18, 0, 0],
      scales: {
        x: { time: false, distr: x.log ? 3 : 1, range: x.log ? (u, a, b) => [a, b] : (u, a, b) => [a, Math.min(b, most)] },
        y: { distr: 3, range: (u, a, b) => [a / 1.25, Math.min(b * 1.25, y.most ?? Infinity)] },
      },
      axes: [
        axis({ size: 26, label: x.label, splits: x.splits, values: (u, splits) => splits.map(x.tick) }),
        axis({ size: 64, label: y.label, splits: (u, i, a, b) => logSplits(a, b, roomFor(u, "y", 34)), values: (u, splits) => splits.map(y.tick) }),
      ],
      series: [
        { label: x.name, value: (u, v) => (v == null ? "–" : x.exact(v)) },
        ...chart.series.map((s, i) => ({
          label: s.label, stroke: seriesColour(i), width: 2, dash: i >= 7 ? [6, 4] : undefined, spanGaps: true,
          paths: x.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          points: { show: x.dots ?? false, size: 6 }, value: (u, v) => (v == null ? "–" : y.exact(v)),
        })),
      ],
      legend: {
        markers: {
          width: (u, i) => (i > 7 ? 2 : 0), dash: () => "dashed", stroke: (u, i) => (i ? seriesColour(i - 1) : "transparent"),
          fill: (u, i) => (i && i <= 7 ? seriesColour(i - 1) : "transparent"),
        },
      },
      cursor: { dataIdx: nearest, points: { size: 7 }, drag: { x: true, y: false } },
    }, data, host);
  };
  const percentiles = (chart, host) => curves(chart, host, {
    label: "messages no later", name: "percentile", exact: percentile, tick: percentile,
    splits: (u, i, min, max) => {
      const ticks = [Math.log10(2)];
      for (let x = 1; x <= max; x++) ticks.push(x);
      return ticks.filter((x) => x >= min && x <= max);
    },
  }, { label: "time", ...UNIT.ns });
  const exceedance = (chart, host) => curves(chart, host, {
    log: true, stepped: true, label: "time", name: "later than", ...UNIT.ns,
    splits: (u, i, min, max) => logSplits(min, max, roomFor(u, "x", 60)),
  }, { label: "share of the messages", most: 1.25, ...UNIT.share });

  const plain = (v) => v.toLocaleString("en");
  const scaling = (chart, host) => curves(chart, host, {
    log: true, dots: true, label: chart.x, name: chart.x, ...(chart.xunit ? UNIT[chart.xunit] : { exact: plain, tick: plain }),
    splits: (u, i, min, max) => logSplits(min, max, roomFor(u, "x", 60)),
  }, { label: chart.y, ...UNIT[chart.unit ?? "ns"] });

  // A frame with axes for what uPlot has no kind of its own for; `draw` paints, `hover` answers for a place.
  const canvas = (host, height, scales, axes, corner, draw, hover, drag = { x: true, y: false }) => {
    const tip = tipFor(host);
    return new uPlot({
      width: host.clientWidth, height, padding: [8, 18, 0, 0], legend: { show: false },
      scales: { x: { time: false, range: (u, a, b) => [a, b], ...scales.x }, y: { range: (u, a, b) => [a, b], ...scales.y } },
      axes, series: [{}, { paths: () => null, points: { show: false } }],
      cursor: { points: { show: false }, drag },
      hooks: {
        draw: [(u) => {
          u.ctx.save();
          u.ctx.beginPath();
          u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
          u.ctx.clip();
          draw(u, u.ctx, devicePixelRatio);
          u.ctx.restore();
        }],
        setCursor: [(u) => {
          const inside = u.cursor.left >= 0;
          tip(u, ...((inside && hover(u.posToVal(u.cursor.left, "x"), u.posToVal(u.cursor.top, "y"))) || [null]));
        }],
      },
    }, corner, host);
  };

  // Rows of dots, an interval and a middle for each.
  const spread = (chart, host) => {
    const unit = UNIT[chart.unit], rows = chart.rows;
    const values = rows.flatMap((r) => [r.middle, ...r.dots, ...(r.interval ?? [])]).concat(chart.mark ?? []).filter((v) => v > 0);
    let low = Math.min(...values), high = Math.max(...values);
    const log = chart.unit === "ratio" || high / low > 4;
    const pad = log ? Math.max(1.04, (high / low) ** 0.04) : 0;
    [low, high] = log ? [low / pad, high * pad] : [Math.max(0, low - (high - low) * 0.08 - low * 0.005), high + (high - low) * 0.08 + high * 0.005];
    const draw = (u, ctx, px) => {
      const X = (v) => u.valToPos(v, "x", true), Y = (v) => u.valToPos(v, "y", true);
      if (chart.mark) {
        ctx.strokeStyle = colour("faint");
        ctx.lineWidth = px;
        ctx.setLineDash([4 * px, 4 * px]);
        ctx.beginPath();
        ctx.moveTo(X(chart.mark), u.bbox.top);
        ctx.lineTo(X(chart.mark), u.bbox.top + u.bbox.height);
        ctx.stroke();
        ctx.setLineDash([]);
      }
      rows.forEach((row, i) => {
        const y = Y(i) + 8 * px;
        ctx.fillStyle = colour("fg");
        ctx.font = `${12 * px}px system-ui, sans-serif`;
        ctx.textAlign = "left";
        ctx.textBaseline = "bottom";
        ctx.fillText(row.label, u.bbox.left + 6 * px, y - 10 * px);
        ctx.fillStyle = ctx.strokeStyle = seriesColour(i);
        if (row.interval) {
          ctx.globalAlpha = 0.28;
          const [a, b] = row.interval.map(X);
          ctx.fillRect(a - px, y - 5 * px, Math.max(2 * px, b - a + 2 * px), 10 * px);
          ctx.globalAlpha = 1;
        }
        for (const dot of row.dots) {
          ctx.globalAlpha = 0.75;
          ctx.beginPath();
          ctx.arc(X(dot), y, 3.5 * px, 0, 7);
          ctx.fill();
          ctx.globalAlpha = 1;
        }
        ctx.fillRect(X(row.middle) - 1.25 * px, y - 7 * px, 2.5 * px, 14 * px);
      });
    };
    const hover = (x, y) => { const row = rows[Math.round(y)]; return row && [row.label, [[row.words]]]; };
    return canvas(host, 54 + 48 * rows.length,
      { x: { distr: log ? 3 : 1 }, y: { dir: -1 } },
      [
        axis({ size: 26, label: chart.axis, splits: (u, i, a, b) => (log ? logSplits : linearSplits)(a, b, roomFor(u, "x", 80)), values: (u, splits) => splits.map(unit.tick) }),
        axis({ show: false }),
      ],
      [[low, high], [-0.5, rows.length - 0.5]], draw, hover);
  };

  // Messages as bars, cut by the layer that held them.
  const timeline = (chart, host) => {
    const { messages } = chart;
    const draw = (u, ctx, px) => {
      const X = (ns) => u.valToPos(ns, "x", true);
      const stage = STAGES.map((_, i) => colour(`stage${i}`)), ack = colour("fg");
      const pitch = Math.abs(u.valToPos(1, "y", true) - u.valToPos(0, "y", true)), bar = Math.max(1, pitch * 0.72);
      messages.forEach((m, i) => {
        const y = u.valToPos(i + 1, "y", true) - bar / 2;
        for (const [s, from, to] of m.parts) {
          if (to <= from) continue;
          ctx.fillStyle = stage[s];
          ctx.fillRect(X(from), y, Math.max(px, X(to) - X(from)), bar);
        }
        if (m.acked != null) {
          ctx.fillStyle = ack;
          ctx.fillRect(X(m.acked) - px * 0.75, y, 1.5 * px, bar);
        }
      });
    };
    const hover = (x, y) => {
      const m = messages[Math.round(y) - 1];
      if (!m) return null;
      const lines = [["intended at", UNIT.ns.exact(m.intended)], ...m.parts.map(([s, from, to]) => [STAGES[s], UNIT.ns.exact(to - from)])];
      if (m.acked != null) lines.push(["acknowledged after", UNIT.ns.exact(m.acked - m.intended)]);
      if (m.parts.at(-1)?.[0] !== 5) lines.push(["not seen to be read", ""]);
      return [`Message ${Math.round(y)}`, lines];
    };
    return canvas(host, Math.min(560, 80 + 9 * chart.most), { y: { dir: -1 } },
      [
        axis({ size: 26, label: "since the first message", splits: (u, i, a, b) => linearSplits(a, b, roomFor(u, "x", 70)), values: (u, splits) => splits.map((v) => (v ? UNIT.ns.tick(v) : "0")) }),
        axis({ size: 46, label: "message", splits: (u, i, a, b) => linearSplits(a, b, roomFor(u, "y", 40)).filter((v) => v >= 1 && v % 1 === 0), values: (u, splits) => splits.map(String) }),
      ],
      [[0, chart.span * 1.01], [0.25, chart.most + 0.75]], draw, hover);
  };

  // Connection events in rows: PDUs as bars, above the central's and below the peripheral's; behind them who held the data.
  const air = (chart, host) => {
    const { events, kinds, lines } = chart;
    const half = (side) => (side ? [0.04, 0.4] : [-0.44, 0.4]);
    const draw = (u, ctx, px) => {
      const X = (ns) => u.valToPos(ns, "x", true), Y = (row) => u.valToPos(row, "y", true);
      const line = lines.map((_, i) => colour(`air${i}`)), pdu = kinds.map((_, i) => colour(`pdu${i}`)), edge = colour("bad");
      events.forEach((event, row) => {
        ctx.globalAlpha = 0.5;
        for (const [from, time, holder] of event.idle) {
          ctx.fillStyle = line[holder] ?? edge;
          ctx.fillRect(X(from), Y(row - 0.46), Math.max(px / 2, X(from + time) - X(from)), Y(row + 0.46) - Y(row - 0.46));
        }
        ctx.globalAlpha = 1;
        for (const [from, time, side, kind, , flags] of event.pdus) {
          const [top, size] = half(side), y = Y(row + top), height = Y(row + top + size) - y;
          const width = Math.max(1.5 * px, X(from + time) - X(from));
          ctx.fillStyle = pdu[kind];
          ctx.fillRect(X(from), y, width, height);
          if (flags & 6) {
            ctx.strokeStyle = edge;
            ctx.lineWidth = 2 * px;
            ctx.strokeRect(X(from) + px, y + px, Math.max(px, width - 2 * px), height - 2 * px);
          }
        }
      });
    };
    const hover = (x, y) => {
      const row = Math.round(y), event = events[row];
      if (!event) return null;
      const head = `Connection event ${event.number}, ${UNIT.ns.exact(x)} after the anchor`;
      const within = ([from, time]) => x >= from && x < from + time;
      const side = y - row > 0 ? 1 : 0;
      const bar = event.pdus.filter(within).sort((a, b) => Math.abs(a[2] - side) - Math.abs(b[2] - side))[0];
      const last = ["closed", event.closed];
      if (bar) {
        const [from, time, by, kind, bytes, flags, what] = bar;
        const rows = [["sent by", by ? "peripheral" : "central"], [kinds[kind], what], ["payload", `${bytes} B`], ["begins", UNIT.ns.exact(from)], ["on the air", UNIT.ns.exact(time)]];
        rows.push(["more data", flags & 1 ? "yes" : "no"]);
        if (flags & 2) rows.push(["sent again", ""]);
        if (flags & 4) rows.push(["did not arrive whole", ""]);
        return [head, [...rows, last]];
      }
      const idle = event.idle.find(within);
      return [head, idle ? [["nothing on the air", UNIT.ns.exact(idle[1])], ["held by", lines[idle[2]] ?? "?"], last] : [last]];
    };
    return canvas(host, Math.min(1400, 90 + 20 * events.length), { y: { dir: -1 } },
      [
        axis({ size: 26, label: "since the anchor", splits: (u, i, a, b) => linearSplits(a, b, roomFor(u, "x", 70)), values: (u, splits) => splits.map((v) => (v ? UNIT.ns.tick(v) : "0")) }),
        axis({ size: 60, label: "connection event", splits: (u, i, a, b) => linearSplits(a, b, roomFor(u, "y", 20)).filter((v) => v >= 0 && v % 1 === 0 && v < events.length), values: (u, splits) => splits.map((v) => String(events[v].number)) }),
      ],
      [[0, chart.span], [-0.6, events.length - 0.4]], draw, hover);
  };

  // A lane for each direction, each stretch in the colour of who held the data. It can be zoomed and moved.
  const lanes = (chart, host) => {
    const { holders, lanes: all, from } = chart, to = Math.max(chart.to, from + 1);
    // The first stretch that ends after a time: none begins before the one before has ended.
    const firstAfter = (spans, time) => {
      let low = 0, high = spans.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (spans[middle][0] + spans[middle][1] > time) high = middle; else low = middle + 1;
      }
      return low;
    };
    const draw = (u, ctx, px) => {
      const X = (ns) => u.valToPos(ns, "x", true), { min, max } = u.scales.x;
      const colours = holders.map((one) => colour(one.colour));
      all.forEach((lane, row) => {
        const middle = u.valToPos(row, "y", true), top = middle - 2 * px, height = 18 * px;
        ctx.fillStyle = colour("fg");
        ctx.font = `${12 * px}px system-ui, sans-serif`;
        ctx.textAlign = "left";
        ctx.textBaseline = "bottom";
        ctx.fillText(lane.label, u.bbox.left + 4 * px, top - 3 * px);
        // Stretches within one pixel: the pixel has the colour of who had most of it.
        let column = -1, most = new Map();
        const flush = () => {
          let best = -1, time = 0;
          for (const [holder, held] of most) if (held > time) [best, time] = [holder, held];
          if (best >= 0) {
            ctx.fillStyle = colours[best];
            ctx.fillRect(column, top, 1, height);
          }
          most = new Map();
        };
        for (let i = firstAfter(lane.spans, min); i < lane.spans.length && lane.spans[i][0] < max; i++) {
          const [begin, held, holder] = lane.spans[i], left = X(begin), right = X(begin + held);
          if (Math.floor(left) !== column) {
            flush();
            column = Math.floor(left);
          }
          if (right - left < 1) {
            most.set(holder, (most.get(holder) ?? 0) + held);
            continue;
          }
          ctx.fillStyle = colours[holder];
          ctx.fillRect(left, top, right - left, height);
        }
        flush();
      });
    };
    const hover = (x, y) => {
      const lane = all[Math.round(y)];
      if (!lane) return null;
      const near = lane.spans[firstAfter(lane.spans, x)];
      if (!near || near[0] > x) return [lane.label, [["not drawn", ""]]];
      const [begin, held, holder, first, last] = near, one = holders[holder];
      const frames = first === undefined ? [] : [["Wireshark", `frame.number in {${first}..${last}}`]];
      return [one.name, [
        ["to act", one.side], ["for", UNIT.ns.exact(held)], ["begins at", UNIT.ns.exact(begin)],
        ...frames, ["direction", lane.label],
      ]];
    };
    // All lanes, whatever part of the time is shown.
    const rows = [-0.7, all.length - 0.3];
    const u = canvas(host, 60 + 46 * all.length, { y: { dir: -1, range: () => rows } },
      [
        axis({ size: 26, label: chart.since, splits: (u, i, a, b) => linearSplits(a, b, roomFor(u, "x", 90)), values: (u, splits) => steps(splits) }),
        axis({ show: false }),
      ],
      [[from, to], rows], draw, hover, { x: false, y: false });
    // As many digits as tell one tick from the next.
    function steps(splits) {
      const gap = splits.length > 1 ? splits[1] - splits[0] : 1, [size, unit] = TIME.findLast(([size]) => Math.abs(splits.at(-1) ?? 0) >= size) ?? TIME[0];
      const after = Math.min(9, Math.max(0, -Math.floor(Math.log10(gap / size) + 1e-9)));
      return splits.map((v) => `${(v / size).toFixed(after)} ${unit}`);
    }
    const show = (min, max) => {
      const width = Math.min(to - from, Math.max(1, max - min)), left = Math.min(Math.max(from, min), to - width);
      u.setScale("x", { min: left, max: left + width });
    };
    const zoom = (by, at) => {
      const { min, max } = u.scales.x, place = at ?? (min + max) / 2;
      show(place - (place - min) * by, place + (max - place) * by);
    };
    const move = (share) => {
      const { min, max } = u.scales.x, off = (max - min) * share;
      show(min + off, max + off);
    };
    host.classList.add("lanes");
    host.tabIndex = 0;
    u.over.addEventListener("wheel", (event) => {
      const { min, max } = u.scales.x;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        move(event.deltaX / u.over.clientWidth);
      } else if (event.deltaY < 0 || max - min < to - from) {
        // Where all is shown already, the page scrolls.
        event.preventDefault();
        zoom(1.25 ** Math.sign(event.deltaY), u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x"));
      }
    }, { passive: false });
    let held = null;
    u.over.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      held = event.clientX;
      u.over.setPointerCapture(event.pointerId);
    });
    u.over.addEventListener("pointermove", (event) => {
      if (held === null) return;
      move((held - event.clientX) / u.over.clientWidth);
      held = event.clientX;
    });
    for (const end of ["pointerup", "pointercancel"]) u.over.addEventListener(end, () => { held = null; });
    u.over.addEventListener("dblclick", () => show(from, to));
    host.onkeydown = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const keys = {
        ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.8), "=": () => zoom(0.8),
        "-": () => zoom(1.25), 0: () => show(from, to), Home: () => show(from, to),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    };
    return u;
  };

  const KINDS = { percentiles, exceedance, scaling, spread, timeline, air, lanes };
  const drawn = new Map();
  const draw = (host) => {
    drawn.get(host)?.destroy();
    host.replaceChildren();
    const chart = charts[host.dataset.chart];
    drawn.set(host, KINDS[chart.kind](chart, host));
  };
  const hosts = [...document.querySelectorAll(".chart")];
  hosts.forEach(draw);
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const u = drawn.get(target);
      if (u && u.width !== target.clientWidth && target.clientWidth > 0) u.setSize({ width: target.clientWidth, height: u.height });
    }
  });
  hosts.forEach((host) => resized.observe(host));

  // Theme: the system's, unless the reader chooses.
  const button = document.getElementById("theme"), THEMES = ["system", "light", "dark"];
  let theme = "system";
  const apply = () => {
    if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % 3];
    apply();
    hosts.forEach(draw);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => hosts.forEach(draw));

  // Commands: a button that copies, where the browser lets it.
  if (navigator.clipboard) {
    for (const place of document.querySelectorAll(".copy")) {
      const copy = place.appendChild(document.createElement("button"));
      copy.type = "button";
      copy.textContent = "copy";
      copy.addEventListener("click", async () => {
        await navigator.clipboard.writeText(place.querySelector("code").textContent);
        copy.textContent = "copied";
        setTimeout(() => { copy.textContent = "copy"; }, 1500);
      });
    }
  }
})();
