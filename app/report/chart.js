// What the report is drawn with: elements, numbers with units, and charts by SVG. Text of the run
// is only ever put in as text, never as markup. page.js says what is drawn.
'use strict';

const page = document.getElementById('page');

function report(error) {
  const box = document.getElementById('errors');
  box.hidden = false;
  box.textContent += `This page could not be drawn in full: ${error}\n`;
}
addEventListener('error', (event) => report(event.message));

// ---- elements ----

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}
const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

function section(title, note, kind = '') {
  const heading = html('h2', {}, title, ...(note ? [' ', html('small', {}, note)] : []));
  const card = html('section', {class: kind}, heading);
  page.append(card);
  return card;
}

// ---- numbers and units ----

const isNumber = (x) => typeof x === 'number' && Number.isFinite(x);
const number = (object, key) => (isNumber(object?.[key]) ? object[key] : NaN);
const list = (x) => (Array.isArray(x) ? x.filter((y) => y && typeof y === 'object') : []);
const entries = (x) => (x && typeof x === 'object' && !Array.isArray(x) ? Object.entries(x) : []);
const words = (name) => String(name).replaceAll('_', ' ');
const thin = '\u202f';  // a narrow space that does not break
const grouped = (x) => Math.round(x).toLocaleString('en').replaceAll(',', thin);

// How numbers of a kind near `size` are written: value * factor, then the suffix.
function unitOf(kind, size) {
  const power = size > 0 ? Math.floor(Math.log10(size) + 1e-9) : 0;
  const pick = (base, names) => {
    const i = Math.max(0, Math.min(names.length - 1, Math.floor(power / 3)));
    return {factor: base ** -i, suffix: names[i] && thin + names[i]};
  };
  if (kind === 'step') return {factor: 1, suffix: ''};
  if (kind === 'share') return {factor: 100, suffix: `${thin}%`};
  if (kind === 'count') return pick(1000, ['', 'k', 'M', 'G', 'T', 'P']);
  if (kind === 'bytes') {
    const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    const i = size < 1 ? 0 : Math.min(4, Math.floor(Math.log2(size) / 10));
    return {factor: 1024 ** -i, suffix: thin + names[i]};
  }
  if (kind === 'seconds' && size < 1) {
    return power >= -3 ? {factor: 1e3, suffix: `${thin}ms`} : {factor: 1e6, suffix: `${thin}µs`};
  }
  if (kind === 'seconds') return {factor: 1, suffix: `${thin}s`};
  const plain = size === 0 || (power >= -2 && power < 5);
  return {factor: plain ? 1 : 10 ** -power, suffix: plain ? '' : `e${power}`};
}

function format(value, kind, digits = kind === 'loss' ? 4 : 3) {
  if (!isNumber(value)) return '–';
  const {factor, suffix} = unitOf(kind, Math.abs(value));
  const scaled = value * factor;
  return (Math.abs(scaled) >= 1000 ? grouped(scaled) : scaled.toPrecision(digits)) + suffix;
}

function duration(seconds) {
  if (seconds < 120) return format(seconds, 'seconds');
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes}${thin}min`;
  return `${Math.floor(minutes / 60)}${thin}h ${minutes % 60}${thin}min`;
}

// About `count` round values (1, 2 or 5 times a power of ten) from low to high, with their labels.
function ticks(low, high, count, kind) {
  const {factor, suffix} = unitOf(kind, Math.max(Math.abs(low), Math.abs(high)));
  const raw = ((high - low) * factor) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  let step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  if (kind === 'step') step = Math.max(1, step);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const out = [];
  for (let i = Math.ceil((low * factor) / step - 1e-6); i * step <= high * factor * 1.000001; ++i) {
    const text = kind === 'step' ? grouped(i * step) : (i * step).toFixed(decimals);
    out.push({value: (i * step) / factor, text: i === 0 ? '0' : text + suffix});
  }
  return out;
}

function logTicks(low, high, kind) {
  const decades = Math.log10(high / low);
  const out = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e += Math.ceil(decades / 6)) {
    for (const m of decades < 2.5 ? [1, 2, 5] : [1]) {
      const value = m * 10 ** e;
      if (value >= low && value <= high) out.push({value, text: format(value, kind, 1)});
    }
  }
  return out;
}

// ---- charts ----

// What a group of charts points at: a value on their common x axis, or null.
function makeCursor() {
  const listeners = [];
  return {
    listen: (listener) => listeners.push(listener),
    set: (x) => listeners.forEach((listener) => listener(x)),
  };
}

function nearest(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(xs[high] - x) < Math.abs(xs[low] - x) ? high : low;
}

// Calls draw(width) with the width inside a card, now and whenever it changes.
function whenSized(card, draw) {
  let drawn = 0;
  const check = () => {
    const width = Math.max(200, Math.round(card.clientWidth - 36));
    if (width !== drawn) draw(width);
    drawn = width;
  };
  new ResizeObserver(() => requestAnimationFrame(check)).observe(card);
  check();
}

// The sums of the series below and with each: what a stacked series lies between.
function stack(series) {
  let below = series[0].values.map(() => 0);
  for (const s of series) {
    s.below = below;
    s.above = below.map((sum, i) => sum + (isNumber(s.values[i]) ? s.values[i] : 0));
    below = s.above;
  }
}

function yRange(chart) {
  const values = chart.series.flatMap((s) => (chart.stacked ? s.above : s.values)).filter(isNumber);
  let low = values.reduce((a, b) => Math.min(a, b), Infinity);
  let high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (low > high) return {low: 0, high: 1, log: false};
  const log = Boolean(chart.logs) && low > 0 && high / low > 100;
  if (log) return {low: low / 1.2, high: high * 1.2, log};
  if (chart.zero) low = Math.min(0, low);
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return {low: chart.zero ? low : Math.max(low - margin, low < 0 ? -Infinity : 0),
    high: high + margin, log};
}

// Lines leave gaps where there is no number; a number between two gaps becomes a dot.
function linePath(points) {
  let path = '';
  points.forEach(([x, y], i) => {
    if (!isNumber(y)) return;
    const starts = !isNumber(points[i - 1]?.[1]);
    path += `${starts ? 'M' : 'L'}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (starts && !isNumber(points[i + 1]?.[1])) path += 'h0.1';
  });
  return path;
}

// What is alive stays so until the next moment: steps, not slopes.
function areaPath(xs, above, below) {
  const end = (i) => xs[Math.min(i + 1, xs.length - 1)];
  const edge = (ys) => ys.flatMap((y, i) => [[xs[i], y], [end(i), y]]);
  const outline = [...edge(above), ...edge(below).reverse()];
  return `M${outline.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L')}Z`;
}

// chart: {xs, xKind, xName, series: [{name, color, style, values}], kind (of y), zero, logs,
// stacked, height (by width), cursor, rest (the index shown when nothing is pointed at), where
// (text for an index), events (places on the x axis)}.
// A style is thin, line, points or area. Values are read in the legend, which never hides a line.
function drawChart(card, title, chart) {
  const {xs, series, cursor} = chart;
  const keys = series.map((s) => html('b'));
  const where = html('span', {class: chart.stacked ? 'where' : ''});
  const legend = html('p', {class: `legend${chart.stacked ? ' stacked' : ''}`},
    ...series.map((s, i) => html('span', {class: `key ${s.style}`,
      style: `--color: var(--${s.color})`}, `${s.name} `, keys[i])), where);
  const picture = svg('svg', {role: 'img', tabindex: 0, 'aria-label':
    `${title}: ${series.map((s) => summaryOf(s, chart.kind)).join('; ')}`});
  card.append(legend, picture);

  if (chart.stacked) stack(series);
  const {low, high, log} = yRange(chart);
  const from = xs[0] > 0.05 * xs.at(-1) ? xs[0] : Math.min(0, xs[0]);
  const to = xs.at(-1) > from ? xs.at(-1) : from + 1;
  let pointed = null;  // an index
  let x, y, cross;

  function read() {
    const i = pointed ?? chart.rest;
    series.forEach((s, k) => {
      let at = i;  // a series of points shows its latest
      while (s.style === 'points' && at > 0 && !isNumber(s.values[at])) --at;
      keys[k].textContent = format(s.values[at], chart.kind);
    });
    where.textContent = chart.where(i);
    if (!cross) return;
    cross.replaceChildren();
    if (pointed === null && !chart.stacked) return;
    cross.append(svg('line', {class: 'cross', x1: x(xs[i]), x2: x(xs[i]), y1: 6, y2: y(low)}));
    for (const s of chart.stacked ? [] : series) {
      if (isNumber(s.values[i])) cross.append(svg('circle', {class: 'dot', r: 4,
        style: `--color: var(--${s.color})`, cx: x(xs[i]), cy: y(s.values[i])}));
    }
  }

  function draw(width) {
    const height = chart.height(width);
    const rows = log ? logTicks(low, high, chart.kind)
      : ticks(low, high, Math.max(3, Math.round(height / 45)), chart.kind);
    const left = 10 + 7.4 * Math.max(...rows.map((t) => t.text.length));
    const [right, top, bottom] = [width - 8, 6, height - 38];
    const level = (v) => (log ? Math.log10(v) : v);
    x = (v) => left + ((v - from) / (to - from)) * (right - left);
    y = (v) => bottom - ((level(v) - level(low)) / (level(high) - level(low))) * (bottom - top);
    picture.setAttribute('viewBox', `0 0 ${width} ${height}`);
    cross = svg('g');
    const marks = rows.flatMap((t) => [
      svg('line', {class: 'grid', x1: left, x2: right, y1: y(t.value), y2: y(t.value)}),
      svg('text', {x: left - 8, y: y(t.value) + 4, 'text-anchor': 'end'}, t.text)]);
    const columns = ticks(from, to, Math.max(2, Math.floor(width / 95)), chart.xKind);
    for (const t of columns) {
      const half = 3.8 * t.text.length;
      const at = Math.min(Math.max(x(t.value), half), width - half);
      marks.push(svg('text', {x: at, y: bottom + 17, 'text-anchor': 'middle'}, t.text));
    }
    marks.push(svg('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}),
      svg('text', {x: (left + right) / 2, y: height - 4, 'text-anchor': 'middle'}, chart.xName));
    for (const v of chart.events ?? []) {
      if (v >= from && v <= to) {
        marks.push(svg('line', {class: 'event', x1: x(v), x2: x(v), y1: top, y2: bottom}));
      }
    }
    const lines = series.flatMap((s) => drawSeries(s));
    picture.replaceChildren(...marks, ...lines, cross);
    read();
  }

  function drawSeries(s) {
    const style = `--color: var(--${s.color})`;
    const pixels = xs.map(x);
    if (s.style === 'area') {
      const d = areaPath(pixels, s.above.map(y), s.below.map(y));
      return [svg('path', {class: 'area', style, d})];
    }
    let points = s.values.map((v, i) => [pixels[i], isNumber(v) ? y(v) : NaN]);
    if (s.style === 'points') points = points.filter((p) => isNumber(p[1]));
    const path = svg('path', {class: `line ${s.style}`, style, d: linePath(points)});
    if (s.style !== 'points') return [path];
    const few = points.filter((p, i) => points.length <= 40 || i === points.length - 1);
    return [path, ...few.map(([cx, cy]) => svg('circle', {class: 'dot', style, cx, cy, r: 4}))];
  }

  picture.addEventListener('pointermove', (event) => {
    const box = picture.getBoundingClientRect();
    const view = picture.viewBox.baseVal.width / box.width;
    const share = ((event.clientX - box.left) * view - x(from)) / (x(to) - x(from));
    cursor.set(from + Math.min(1, Math.max(0, share)) * (to - from));
  });
  picture.addEventListener('pointerleave', (event) => {
    if (event.pointerType === 'mouse') cursor.set(null);
  });
  picture.addEventListener('keydown', (event) => {
    const last = xs.length - 1;
    const by = event.shiftKey ? Math.max(1, Math.round(last / 20)) : 1;
    const i = pointed ?? chart.rest;
    const targets = {ArrowLeft: i - by, ArrowRight: i + by, Home: 0, End: last, Escape: null};
    const target = targets[event.key];
    if (target === undefined) return;
    cursor.set(target === null ? null : xs[Math.min(last, Math.max(0, target))]);
    event.preventDefault();
  });
  picture.addEventListener('focus', () => legend.setAttribute('aria-live', 'polite'));
  picture.addEventListener('blur', () => legend.removeAttribute('aria-live'));
  cursor.listen((value) => {
    pointed = value === null ? null : nearest(xs, value);
    read();
  });
  whenSized(card, draw);
}

function summaryOf(series, kind) {
  const values = series.values.filter(isNumber);
  if (values.length === 0) return `${series.name}, no values`;
  const low = values.reduce((a, b) => Math.min(a, b));
  const high = values.reduce((a, b) => Math.max(a, b));
  return `${series.name} from ${format(values[0], kind)} to ${format(values.at(-1), kind)}, ` +
    `lowest ${format(low, kind)}, highest ${format(high, kind)}`;
}
